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

/** Children of node −1 and of each inner node, in the order of these parents. */
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
 * Attention mask of a tree of inputs, run-length encoded as in wit/forward.wit. Input 0 is the root, and input i + 1 is node i. The parent of
 * node i is node `parents[i]` (−1 for the root). Each input sees all `filled` slots before the tree, its ancestors and itself.
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
    // A row begins with its hidden keys, of which it has none. The visible filled slots begin its second run.
    runs.push(0);
    let visible = true;
    let run = filled;
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
