import { type Graph, type Node, needsOf } from './graph.ts';

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
