/** A node of a radix tree over token ids, as JSON. The edges from the root to a node spell a prefix of a text. */
export interface TreeNode {
  /** Tokens that lead from the parent to this node; empty for the root. */
  edge: number[];
  children: TreeNode[];
  /** The `clock` of the last insertion whose path has this node. */
  used: number;
  /** True when the text that ends here is saved. A longer saved text below this node serves as well, truncated. */
  saved: boolean;
}

export const emptyTree = (): TreeNode => ({ edge: [], children: [], used: 0, saved: false });

/** Returns the node at which `tokens` end, splitting an edge if needed, and marks all nodes on the path as used at `clock`. */
export function insert(root: TreeNode, tokens: readonly number[], clock: number): TreeNode {
  let node = root;
  node.used = clock;
  for (let at = 0; at < tokens.length; at += node.edge.length) {
    const index = node.children.findIndex(({ edge }) => edge[0] === tokens[at]);
    let child = node.children[index];
    if (child) {
      const { edge } = child;
      const fork = edge.findIndex((token, i) => token !== tokens[at + i]);
      if (fork > 0) {
        // The lower part keeps its object identity: the caller may hold that node from an earlier insert.
        child.edge = edge.slice(fork);
        child = { edge: edge.slice(0, fork), children: [child], used: clock, saved: false };
        node.children[index] = child;
      }
    } else {
      child = { edge: tokens.slice(at), children: [], used: clock, saved: false };
      node.children.push(child);
    }
    child.used = clock;
    node = child;
  }
  return node;
}

/** Tokens from `node` down to the first saved node, depth first. Empty when `node` itself is saved; undefined when no node is. */
export function savedBelow(node: TreeNode): number[] | undefined {
  if (node.saved) return [];
  for (const child of node.children) {
    const rest = savedBelow(child);
    if (rest) return [...child.edge, ...rest];
  }
  return undefined;
}

/** Number of tokens on all edges. */
export const size = (node: TreeNode): number =>
  node.children.reduce((sum, child) => sum + size(child), node.edge.length);

/** Removes leaves, least recently used first, until at most `capacity` tokens are left. @returns the texts of the removed leaves */
export function evict(root: TreeNode, capacity: number): number[][] {
  const evicted: number[][] = [];
  for (let excess = size(root) - capacity; excess > 0; ) {
    let oldest: { node: TreeNode; parent: TreeNode; path: number[] } | undefined;
    const visit = (parent: TreeNode, before: readonly number[]): void => {
      for (const node of parent.children) {
        const path = [...before, ...node.edge];
        if (node.children.length > 0) visit(node, path);
        else if (!oldest || node.used < oldest.node.used) oldest = { node, parent, path };
      }
    };
    visit(root, []);
    if (!oldest) break;
    const { node, parent, path } = oldest;
    parent.children.splice(parent.children.indexOf(node), 1);
    evicted.push(path);
    excess -= node.edge.length;
  }
  return evicted;
}

/** The name under which a text is saved: its length and a 64-bit hash (two FNV-1a hashes). */
export function nameOf(tree: string, tokens: readonly number[]): string {
  const hash = (basis: number): string => {
    let bits = basis;
    for (const token of tokens) bits = Math.imul(bits ^ token, 0x01000193);
    return (bits >>> 0).toString(16).padStart(8, '0');
  };
  return `${tree}/${tokens.length}-${hash(0x811c9dc5)}${hash(0x2f0b4a67)}`;
}
