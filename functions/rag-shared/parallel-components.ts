import type { Graph, Input, Node, Pass } from '@pie/inferlet/workflow';

/**
 * Lets a component start when the components that it reads from have ended. Together with the prefix cache, this is the baseline that Ayo calls
 * LlamaDistPC. It serves for comparison; the library's own passes also reorder the nodes within components.
 */
export const parallelComponents: Pass = {
  name: 'parallel-components',
  apply(graph) {
    const byId = new Map(graph.nodes.map((node) => [node.id, node]));
    const after = new Map<string, Set<string>>();
    for (const node of graph.nodes) {
      const read = after.get(node.module) ?? new Set();
      after.set(node.module, read);
      for (const needed of neededBy(node)) for (const module of componentsOf(needed, graph, byId)) read.add(module);
    }
    const waitsFor = ({ module }: Node) => [...(after.get(module) ?? [])].filter((other) => other !== module);
    // A node with an empty `after` waits for no component and must not begin to wait: it is an argument, in the first
    // component, or outside of all components. A node of an `ordered` component keeps its place in the order, for the
    // sake of side effects.
    const nodes = graph.nodes.map((node) =>
      node.after.length === 0 || node.ordered ? node : { ...node, after: waitsFor(node) },
    );
    return { ...graph, nodes };
  },
};

/**
 * Names of the components from which a node's values come. `module` is the name of a node's component, or the graph's
 * name for a node outside of all components. The values of such a node come from the components of the nodes that it
 * reads.
 */
function componentsOf(id: string, graph: Graph, byId: ReadonlyMap<string, Node>): string[] {
  const node = byId.get(id);
  if (!node) return [];
  return node.module === graph.name
    ? neededBy(node).flatMap((needed) => componentsOf(needed, graph, byId))
    : [node.module];
}

const neededBy = ({ inputs, when }: Node): string[] => [
  ...Object.values(inputs).flatMap(readIn),
  ...when.map(({ test }) => test.node),
];

function readIn(input: Input): string[] {
  if ('from' in input) return [input.from.node];
  return 'list' in input ? input.list.flatMap(readIn) : [];
}
