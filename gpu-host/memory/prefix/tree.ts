import type { PrefixStats } from '../../protocol/host.ts';

/** One full page of a prefix. The parent and the page's token ids identify it. */
export interface PrefixNode<P> {
  readonly tenant: string;
  /** The page before this one, or undefined for the first of a text. */
  readonly parent: PrefixNode<P> | undefined;
  /** Pages from the start of the text to the end of this one. */
  readonly depth: number;
  /** The page's token ids, one per slot. */
  readonly tokens: Uint32Array;
  /** The page that holds the keys and values of `tokens`. */
  readonly page: P;
  /** False once the node left the tree. Lookups and insertions below it then find and add nothing. */
  readonly attached: boolean;
  /**
   * The page in which a text last continued after this one: the page of the newest child, or a later one that `continueIn` named, which need not be
   * full. The tree holds no reference to this page, so the page may have changed or been freed since.
   */
  readonly next: P | undefined;
}

export interface Insertion<P> {
  /** One node per inserted page. `node.page` is another page where the tree had the same tokens already. */
  readonly nodes: readonly PrefixNode<P>[];
  /** The pages that the tree newly holds. */
  readonly added: readonly P[];
}

/** A node with its children and its neighbours in the order of use. */
interface Node<P> extends PrefixNode<P> {
  readonly parent: Node<P> | undefined;
  readonly hash: number;
  attached: boolean;
  next: P | undefined;
  /** Undefined for a leaf. A node that left the tree is a leaf. */
  children: Children<P> | undefined;
  /** The order of use of the page's owner. */
  readonly uses: Uses<P>;
  /** Neighbours in the order of use. */
  older: Node<P> | undefined;
  newer: Node<P> | undefined;
}

/** Children by the hash of their tokens; those with equal hashes share a list. */
type Children<P> = Map<number, Node<P>[]>;

/** The nodes of one owner's pages, in the order of use. */
interface Uses<P> {
  oldest: Node<P> | undefined;
  newest: Node<P> | undefined;
}

/**
 * A radix tree of finished prefixes per tenant, at the granularity of pages: finds the longest run of whole pages whose keys and values
 * exist already (RadixAttention, SGLang, section 3; pages as in vLLM's prefix cache). The tree only knows which pages it holds. The caller
 * counts references: it retains the pages that `insert` added and releases those that an eviction returns.
 *
 * Each page has an owner, whose pages have an order of use of their own: an eviction names the owner that loses pages. Using a node uses its parents
 * right after it, so a child is older than its parent. The oldest node of an owner is therefore a leaf unless another owner's page follows it, and an
 * eviction looks only at the pages in use that are older than the one it evicts.
 */
export class PrefixTree<P extends object, Owner = unknown> {
  readonly pageSize: number;
  readonly #ownerOf: (page: P) => Owner;
  #roots = new Map<string, Children<P>>();
  readonly #uses = new Map<Owner, Uses<P>>();
  #size = 0;
  #lookups = 0;
  #hitTokens = 0;
  #missTokens = 0;
  #evictions = 0;

  /** @param ownerOf returns the owner of a page, which never changes */
  constructor(pageSize: number, ownerOf: (page: P) => Owner) {
    if (!Number.isInteger(pageSize) || pageSize < 1) throw new RangeError(`page size ${pageSize}; at least 1`);
    this.pageSize = pageSize;
    this.#ownerOf = ownerOf;
  }

  /** Pages held. */
  get size(): number {
    return this.#size;
  }

  /**
   * Finds the longest chain of whole pages that hold `tokens` after `parent`, or from the start of a text if `parent` is undefined. The chain has at
   * most `maxPages` pages and becomes the most recently used. All tokens count as missed until `countHits` is called. A parent that left the tree
   * has no pages after it.
   */
  match(
    tenant: string,
    parent: PrefixNode<P> | undefined,
    tokens: Uint32Array,
    maxPages: number = Number.POSITIVE_INFINITY,
  ): readonly PrefixNode<P>[] {
    const nodes = this.#chain(tenant, parent, tokens, maxPages);
    const lastNode = nodes.at(-1);
    if (lastNode) this.#use(lastNode);
    this.#lookups++;
    this.#missTokens += tokens.length;
    return nodes;
  }

  /** Counts `tokens` tokens, which the last `match` counted as missed, as hits. */
  countHits(tokens: number): void {
    this.#hitTokens += tokens;
    this.#missTokens -= tokens;
  }

  /** Finds the same as `match`. Does not change the order of use or the statistics. */
  peek(
    tenant: string,
    parent: PrefixNode<P> | undefined,
    tokens: Uint32Array,
    maxPages: number,
  ): readonly PrefixNode<P>[] {
    return this.#chain(tenant, parent, tokens, maxPages);
  }

  /** Remembers the page in which a text continues after `node`, so that later texts can copy its beginning. */
  continueIn(node: PrefixNode<P>, page: P): void {
    if (node.attached) (node as Node<P>).next = page;
  }

  /**
   * Puts `pages` after `parent`, each with its share of `tokens` (`pages.length × pageSize`). When the tree has the same tokens, it keeps
   * its own page. The chain becomes the most recently used. Inserts nothing after a parent that left the tree.
   */
  insert(tenant: string, parent: PrefixNode<P> | undefined, tokens: Uint32Array, pages: readonly P[]): Insertion<P> {
    if (tokens.length !== pages.length * this.pageSize) {
      throw new RangeError(`${tokens.length} tokens for ${pages.length} pages of ${this.pageSize}`);
    }
    const nodes: Node<P>[] = [];
    const added: P[] = [];
    if (parent && !parent.attached) return { nodes, added };
    let parentNode = parent as Node<P> | undefined;
    for (const [i, page] of pages.entries()) {
      const pageTokens = tokens.subarray(i * this.pageSize, (i + 1) * this.pageSize);
      const children = this.#openChildren(tenant, parentNode);
      let node = find(children, pageTokens);
      if (!node) {
        node = this.#attach(children, tenant, parentNode, pageTokens.slice(), page);
        added.push(page);
      }
      nodes.push(node);
      parentNode = node;
    }
    if (parentNode) this.#use(parentNode);
    return { nodes, added };
  }

  /**
   * Removes leaves of an owner whose pages `canEvict` allows, least recently used first, as long as the caller asks for more. A parent is
   * newer than its children, so that one pass meets every node that becomes a leaf.
   */
  *evictLeaves(owner: Owner, canEvict: (page: P) => boolean): Generator<P, void, void> {
    for (let node = this.#uses.get(owner)?.oldest; node; ) {
      const { newer }: Node<P> = node;
      if (!node.children && canEvict(node.page)) {
        this.#evictions++;
        this.#detach(node);
        yield node.page;
      }
      node = newer;
    }
  }

  /**
   * Use when `evictLeaves` finds nothing: an evictable page can have descendants in use. Removes and returns the owner's least recently used evictable
   * page with all its descendants. Later lookups find none of them, not even those in use.
   */
  evictBlocked(owner: Owner, canEvict: (page: P) => boolean): readonly P[] {
    for (let node = this.#uses.get(owner)?.oldest; node; node = node.newer) {
      if (!canEvict(node.page)) continue;
      const removed = subtree(node);
      for (const each of removed) {
        if (canEvict(each.page)) this.#evictions++;
        this.#detach(each);
      }
      return removed.map((each) => each.page);
    }
    return [];
  }

  /** Removes a page whose content is about to change, with its descendants; counts no eviction. Returns the pages that left now. */
  remove(node: PrefixNode<P>): readonly P[] {
    if (!node.attached) return [];
    const removed = subtree(node as Node<P>);
    for (const each of removed) this.#detach(each);
    return removed.map((each) => each.page);
  }

  stats(): PrefixStats {
    return {
      lookups: this.#lookups,
      hitTokens: this.#hitTokens,
      missTokens: this.#missTokens,
      evictions: this.#evictions,
    };
  }

  /** The pages held, owner by owner, least recently used first. */
  *pages(): Generator<P> {
    for (const { oldest } of this.#uses.values()) for (let node = oldest; node; node = node.newer) yield node.page;
  }

  /** Throws when links, counts or the order of use contradict each other. Walks every node; for tests and idle times. */
  check(): void {
    const seenNodes = new Set<Node<P>>();
    for (const [owner, uses] of this.#uses) {
      if (!uses.oldest) throw new Error('an owner without pages has an order of use');
      let previous: Node<P> | undefined;
      for (let node: Node<P> | undefined = uses.oldest; node; node = node.newer) {
        if (node.older !== previous) throw new Error('the order of use is linked wrongly');
        if (!node.attached) throw new Error('a node that left the tree is still in the order of use');
        if (this.#ownerOf(node.page) !== owner) throw new Error("a page is in another owner's order of use");
        if (node.parent?.uses === uses && seenNodes.has(node.parent))
          throw new Error('a page was used later than the one before it');
        if (node.children?.size === 0) throw new Error('a leaf keeps an empty table of children');
        if (find(this.#childrenOf(node.tenant, node.parent), node.tokens) !== node)
          throw new Error('a node cannot be found');
        seenNodes.add(node);
        previous = node;
      }
      if (uses.newest !== previous) throw new Error('the order of use ends at another node');
    }
    if (seenNodes.size !== this.#size)
      throw new Error(`${seenNodes.size} nodes are in the order of use, ${this.#size} were counted`);
  }

  #chain(tenant: string, parent: PrefixNode<P> | undefined, tokens: Uint32Array, maxPages: number): Node<P>[] {
    const pages = Math.min(Math.floor(tokens.length / this.pageSize), maxPages);
    const nodes: Node<P>[] = [];
    let children = this.#childrenOf(tenant, parent);
    while (nodes.length < pages && children) {
      const start = nodes.length * this.pageSize;
      const node = find(children, tokens.subarray(start, start + this.pageSize));
      if (!node) break;
      nodes.push(node);
      children = node.children;
    }
    return nodes;
  }

  #childrenOf(tenant: string, parent: PrefixNode<P> | undefined): Children<P> | undefined {
    return parent ? (parent as Node<P>).children : this.#roots.get(tenant);
  }

  #openChildren(tenant: string, parent: Node<P> | undefined): Children<P> {
    const existing = this.#childrenOf(tenant, parent);
    if (existing) return existing;
    const children: Children<P> = new Map();
    if (parent) parent.children = children;
    else this.#roots.set(tenant, children);
    return children;
  }

  #attach(children: Children<P>, tenant: string, parent: Node<P> | undefined, tokens: Uint32Array, page: P): Node<P> {
    const hash = hashTokens(tokens);
    const depth = (parent?.depth ?? 0) + 1;
    const owner = this.#ownerOf(page);
    let uses = this.#uses.get(owner);
    if (!uses) {
      uses = { oldest: undefined, newest: undefined };
      this.#uses.set(owner, uses);
    }
    const node: Node<P> = {
      tenant,
      parent,
      depth,
      tokens,
      page,
      hash,
      attached: true,
      next: undefined,
      children: undefined,
      uses,
      older: undefined,
      newer: undefined,
    };
    const siblings = children.get(hash);
    if (siblings) siblings.push(node);
    else children.set(hash, [node]);
    if (parent) parent.next = page;
    append(node);
    this.#size++;
    return node;
  }

  #detach(node: Node<P>): void {
    const children = this.#childrenOf(node.tenant, node.parent) as Children<P>;
    const siblings = (children.get(node.hash) as Node<P>[]).filter((sibling) => sibling !== node);
    if (siblings.length > 0) children.set(node.hash, siblings);
    else children.delete(node.hash);
    if (children.size === 0) {
      if (node.parent) node.parent.children = undefined;
      else this.#roots.delete(node.tenant);
    }
    unlink(node);
    if (!node.uses.oldest) this.#uses.delete(this.#ownerOf(node.page));
    node.attached = false;
    node.next = undefined;
    this.#size--;
  }

  /** Moves the deepest node first, so that each parent ends up newer than its child. */
  #use(deepest: Node<P>): void {
    for (let node: Node<P> | undefined = deepest; node; node = node.parent) {
      if (node === node.uses.newest) continue;
      unlink(node);
      append(node);
    }
  }
}

function append<P>(node: Node<P>): void {
  const { uses } = node;
  node.older = uses.newest;
  if (uses.newest) uses.newest.newer = node;
  else uses.oldest = node;
  uses.newest = node;
}

function unlink<P>(node: Node<P>): void {
  const { uses } = node;
  if (node.older) node.older.newer = node.newer;
  else uses.oldest = node.newer;
  if (node.newer) node.newer.older = node.older;
  else uses.newest = node.older;
  node.older = undefined;
  node.newer = undefined;
}

function find<P>(children: Children<P> | undefined, tokens: Uint32Array): Node<P> | undefined {
  return children?.get(hashTokens(tokens))?.find((node) => sameTokens(node.tokens, tokens));
}

/** A node and its descendants, each after its own descendants. */
function subtree<P>(top: Node<P>): Node<P>[] {
  const nodes = [top];
  for (let i = 0; i < nodes.length; i++) {
    for (const siblings of (nodes[i] as Node<P>).children?.values() ?? []) nodes.push(...siblings);
  }
  return nodes.reverse();
}

/** A cheap 32-bit hash of token ids (the multiply-and-rotate steps of MurmurHash3). Compare the tokens as well: hashes collide. */
export function hashTokens(tokens: Uint32Array): number {
  let hash = tokens.length;
  for (let i = 0; i < tokens.length; i++) {
    const scrambled = Math.imul(tokens[i] as number, 0xcc9e2d51);
    hash ^= Math.imul((scrambled << 15) | (scrambled >>> 17), 0x1b873593);
    hash = (Math.imul((hash << 13) | (hash >>> 19), 5) + 0xe6546b64) | 0;
  }
  return hash;
}

export function sameTokens(a: Uint32Array, b: Uint32Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** The tokens of `first`, then those of `second`. */
export function joined(first: Uint32Array, second: Uint32Array): Uint32Array {
  if (first.length === 0) return second;
  const both = new Uint32Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

/** Number of tokens with which both begin. */
export function commonStart(a: Uint32Array, b: Uint32Array): number {
  const maxCount = Math.min(a.length, b.length);
  let count = 0;
  while (count < maxCount && a[count] === b[count]) count++;
  return count;
}
