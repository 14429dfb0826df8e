import {
  depthsOf,
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
  resultsOf,
  sorted,
  type Type,
} from './graph.ts';
import { charactersOfStep, chooseByBatch, EFFICIENT_TEXTS, Sizes } from './sizes.ts';
import { checkGraph, validate } from './validate.ts';

/**
 * Turns a graph into another graph with the same results. A pass does not change the graph that it gets. The ideas of the passes come from Ayo
 * (Tan et al., *Towards End-to-End Optimization of LLM-based Applications with Ayo*, ASPLOS '25, section 5).
 */
export interface Pass {
  readonly name: string;
  /** @param sizes the measured efficient batch sizes of engines (models and encoders); by default, no size has been measured */
  apply(graph: Graph, sizes?: Sizes): Graph;
}

/**
 * Lets a node start as soon as its inputs exist, without waiting for the end of earlier modules (components of the program). There are two
 * exceptions. Nodes of `ordered` components wait as before. Nodes that send the client a text while they generate it still wait for the earlier
 * modules that do the same: the client would get a mixture of texts that are sent in parallel.
 */
export const dependencyPruning: Pass = {
  name: 'dependency-pruning',
  apply(graph) {
    const pipingModules = new Set<string>();
    return mapNodes(graph, (node) => {
      const isPiping = pipesText(node);
      const after = isPiping ? [...pipingModules].filter((module) => module !== node.module) : [];
      // No node waits for nodes outside of components, with or without this pass. The module of these nodes is the graph itself.
      if (isPiping && node.module !== graph.name) pipingModules.add(node.module);
      return node.after.length === 0 || node.ordered ? node : { ...node, after };
    });
  },
};

/** True for a node that sends the client a text while it generates the text. */
const pipesText = ({ operation }: Node): boolean =>
  operation.kind === 'loop'
    ? operation.body.nodes.some(pipesText)
    : operation.kind === 'decoding' && operation.pipe === true;

/**
 * Lets the readers of a text's items (its sentences or lines) start as soon as their items are complete. For this, the generation becomes a
 * `partial-decoding`, which hands on each complete item, and nodes that treat items one by one are split into stages. A generation stays as it is
 * when each of its readers takes all items in one efficient batch: such a batch takes no longer than the last item would take alone.
 */
export const decodingPipelining: Pass = {
  name: 'decoding-pipelining',
  apply(graph, sizes = new Sizes()) {
    const earlyOutputs = new Set<string>();
    const gaining = gainingGenerations(graph, sizes);
    const nodes = graph.nodes.map((node): Node => {
      const { operation } = node;
      if (operation.kind !== 'decoding' || !gaining.has(node.id)) return node;
      for (const port of Object.keys(node.outputs)) earlyOutputs.add(keyOf({ node: node.id, port }));
      return { ...node, operation: { ...operation, kind: 'partial-decoding' } };
    });
    if (earlyOutputs.size === 0) return graph;
    return splitNodes({ ...graph, nodes }, (node, elements) => {
      const isEarly = refsIn(elements).some((ref) => earlyOutputs.has(keyOf(ref)));
      return isEarly ? stagesOf(node, elements, sizes)?.map((part) => ({ elements: part, early: true })) : undefined;
    });
  },
};

/** Ids of the generations with a reader that can begin before the last item exists, because it reads only some items or reads items in stages. */
function gainingGenerations({ nodes }: Graph, sizes: Sizes): ReadonlySet<string> {
  const itemCounts = new Map<string, number>();
  for (const { id, operation, outputs } of nodes) {
    if (operation.kind === 'decoding' && operation.items) itemCounts.set(id, Object.keys(outputs).length);
  }
  const gaining = new Set<string>();
  if (itemCounts.size === 0) return gaining;
  for (const reader of nodes) {
    const portsRead = new Map<string, Set<string>>();
    for (const { node, port } of needsOf(reader)) {
      if (itemCounts.has(node)) portsRead.set(node, (portsRead.get(node) ?? new Set()).add(port));
    }
    if (portsRead.size === 0) continue;
    const elements = reader.each && reader.inputs[reader.each.port];
    const isStaged = elements !== undefined && (stagesOf(reader, elements, sizes)?.length ?? 0) > 1;
    for (const [id, ports] of portsRead) {
      const readsOnlySome = ports.size < (itemCounts.get(id) ?? 0);
      if (isStaged || readsOnlySome) gaining.add(id);
    }
  }
  return gaining;
}

/** Divides the elements of a node into stages, one efficient batch each. Returns undefined when the number of elements is unknown. */
function stagesOf(node: Node, elements: Input, sizes: Sizes): Input[] | undefined {
  const count = countOf(elements);
  if (count === undefined) return undefined;
  // Limit the batch to the number of elements. A larger batch gives the same single stage, so it must not count as another choice (`Sizes.hold`).
  return partsOf(
    elements,
    chooseByBatch(node, sizes, (batch) => Math.min(batch, Math.max(1, count))),
  );
}

/** Splits nodes that treat many elements into stages of one efficient batch each, so that the next node can begin after the first stage. */
export const stageDecomposition: Pass = {
  name: 'stage-decomposition',
  apply(graph, sizes = new Sizes()) {
    // Stages of a node help in two cases: its reader treats elements one by one, too (`chained`), or its elements are outputs of several nodes and do
    // not all exist at the same time.
    const chained = new Set<string>();
    for (const { each, inputs } of graph.nodes) {
      const elements = each && inputs[each.port];
      if (elements && 'from' in elements) chained.add(elements.from.node);
    }
    return splitNodes(graph, (node, elements) =>
      chained.has(node.id) || refsIn(elements).length > 1
        ? stagesOf(node, elements, sizes)?.map((part) => ({ elements: part, early: false }))
        : undefined,
    );
  },
};

/** Computes the parts of a prompt that exist, while the node still waits for the other parts. */
export const prefillingSplit: Pass = { name: 'prefilling-split', apply: splitPrefills };

/** Brings saved contexts to the device at the start, if the nodes that open them wait for other nodes. */
export const contextPrefetch: Pass = {
  name: 'context-prefetch',
  apply(graph) {
    const usedIds = new Set(graph.nodes.map(({ id }) => id));
    const nodes = graph.nodes.flatMap((node): Node[] => {
      const { operation } = node;
      if (operation.kind !== 'cached-context' || (node.after.length === 0 && needsOf(node).length === 0)) return [node];
      const { name, model } = operation;
      const fetch = { kind: 'prefetching', name, model } as const;
      return [
        {
          ...node,
          id: newId(`${node.id}:prefetch`, usedIds),
          operation: fetch,
          inputs: {},
          outputs: {},
          after: [],
          when: [],
        },
        node,
      ];
    });
    return { ...graph, nodes };
  },
};

/**
 * Sets each node's depth: the length of the longest path from the node to an end of the graph, on which a generation counts as eight nodes. Among a
 * tenant's nodes, the batcher then takes those of the oldest workflow first, and within a workflow the deepest node first (Ayo, section 6,
 * algorithm 2).
 */
export const topologyBatching: Pass = {
  name: 'topology-batching',
  apply(graph) {
    const depths = depthsOf(graph);
    return mapNodes(graph, (node) => ({ ...node, depth: depths.get(node.id) ?? 0 }));
  },
};

/** All passes of the library, in the order in which they are applied. */
export const PASSES: readonly Pass[] = [
  dependencyPruning,
  decodingPipelining,
  stageDecomposition,
  prefillingSplit,
  contextPrefetch,
  topologyBatching,
];

/** Applies the passes in turn, first to the bodies of loops and then to the graph. Checks the results of passes that users have written. */
export function optimise(graph: Graph, passes: readonly Pass[] = PASSES, sizes: Sizes = new Sizes()): Graph {
  if (passes.length === 0) return graph;
  const withOptimisedLoops = mapNodes(graph, (node) => {
    const { operation } = node;
    if (operation.kind !== 'loop') return node;
    return { ...node, operation: { ...operation, body: optimise(operation.body, passes, sizes) } };
  });
  const result = passes.reduce((current, pass) => applyPass(pass, current, sizes), withOptimisedLoops);
  if (passes.every((pass) => PASSES.includes(pass))) return result;
  validate(result);
  return { ...result, nodes: sorted(result.nodes).nodes };
}

function applyPass(pass: Pass, graph: Graph, sizes: Sizes): Graph {
  const result = pass.apply(graph, sizes);
  if (!PASSES.includes(pass)) checkGraph(result, graph, pass.name);
  return result;
}

function mapNodes(graph: Graph, change: (node: Node) => Node): Graph {
  return { ...graph, nodes: graph.nodes.map(change) };
}

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
function splitPrefills(graph: Graph, sizes: Sizes = new Sizes()): Graph {
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

/** Types whose values are lists. The joined lists of a node's stages are the node's list. */
const LISTS: ReadonlySet<Type> = new Set<Type>(['texts', 'vectors', 'numbers', 'list']);

/** One stage of a node: its elements, as the input of the node's elementwise port. */
export interface Stage {
  readonly elements: Input;
  /**
   * True when the elements exist before the module that makes them has ended. The stage then does not wait for the modules in `after`, unless the
   * node is `ordered`.
   */
  readonly early: boolean;
}

/**
 * Splits nodes that treat their elements one by one into stages. Nodes that read the elements of a split node one by one are split in the same
 * way. For all other readers, an aggregate with the node's own id joins the stages.
 *
 * @param stagesOf the stages of a node whose elements come from no split node; undefined leaves the node whole
 */
function splitNodes(graph: Graph, stagesOf: (node: Node, elements: Input) => readonly Stage[] | undefined): Graph {
  /** Maps the key of a split node's output to the outputs of its stages. Their lists, joined in this order, are the node's output. */
  const staged = new Map<string, { readonly refs: readonly Ref[]; readonly early: boolean }>();
  const joins = new Set<string>();
  const used = new Set(graph.nodes.map(({ id }) => id));
  const nodes: Node[] = [];
  for (const node of graph.nodes) {
    const stages = stagesFor(node, staged, stagesOf);
    if (!stages || stages.length < 2 || !Object.values(node.outputs).every((type) => LISTS.has(type))) {
      nodes.push(node);
      continue;
    }
    const port = node.each?.port as string;
    const ids = stages.map((_, i) => newId(`${node.id}[${i}]`, used));
    for (const [i, { elements, early }] of stages.entries()) {
      const inputs = { ...node.inputs, [port]: elements };
      nodes.push({ ...node, id: ids[i] as string, inputs, after: early && !node.ordered ? [] : node.after });
    }
    for (const [name, type] of Object.entries(node.outputs)) {
      const refs = ids.map((id) => ({ node: id, port: name, type }));
      staged.set(keyOf({ node: node.id, port: name }), { refs, early: stages.some(({ early }) => early) });
    }
    nodes.push(joinOf(node, ids));
    joins.add(node.id);
  }
  return { ...graph, nodes: withoutUnread(nodes, joins, graph) };
}

function stagesFor(
  node: Node,
  staged: ReadonlyMap<string, { readonly refs: readonly Ref[]; readonly early: boolean }>,
  stagesOf: (node: Node, elements: Input) => readonly Stage[] | undefined,
): readonly Stage[] | undefined {
  const elements = node.each && node.inputs[node.each.port];
  if (!elements) return undefined;
  const source = 'from' in elements ? staged.get(keyOf(elements.from)) : undefined;
  return source ? source.refs.map((from) => ({ elements: { from }, early: source.early })) : stagesOf(node, elements);
}

/** The node that joins the stages of a node under its id. */
function joinOf({ id, module, outputs, after, ordered, when }: Node, ids: readonly string[]): Node {
  const names = Object.keys(outputs);
  const inputs = Object.fromEntries(
    Object.entries(outputs).map(([port, type]) => [
      port,
      { list: ids.map((node) => ({ from: { node, port, type } })) },
    ]),
  );
  const call = (lists: Readonly<Record<string, readonly (readonly unknown[])[]>>) => {
    const [only] = names.map((name) => (lists[name] ?? []).flat());
    return names.length === 1 ? only : Object.fromEntries(names.map((name) => [name, (lists[name] ?? []).flat()]));
  };
  const operation = { kind: 'aggregate', name: 'concat', call } as const;
  return { id, module, outputs, after, ...(ordered && { ordered }), when, operation, inputs, retries: 0 };
}

/** Leaves out the joins that have no reader. */
function withoutUnread(nodes: readonly Node[], joins: ReadonlySet<string>, graph: Graph): Node[] {
  const read = new Set(resultsOf(graph).map((ref) => ref.node));
  for (const { inputs } of nodes)
    for (const input of Object.values(inputs)) for (const ref of refsIn(input)) read.add(ref.node);
  return nodes.filter(({ id }) => !joins.has(id) || read.has(id));
}

/** Number of elements; undefined when only a run of the graph gives the list. */
function countOf(elements: Input | undefined): number | undefined {
  if (!elements || 'from' in elements) return undefined;
  if ('list' in elements) return elements.list.length;
  return Array.isArray(elements.value) ? elements.value.length : undefined;
}

/** A list of known length in parts of at most `size` elements; undefined for a list that a node gives. */
function partsOf(elements: Input, size: number): Input[] | undefined {
  if ('list' in elements) return slicesOf(elements.list, size).map((list) => ({ list }));
  if (!('value' in elements && Array.isArray(elements.value))) return undefined;
  return slicesOf(elements.value as unknown[], size).map((value) => ({ value }));
}

function slicesOf<T>(all: readonly T[], size: number): T[][] {
  const slices: T[][] = [];
  for (let at = 0; at < all.length; at += size) slices.push(all.slice(at, at + size));
  return slices;
}
