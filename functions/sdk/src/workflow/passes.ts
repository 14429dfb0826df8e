import { depthsOf } from './depths.ts';
import { countOf, partsOf, splitNodes } from './elementwise.ts';
import { type Graph, type Input, keyOf, type Node, needsOf, newId, refsIn, sorted } from './graph.ts';
import { chooseByBatch, Sizes } from './sizes.ts';
import { splitPrefills } from './split-prefills.ts';
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
