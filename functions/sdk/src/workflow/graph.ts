import type { SelectOptions } from '../context/context.ts';
import type { GenerateOptions } from '../generate/generation.ts';

/** The values that pass between nodes, by the name of their type. */
export interface Values {
  readonly text: string;
  readonly texts: readonly string[];
  readonly vector: Float32Array;
  readonly vectors: readonly Float32Array[];
  readonly number: number;
  readonly numbers: readonly number[];
  readonly flag: boolean;
  readonly image: Uint8Array;
  /** Any other value; lists of these are `list`. */
  readonly json: unknown;
  readonly list: readonly unknown[];
  /** A text in the model's memory. One node at a time owns it; a node that shares it with others gets a fork. */
  readonly context: object;
}

export type Type = keyof Values;

/** One output of a node. */
export interface Ref<T extends Type = Type> {
  readonly node: string;
  readonly port: string;
  readonly type: T;
}

/** The refs that builders have made. An object of an input may have the same members, but counts as a value. */
const builtRefs = new WeakSet<object>();

/** Makes an output that {@link isRef} recognises. */
export function outputRef<T extends Type>(node: string, port: string, type: T): Ref<T> {
  const ref = { node, port, type };
  builtRefs.add(ref);
  return ref;
}

export const isRef = (value: unknown): value is Ref =>
  typeof value === 'object' && value !== null && builtRefs.has(value);

/** True for an output, and for a list that has one at any depth. */
export const holdsRef = (value: unknown): boolean => isRef(value) || (Array.isArray(value) && value.some(holdsRef));

/** The origin of one input: another node's output, a value that is known when the graph is made, or a list of both. */
export type Input = { readonly from: Ref } | { readonly value: unknown } | { readonly list: readonly Input[] };

/** Options of a generation that a graph may hold. */
export type DecodeOptions = Omit<GenerateOptions<unknown>, 'signal' | 'until'>;

/** The function of a node, over its inputs by name. */
// biome-ignore lint/suspicious/noExplicitAny: the builder checks the types of the inputs
export type NodeCall = (inputs: any, context: CallContext) => unknown;

export interface CallContext {
  /** Aborted when the workflow ends early: pass it to `fetch` and other calls. */
  readonly signal: GenerateOptions['signal'];
}

/** Parts of a generated text that are handed on one by one: its first `count` sentences or lines. */
export interface Items {
  readonly by: 'sentence' | 'line';
  readonly count: number;
}

/** A node's work. The names are those of Ayo (ASPLOS '25, Table 2) and of SGLang's nodes where Ayo has none. */
export type Operation =
  | {
      readonly kind: 'argument';
      readonly name: string;
      /** Index in the argument, when the argument is a list. */
      readonly index?: number | undefined;
    }
  | { readonly kind: 'prefilling' | 'partial-prefilling'; readonly model?: string | undefined }
  | {
      readonly kind: 'decoding' | 'partial-decoding';
      readonly options: DecodeOptions;
      readonly items?: Items | undefined;
      /** Send the text to the client as it is generated. */
      readonly pipe?: boolean | undefined;
    }
  | { readonly kind: 'select'; readonly choices: readonly string[]; readonly options: SelectOptions }
  | { readonly kind: 'fork' | 'join' | 'condition' | 'pick' }
  | {
      readonly kind: 'cached-context';
      readonly name: string;
      readonly tokens?: readonly number[] | undefined;
      readonly model?: string | undefined;
    }
  | { readonly kind: 'prefetching'; readonly name: string; readonly model?: string | undefined }
  | { readonly kind: 'embedding' | 'reranking'; readonly model?: string | undefined }
  | {
      readonly kind: 'ingestion' | 'searching' | 'aggregate' | 'tool-call' | 'user-defined';
      readonly name: string;
      readonly call: NodeCall;
    }
  | { readonly kind: 'loop'; readonly body: Graph; readonly most: number };

export type Kind = Operation['kind'];

/** A node runs only if `test` gave `is`. */
export interface Guard {
  readonly test: Ref<'flag'>;
  readonly is: boolean;
}

/** A list input whose elements the node treats one by one, so that it may run in stages of `batch` elements. */
export interface Elementwise {
  readonly port: string;
  /** Number of elements above which a larger batch is no more efficient; for an encoder, the measured number by default. */
  readonly batch?: number | undefined;
}

export interface Node {
  readonly id: string;
  readonly operation: Operation;
  /** The component that the node belongs to. */
  readonly module: string;
  readonly inputs: Readonly<Record<string, Input>>;
  readonly outputs: Readonly<Record<string, Type>>;
  /** Modules that must have ended first, whether or not their values are needed. */
  readonly after: readonly string[];
  /** True if passes must keep `after`, for the order of side effects. */
  readonly ordered?: boolean | undefined;
  readonly when: readonly Guard[];
  readonly each?: Elementwise | undefined;
  /** Length of the longest path to a result, if a pass has set it for the batcher. */
  readonly depth?: number | undefined;
  /** Number of further attempts after a failure that another attempt may avoid. */
  readonly retries: number;
}

/** A program as data. Passes turn a graph into another one with the same results. */
export interface Graph {
  readonly name: string;
  /** Sorted so that each node follows the nodes that it needs. */
  readonly nodes: readonly Node[];
  /** Results, by name. */
  readonly outputs: Readonly<Record<string, Input>>;
}

/** The key of an output in maps. */
export const keyOf = ({ node, port }: Pick<Ref, 'node' | 'port'>): string => `${node}.${port}`;

/** Returns an id that is not in `used`, and adds it there: users and passes may choose the same name. */
export function newId(id: string, used: Set<string>): string {
  let unused = id;
  for (let count = 2; used.has(unused); count++) unused = `${id}-${count}`;
  used.add(unused);
  return unused;
}

/** All references in an input. */
export function refsIn(input: Input, into: Ref[] = []): Ref[] {
  if ('from' in input) into.push(input.from);
  else if ('list' in input) for (const item of input.list) refsIn(item, into);
  return into;
}

/** Outputs of other nodes that a node reads, its guards' tests included. */
export function needsOf({ inputs, when }: Pick<Node, 'inputs' | 'when'>): Ref[] {
  const refs: Ref[] = [];
  for (const name in inputs) refsIn(inputs[name] as Input, refs);
  for (const { test } of when) refs.push(test);
  return refs;
}

/** The outputs from which a graph's results come. */
export const resultsOf = ({ outputs }: Pick<Graph, 'outputs'>): Ref[] =>
  Object.values(outputs).flatMap((input) => refsIn(input));

/**
 * Sorts nodes so that each follows the nodes that it needs, and otherwise keeps their order.
 * @returns the sorted nodes, and the ids of the nodes of a cycle if there is one
 */
export function sorted(nodes: readonly Node[]): { readonly nodes: readonly Node[]; readonly cycle: readonly string[] } {
  const modules = new Map<string, Node[]>();
  for (const node of nodes) {
    const members = modules.get(node.module);
    if (members) members.push(node);
    else modules.set(node.module, [node]);
  }
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const done = new Set<string>();
  const doneModules = new Set<string>();
  const order: Node[] = [];
  /** A path of nodes, each of which waits for the next one. A list instead of recursion, since a graph may be deeper than the stack. */
  const path: { readonly node: Node; readonly needed: Iterator<Node> }[] = [];
  const onPath = new Set<string>();
  const enter = (node: Node) => {
    if (done.has(node.id)) return;
    const needed = needsOf(node).flatMap((ref) => byId.get(ref.node) ?? []);
    for (const module of node.after) if (!doneModules.has(module)) needed.push(...(modules.get(module) ?? []));
    path.push({ node, needed: needed.values() });
    onPath.add(node.id);
  };
  for (const start of nodes) {
    enter(start);
    for (let last = path.at(-1); last; last = path.at(-1)) {
      const { node, needed } = last;
      const next = needed.next();
      if (next.done) {
        path.pop();
        onPath.delete(node.id);
        done.add(node.id);
        for (const module of node.after) doneModules.add(module);
        order.push(node);
      } else if (onPath.has(next.value.id)) {
        const ids = path.map((each) => each.node.id);
        return { nodes: order, cycle: ids.slice(ids.indexOf(next.value.id)) };
      } else enter(next.value);
    }
  }
  return { nodes: order, cycle: [] };
}

/** A generation counts as this many other nodes in the length of a path. */
const DECODING_WEIGHT = 8;

/** Length of the longest path from each node to an end, in nodes; a generation counts as several. */
export function depthsOf({ nodes }: Graph): ReadonlyMap<string, number> {
  const depths = new Map<string, number>();
  for (let i = nodes.length - 1; i >= 0; i--) {
    const node = nodes[i] as Node;
    const { kind } = node.operation;
    const depth =
      (depths.get(node.id) ?? 0) + (kind === 'decoding' || kind === 'partial-decoding' ? DECODING_WEIGHT : 1);
    depths.set(node.id, depth);
    for (const { node: needed } of needsOf(node)) depths.set(needed, Math.max(depths.get(needed) ?? 0, depth));
  }
  return depths;
}
