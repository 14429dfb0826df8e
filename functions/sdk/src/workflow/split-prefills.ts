import { countOf } from './elementwise.ts';
import {
  type Graph,
  type Guard,
  type Input,
  type Kind,
  keyOf,
  type Node,
  needsOf,
  newId,
  type Ref,
  refsIn,
} from './graph.ts';
import { charactersOfStep, EFFICIENT_TEXTS, Sizes } from './sizes.ts';

/** Kinds of nodes that leave the model no time for an early part. A prefilling takes no time, since its prompt is computed with the next token. */
const INSTANT: ReadonlySet<Kind> = new Set<Kind>([
  ...(['argument', 'fork', 'pick', 'condition', 'aggregate', 'prefetching', 'prefilling', 'searching'] as const),
]);
const NONE: ReadonlySet<string> = new Set();
/** Kinds of nodes that keep their model busy. */
const GENERATING: ReadonlySet<Kind> = new Set<Kind>(['decoding', 'partial-decoding', 'select', 'loop']);
/** Assumed durations of nodes in steps of a model; 1 for other kinds. The true length of a generation is known only afterwards. */
const STEPS: Partial<Record<Kind, number>> = {
  decoding: 8,
  'partial-decoding': 8,
  loop: 8,
  'tool-call': 4,
};
/**
 * Steps of a model that an early part takes besides the steps for its characters. An early part is a device step of its own, and the rest of the
 * prompt must wait for its end. Prompts that wait together take up to two steps, since their early parts come one after another.
 */
const EARLY_STEPS = 2.5;
/** A shorter known text is not worth a device call of its own. */
const MIN_CHARACTERS = 32;

/**
 * Splits prefillings: a partial prefilling computes the existing parts of a prompt while the model would otherwise wait for later parts.
 * Generations before the later parts keep the model busy, so the partial prefilling starts after them. A prompt stays whole where the rest of the
 * wait is no longer than the step that a split costs.
 */
export function splitPrefills(graph: Graph, sizes: Sizes = new Sizes()): Graph {
  const timeline = new Timeline(graph, sizes);
  const used = new Set(graph.nodes.map(({ id }) => id));
  const nodes = graph.nodes.flatMap((node): Node[] => {
    const cuts = node.operation.kind === 'prefilling' && !node.ordered ? cutsOf(node, timeline) : [];
    return cuts.length === 0 ? [node] : split(node, cuts, used);
  });
  return { ...graph, nodes };
}

/** A place to split a prompt. */
interface Cut {
  /** Index of the first part that is left for later. */
  readonly at: number;
  /** Outputs of the model's earlier generations. The earlier parts start once these exist, because the model is then idle. */
  readonly idle: readonly Ref[];
}

function cutsOf(node: Node, timeline: Timeline): Cut[] {
  const cuts: Cut[] = [];
  const known = [...refsIn(node.inputs.context ?? { list: [] }), ...node.when.map(({ test }) => test)];
  let characters = 0;
  for (const [at, part] of partsIn(node).entries()) {
    const refs = refsIn(part);
    const idle = characters >= MIN_CHARACTERS ? timeline.idleBefore(refs, known, node, characters) : undefined;
    if (idle) {
      cuts.push({ at, idle });
      characters = 0;
    }
    known.push(...refs);
    // A text that a node gives counts as long enough.
    characters += 'value' in part && typeof part.value === 'string' ? part.value.length : MIN_CHARACTERS;
  }
  return cuts;
}

const partsIn = ({ inputs: { parts } }: Node): readonly Input[] => (parts && 'list' in parts ? parts.list : []);

function split(node: Node, cuts: readonly Cut[], used: Set<string>): Node[] {
  const parts = partsIn(node);
  const nodes: Node[] = [];
  let { context } = node.inputs;
  let from = 0;
  for (const [i, { at, idle }] of cuts.entries()) {
    const id = newId(`${node.id}<${i}`, used);
    const list = idle.map((ref): Input => ({ from: ref }));
    const inputs = {
      ...(context && { context }),
      parts: { list: parts.slice(from, at) },
      ...(list.length > 0 && { idle: { list } }),
    };
    // The earlier parts wait only for their values and for `idle`.
    nodes.push({
      ...node,
      id,
      inputs,
      after: [],
      operation: { ...node.operation, kind: 'partial-prefilling' } as Node['operation'],
    });
    context = { from: { node: id, port: 'context', type: 'context' } };
    from = at;
  }
  nodes.push({ ...node, inputs: { ...(context && { context }), parts: { list: parts.slice(from) } } });
  return nodes;
}

/** The earliest ends of a graph's nodes, in steps of a model, and the nodes that each waits for. */
class Timeline {
  readonly #nodes = new Map<string, Node>();
  readonly #ends = new Map<string, number>();
  readonly #models = new Map<string, string | undefined>();
  readonly #sizes: Sizes;

  constructor({ nodes }: Graph, sizes: Sizes) {
    this.#sizes = sizes;
    for (const node of nodes) {
      this.#nodes.set(node.id, node);
      this.#ends.set(node.id, this.#endOf(needsOf(node)) + stepsOf(node));
      this.#models.set(node.id, this.#modelOf(node));
    }
  }

  /**
   * Returns the generations that keep `reader`'s model busy before `awaited`, but not before `known`. After them, the model only waits for `awaited`.
   * Returns undefined when this wait is too short to compute an early part of `characters`.
   */
  idleBefore(
    awaited: readonly Ref[],
    known: readonly Ref[],
    reader: Node,
    characters: number,
  ): readonly Ref[] | undefined {
    const end = this.#endOf(awaited);
    const model = this.#models.get(reader.id);
    // This cheap test excludes most prompts, before the slower search for the generations.
    if (!this.#isEnough(end - this.#endOf(known), characters, model)) return undefined;
    const before = this.#ancestors(awaited, this.#ancestors(known));
    const refs: Ref[] = [];
    for (const [id, { operation }] of this.#nodes) {
      if (!before.has(id) || !GENERATING.has(operation.kind) || !this.#mayRunOn(id, model)) continue;
      const ref = this.#endRef(id, reader.when);
      if (!ref) return undefined;
      refs.push(ref);
    }
    return this.#isEnough(end - this.#endOf(refs), characters, model) ? refs : undefined;
  }

  /** True when a model that waits for `steps` can compute `characters` before the wait ends. */
  #isEnough(steps: number, characters: number, model: string | undefined): boolean {
    // Decide without asking for the efficient size, which could not change the result.
    if (steps <= EARLY_STEPS) return false;
    return this.#sizes.choose(
      { kind: 'model', model },
      (tokens) => steps >= EARLY_STEPS + characters / charactersOfStep(tokens),
    );
  }

  /** Ids of the nodes of `refs` and of the nodes that they wait for. Does not follow the nodes in `passed`. */
  #ancestors(refs: readonly Ref[], passed: ReadonlySet<string> = NONE): ReadonlySet<string> {
    const found = new Set<string>();
    const toVisit = refs.map(({ node }) => node);
    for (let id = toVisit.pop(); id !== undefined; id = toVisit.pop()) {
      if (found.has(id) || passed.has(id)) continue;
      found.add(id);
      const node = this.#nodes.get(id);
      if (node) for (const needed of needsOf(node)) toVisit.push(needed.node);
    }
    return found;
  }

  #endOf(refs: readonly Ref[]): number {
    return refs.reduce((latest, { node }) => Math.max(latest, this.#ends.get(node) ?? 0), 0);
  }

  /** The last output of a generation, but not its context, since a read would fork it. Undefined when the generation may be skipped under `when`. */
  #endRef(id: string, when: readonly Guard[]): Ref | undefined {
    const node = this.#nodes.get(id);
    const last = Object.entries(node?.outputs ?? {}).findLast(([, type]) => type !== 'context');
    const isSure = node?.when.every(({ test, is }) =>
      when.some((own) => keyOf(own.test) === keyOf(test) && own.is === is),
    );
    return last && isSure ? { node: id, port: last[0], type: last[1] } : undefined;
  }

  /** True if the node may keep `model` busy. A loop may generate on any model. */
  #mayRunOn(id: string, model: string | undefined): boolean {
    return this.#nodes.get(id)?.operation.kind === 'loop' || this.#models.get(id) === model;
  }

  /** The model of a node's context; undefined for the function's default model. */
  #modelOf({ operation, inputs }: Node): string | undefined {
    if ('model' in operation && operation.model !== undefined) return operation.model;
    const [source] = refsIn(inputs.context ?? inputs.contexts ?? inputs.whenTrue ?? { list: [] });
    return source && this.#models.get(source.node);
  }
}

/** Assumed duration of a node in steps. Counts batches of a fixed size, because a batch of the measured size may take as long as many steps. */
function stepsOf({ operation: { kind }, inputs, each }: Node): number {
  if (INSTANT.has(kind)) return 0;
  const steps = STEPS[kind] ?? 1;
  const count = countOf(each && inputs[each.port]);
  if (count === undefined) return steps;
  const batch = each?.batch ?? EFFICIENT_TEXTS;
  return steps * (count * 2 <= batch ? 0.5 : Math.ceil(count / batch));
}
