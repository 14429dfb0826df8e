import type { Graph, Input, Node, Pass } from '@pie/inferlet/workflow';

/**
 * Lets a component start when the components that it reads from have ended. Together with the prefix cache, this is the baseline that Ayo calls
 * LlamaDistPC. It serves for comparison: the library's own passes also reorder the nodes within components.
 */
export const parallelComponents: Pass = {
  name: 'parallel-components',
  apply(graph) {
    const byId = new Map(graph.nodes.map((node) => [node.id, node]));
    /** For each component, the components that its nodes read from. */
    const sources = new Map<string, Set<string>>();
    for (const node of graph.nodes) {
      const ofComponent = sources.get(node.module) ?? new Set();
      sources.set(node.module, ofComponent);
      const read = neededBy(node).flatMap((id) => componentsOf(id, graph, byId));
      for (const module of read) ofComponent.add(module);
    }
    const waitsFor = ({ module }: Node) => [...(sources.get(module) ?? [])].filter((other) => other !== module);
    // Leave two kinds of nodes unchanged. A node with an empty `after` waits for no component and must not begin to wait: it is an argument, in the
    // first component, or outside of all components. A node of an `ordered` component has side effects, so it keeps its place in the order.
    const nodes = graph.nodes.map((node) =>
      node.after.length === 0 || node.ordered ? node : { ...node, after: waitsFor(node) },
    );
    return { ...graph, nodes };
  },
};

/**
 * Names of the components from which a node's values come: normally the node's own component, `module`. A node outside of all components has the
 * graph's name as `module`; its values come from the components of the nodes that it reads.
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
