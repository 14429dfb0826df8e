import { depthsOf } from './depths.ts';
import { countOf, partsOf, splitNodes } from './elementwise.ts';
import { type Graph, type Input, keyOf, type Node, needsOf, newId, refsIn, sorted } from './graph.ts';
import { chooseByBatch, Sizes } from './sizes.ts';
import { splitPrefills } from './split-prefills.ts';
import { checkGraph, validate } from './validate.ts';

/**
 * Turns a graph into another one with the same results. Passes are pure: they do not change the graph that they get. The ideas come from Ayo
 * (Tan et al., *Towards End-to-End Optimization of LLM-based Applications with Ayo*, ASPLOS '25, section 5).
 */
export interface Pass {
  readonly name: string;
  /** @param sizes the efficient batch sizes of engines; by default, none was measured */
  apply(graph: Graph, sizes?: Sizes): Graph;
}

/**
 * Lets a node start as soon as its inputs exist, without waiting for earlier modules. `ordered` components keep their place, and so do texts that
 * the client reads while they are generated: in parallel, they would mix.
 */
export const dependencyPruning: Pass = {
  name: 'dependency-pruning',
  apply(graph) {
    const piping = new Set<string>();
    return mapNodes(graph, (node) => {
      const isPiped = pipes(node);
      const before = isPiped ? [...piping].filter((module) => module !== node.module) : [];
      // Only components are ordered. Nodes outside of components run at any time, with and without this pass.
      if (isPiped && node.module !== graph.name) piping.add(node.module);
      return node.after.length === 0 || node.ordered ? node : { ...node, after: before };
    });
  },
};

/** True for a node that sends the client a text. */
const pipes = ({ operation }: Node): boolean =>
  operation.kind === 'loop'
    ? operation.body.nodes.some(pipes)
    : operation.kind === 'decoding' && operation.pipe === true;

/**
 * Lets the readers of a text's sentences or lines start as soon as their item is complete: the generation hands each item on early, and nodes that
 * treat items one by one are split. A generation stays as it is when its readers take all items in one efficient batch, which takes no longer than
 * the last item alone.
 */
export const decodingPipelining: Pass = {
  name: 'decoding-pipelining',
  apply(graph, sizes = new Sizes()) {
    const early = new Set<string>();
    const gaining = gainingFrom(graph, sizes);
    const nodes = graph.nodes.map((node): Node => {
      const { operation } = node;
      if (operation.kind !== 'decoding' || !gaining.has(node.id)) return node;
      for (const port of Object.keys(node.outputs)) early.add(keyOf({ node: node.id, port }));
      return { ...node, operation: { ...operation, kind: 'partial-decoding' } };
    });
    if (early.size === 0) return graph;
    return splitNodes({ ...graph, nodes }, (node, elements) => {
      const isEarly = refsIn(elements).some((ref) => early.has(keyOf(ref)));
      return isEarly ? stagesOf(node, elements, sizes)?.map((part) => ({ elements: part, early: true })) : undefined;
    });
  },
};

/** Ids of the generations whose items have a reader that can begin before the last item exists. */
function gainingFrom({ nodes }: Graph, sizes: Sizes): ReadonlySet<string> {
  const counts = new Map<string, number>();
  for (const { id, operation, outputs } of nodes) {
    if (operation.kind === 'decoding' && operation.items) counts.set(id, Object.keys(outputs).length);
  }
  const gaining = new Set<string>();
  if (counts.size === 0) return gaining;
  for (const reader of nodes) {
    const read = new Map<string, Set<string>>();
    for (const { node, port } of needsOf(reader)) {
      if (counts.has(node)) read.set(node, (read.get(node) ?? new Set()).add(port));
    }
    if (read.size === 0) continue;
    const elements = reader.each && reader.inputs[reader.each.port];
    const isStaged = elements !== undefined && (stagesOf(reader, elements, sizes)?.length ?? 0) > 1;
    for (const [id, ports] of read) if (isStaged || ports.size < (counts.get(id) ?? 0)) gaining.add(id);
  }
  return gaining;
}

/** The elements of a node, divided into efficient batches; undefined for elements whose number is unknown. */
function stagesOf(node: Node, elements: Input, sizes: Sizes): Input[] | undefined {
  const count = countOf(elements);
  if (count === undefined) return undefined;
  // A batch that is larger than the number of elements leads to the same stages.
  return partsOf(
    elements,
    chooseByBatch(node, sizes, (batch) => Math.min(batch, Math.max(1, count))),
  );
}

/** Runs nodes over many elements in stages of one efficient batch each, so that the next node can begin after the first stage. */
export const stageDecomposition: Pass = {
  name: 'stage-decomposition',
  apply(graph, sizes = new Sizes()) {
    // Stages help when the reader takes stages, too, or when the elements come one after another.
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

/** Computes the known parts of a prompt before the others exist. */
export const prefillingSplit: Pass = { name: 'prefilling-split', apply: splitPrefills };

/** Brings saved contexts to the device at the start, if the nodes that open them wait for other nodes. */
export const contextPrefetch: Pass = {
  name: 'context-prefetch',
  apply(graph) {
    const used = new Set(graph.nodes.map(({ id }) => id));
    const nodes = graph.nodes.flatMap((node): Node[] => {
      const { operation } = node;
      if (operation.kind !== 'cached-context' || (node.after.length === 0 && needsOf(node).length === 0)) return [node];
      const { name, model } = operation;
      const fetch = { kind: 'prefetching', name, model } as const;
      return [
        {
          ...node,
          id: newId(`${node.id}:prefetch`, used),
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
 * Gives each node's depth to the batcher, which then computes the tenant's oldest workflow first, and within a workflow the deepest node
 * (Ayo, section 6, algorithm 2).
 */
export const topologyBatching: Pass = {
  name: 'topology-batching',
  apply(graph) {
    const depths = depthsOf(graph);
    return mapNodes(graph, (node) => ({ ...node, depth: depths.get(node.id) ?? 0 }));
  },
};

/** All passes of the library, in their order. */
export const PASSES: readonly Pass[] = [
  dependencyPruning,
  decodingPipelining,
  stageDecomposition,
  prefillingSplit,
  contextPrefetch,
  topologyBatching,
];

/** Applies passes in turn, inside of loops, too. Checks the result, since users register passes of their own. */
export function optimise(graph: Graph, passes: readonly Pass[] = PASSES, sizes: Sizes = new Sizes()): Graph {
  if (passes.length === 0) return graph;
  const inner = mapNodes(graph, (node) => {
    const { operation } = node;
    if (operation.kind !== 'loop') return node;
    return { ...node, operation: { ...operation, body: optimise(operation.body, passes, sizes) } };
  });
  const result = passes.reduce((before, pass) => applyPass(pass, before, sizes), inner);
  if (passes.every((pass) => PASSES.includes(pass))) return result;
  validate(result);
  return { ...result, nodes: sorted(result.nodes).nodes };
}

function applyPass(pass: Pass, graph: Graph, sizes: Sizes): Graph {
  const made = pass.apply(graph, sizes);
  if (!PASSES.includes(pass)) checkGraph(made, graph, pass.name);
  return made;
}

function mapNodes(graph: Graph, change: (node: Node) => Node): Graph {
  return { ...graph, nodes: graph.nodes.map(change) };
}
