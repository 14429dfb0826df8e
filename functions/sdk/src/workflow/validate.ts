import { InferletError } from '../errors.ts';
import {
  type Graph,
  type Guard,
  keyOf,
  type Node,
  needsOf,
  type Ref,
  refsIn,
  resultsOf,
  sorted,
  type Type,
} from './graph.ts';

/**
 * Checks that a graph can run: unique ids, outputs that exist and have the type that their readers expect, no cycle, and no value that is
 * read where its node may have been skipped. Throws `invalid-argument` with the place.
 */
export function validate(graph: Graph): void {
  const nodes = new Map<string, Node>();
  const keys = new Set<string>();
  for (const node of graph.nodes) {
    if (nodes.has(node.id)) fail(graph, `Two nodes have the id "${node.id}".`);
    nodes.set(node.id, node);
    for (const port of Object.keys(node.outputs)) {
      const key = keyOf({ node: node.id, port });
      if (keys.has(key)) fail(graph, `Two outputs are "${key}": give a node, or a value of a loop, another name.`);
      keys.add(key);
    }
  }
  for (const node of graph.nodes) {
    for (const ref of needsOf(node)) checkRef(graph, nodes, ref, `Node "${node.id}"`);
    for (const [name, input] of Object.entries(node.inputs)) {
      const when = guardsOf(node, name);
      for (const ref of refsIn(input)) checkGuards(graph, nodes.get(ref.node), { id: node.id, when });
    }
    if (!(Number.isInteger(node.retries) && node.retries >= 0)) {
      fail(graph, `Node "${node.id}" cannot be retried ${node.retries} times: give a whole number, 0 or more.`);
    }
    if (node.each && !(node.each.port in node.inputs)) {
      fail(graph, `Node "${node.id}" has no input "${node.each.port}" to treat one by one.`);
    }
    if (node.each?.batch !== undefined && !(node.each.batch >= 1)) {
      fail(graph, `Node "${node.id}" has batches of ${node.each.batch} elements: give 1 or more.`);
    }
    if (node.operation.kind === 'loop') validate(node.operation.body);
  }
  for (const ref of resultsOf(graph)) {
    checkRef(graph, nodes, ref, 'The result');
    checkGuards(graph, nodes.get(ref.node), { id: 'the result', when: [] });
  }
  const { cycle } = sorted(graph.nodes);
  if (cycle.length > 0) fail(graph, `Nodes wait for each other: ${[...cycle, cycle[0]].join(' → ')}.`);
}

/** Throws unless a user's pass has returned a graph whose results have the same names as those of the graph `before`. */
export function checkGraph(made: unknown, before: Graph, pass: string): void {
  const { name, nodes, outputs }: Partial<Graph> = isObject(made) ? made : {};
  const areNodes = Array.isArray(nodes) && Array.from(nodes).every(isNode);
  if (typeof name !== 'string' || !areNodes || !isObject(outputs) || !Object.values(outputs).every(isInput)) {
    throw new InferletError(
      'invalid-argument',
      `The pass "${pass}" must return a graph: a name, nodes with all their members, and outputs. It returned ${shown(made)}.`,
    );
  }
  const [given, wanted] = [outputs, before.outputs].map((results) => Object.keys(results).sort().join(', '));
  if (given === wanted) return;
  const text = `The pass "${pass}" must keep the results of "${before.name}": ${wanted || 'none'}. Its graph gives: ${given || 'none'}.`;
  throw new InferletError('invalid-argument', text);
}

function isInput(input: unknown): boolean {
  if (!isObject(input)) return false;
  const { from, list }: { readonly from?: unknown; readonly list?: unknown } = input;
  if ('from' in input) return isObject(from);
  return 'list' in input ? Array.isArray(list) && Array.from(list).every(isInput) : 'value' in input;
}

function isNode(node: unknown): boolean {
  const { id, operation, inputs, outputs, after, when }: Partial<Node> = isObject(node) ? node : {};
  const areObjects = [operation, inputs, outputs].every(isObject);
  if (typeof id !== 'string' || !areObjects || !Array.isArray(after) || !Array.isArray(when)) return false;
  return Object.values(inputs as object).every(isInput) && Array.from(when).every((guard) => isObject(guard?.test));
}

/** Throws when a value does not have its declared type. The check is needed because functions of users make some values. */
export function checkValue(value: unknown, type: Type, { id }: Pick<Node, 'id'>, port: string): void {
  if (FITS[type](value)) return;
  throw new InferletError(
    'invalid-argument',
    `Node "${id}" must give "${port}" as ${type}, and gave ${shown(value)}: correct its function or the declared type.`,
  );
}

/** Throws when the input has no value of an argument's type. */
export function checkArgument(value: unknown, type: Type, name: string): void {
  if (FITS[type](value)) return;
  throw new InferletError('invalid-argument', `The input must have "${name}" as ${type}, and has ${shown(value)}.`);
}

function shown(value: unknown): string {
  if (value === null) return 'null';
  if (value instanceof Promise) return 'a promise';
  return Array.isArray(value) ? 'a list' : typeof value;
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;

const FITS: Readonly<Record<Type, (value: unknown) => boolean>> = {
  text: (value) => typeof value === 'string',
  texts: (value) => Array.isArray(value) && value.every((each) => typeof each === 'string'),
  vector: (value) => value instanceof Float32Array,
  vectors: (value) => Array.isArray(value) && value.every((each) => each instanceof Float32Array),
  number: (value) => typeof value === 'number',
  numbers: (value) => Array.isArray(value) && value.every((each) => typeof each === 'number'),
  flag: (value) => typeof value === 'boolean',
  image: (value) => value instanceof Uint8Array,
  json: (value) => value !== undefined,
  list: (value) => Array.isArray(value),
  context: isObject,
};

function checkRef(graph: Graph, nodes: ReadonlyMap<string, Node>, ref: Ref, reader: string): void {
  const node = nodes.get(ref.node);
  if (!node) fail(graph, `${reader} reads "${keyOf(ref)}", but there is no node "${ref.node}".`);
  const type = node.outputs[ref.port];
  if (type === undefined) {
    const ports = Object.keys(node.outputs).join(', ') || 'none';
    fail(graph, `${reader} reads "${keyOf(ref)}", but the outputs of "${ref.node}" are: ${ports}.`);
  }
  if (type !== ref.type) fail(graph, `${reader} reads "${keyOf(ref)}" as ${ref.type}, but it is ${type}.`);
}

/** The guards under which a node reads an input. A condition reads the value of a branch only if its test chooses that branch. */
function guardsOf({ operation, inputs, when }: Node, name: string): readonly Guard[] {
  if (operation.kind !== 'condition' || name === 'test' || !inputs.test) return when;
  const is = name === 'whenTrue';
  return [...when, ...refsIn(inputs.test).map((test) => ({ test: test as Ref<'flag'>, is }))];
}

function checkGuards(graph: Graph, source: Node | undefined, reader: Pick<Node, 'id' | 'when'>): void {
  for (const guard of source?.when ?? []) {
    if (reader.when.some((own) => isSame(own, guard))) continue;
    fail(
      graph,
      `"${reader.id}" reads "${source?.id}", which runs only if "${keyOf(guard.test)}" is ${guard.is}: join both cases with a condition.`,
    );
  }
}

const isSame = (one: Guard, other: Guard): boolean => keyOf(one.test) === keyOf(other.test) && one.is === other.is;

function fail(graph: Graph, text: string): never {
  throw new InferletError('invalid-argument', `The workflow "${graph.name}" cannot run. ${text}`);
}
