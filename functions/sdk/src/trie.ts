/** A prefix tree of choices. Node −1 is the text before all choices. */
export interface Trie {
  readonly tokens: readonly number[];
  /** Parent of each node; parents come earlier in the list. */
  readonly parents: readonly number[];
  /** Number of tokens from the root to each node, the node included. */
  readonly depths: readonly number[];
  /** The path of each choice, from its first token to its last. */
  readonly paths: readonly (readonly number[])[];
}

/** Builds the tree of several lists of tokens. */
export function trieOf(lists: readonly (readonly number[])[]): Trie {
  const tokens: number[] = [];
  const parents: number[] = [];
  const depths: number[] = [];
  const nodesByEdge = new Map<string, number>();
  const paths = lists.map((list) => {
    let parent = -1;
    return list.map((token, depth) => {
      const key = `${parent} ${token}`;
      let node = nodesByEdge.get(key);
      if (node === undefined) {
        node = tokens.push(token) - 1;
        parents.push(parent);
        depths.push(depth + 1);
        nodesByEdge.set(key, node);
      }
      parent = node;
      return node;
    });
  });
  return { tokens, parents, depths, paths };
}

/** Children of each inner node, node −1 first, then in order. */
export function childrenOf(parents: readonly number[]): ReadonlyMap<number, readonly number[]> {
  const children = new Map<number, number[]>([[-1, []]]);
  for (const [node, parent] of parents.entries()) {
    const siblings = children.get(parent);
    if (siblings) siblings.push(node);
    else children.set(parent, [node]);
  }
  return new Map([...children].sort(([a], [b]) => a - b));
}

/**
 * Visibility of a tree of inputs, run-length encoded as in wit/forward.wit: input 0 is the root, input i + 1 node i, whose parent is node
 * `parents[i]` (−1 for the root). Each input sees all `filled` slots before it, its ancestors and itself.
 */
export function treeMask(filled: number, parents: readonly number[]): { runs: Uint32Array; rowLengths: Uint32Array } {
  const width = parents.length + 1;
  const runs: number[] = [];
  const rowLengths: number[] = [];
  const visibleInputs: boolean[] = new Array(width);
  for (let row = 0; row < width; row++) {
    visibleInputs.fill(false);
    for (let input = row; input > 0; input = (parents[input - 1] as number) + 1) visibleInputs[input] = true;
    visibleInputs[0] = true;
    const first = runs.length;
    let visible = true;
    let run = filled;
    runs.push(0);
    for (const sees of visibleInputs) {
      if (sees !== visible) {
        runs.push(run);
        run = 0;
        visible = sees;
      }
      run++;
    }
    runs.push(run);
    rowLengths.push(runs.length - first);
  }
  return { runs: Uint32Array.from(runs), rowLengths: Uint32Array.from(rowLengths) };
}
