import { PagePrefix, treeTenant } from './identity.ts';
import { type Page, unfillSlot } from './pool.ts';
import { joined } from './prefix/tokens.ts';
import type { PrefixNode, PrefixTree } from './prefix/tree.ts';
import type { ContextPages, Mapping, PageSpace } from './space.ts';
import { textKeys } from './text-keys.ts';

/** An out-page that a page of the tree replaces. */
export interface Replacement {
  readonly room: Mapping;
  /** The page to put back; undefined for an empty page. */
  readonly former: Page | undefined;
  /** True when a place in the tenant's quota is reserved, because the tenant holds a page fewer meanwhile. */
  readonly reserved: boolean;
}

/** Keys and values copied from another page into the first slots of an empty one. */
export interface CopiedPart {
  readonly room: Mapping;
  readonly tokens: number;
}

/**
 * A call over a plain text from position 0 on, whose pages can be found by their tokens. Its first inputs may come from the prefix tree,
 * and the pages that it fills go there (RadixAttention, SGLang, section 3). Pages of a call that is cut go there as soon as they are computed.
 */
export class PrefixRun {
  /** Inputs whose keys and values were mapped from the tree. The call computes the remaining inputs, over `context`. */
  readonly taken: number;
  /** The pages before the remaining inputs. They replace the call's in-pages. */
  readonly context: ContextPages;
  readonly #space: PageSpace;
  readonly #tree: PrefixTree<Page>;
  readonly #adapter: string | undefined;
  /** The call's out-pages, which follow the text's full pages. */
  readonly #rooms: readonly Mapping[];
  /** Tokens whose slots are filled or reserved. */
  #length: number;
  /** Number of pages offered to the tree. */
  #offered: number;
  /** Out-pages that pages of the tree replace; emptied by `commit` or `revert`. */
  #replaced: readonly Replacement[];
  /** The page after the replaced ones, when its beginning was copied; undefined after `commit` or `revert`. */
  #copied: CopiedPart | undefined;
  /** True when the call begins amid a page. */
  readonly #beginsInside: boolean;
  /** Pages that others may hold although the call can still fail. */
  readonly #given = new Set<Page>();

  constructor(
    space: PageSpace,
    tree: PrefixTree<Page>,
    text: {
      readonly adapter: string | undefined;
      readonly rooms: readonly Mapping[];
      readonly length: number;
      readonly taken: number;
      readonly context: ContextPages;
      readonly replaced: readonly Replacement[];
      readonly copied: CopiedPart | undefined;
      readonly beginsInside: boolean;
    },
  ) {
    this.#replaced = text.replaced;
    this.#copied = text.copied;
    this.#beginsInside = text.beginsInside;
    this.taken = text.taken;
    this.context = text.context;
    this.#space = space;
    this.#tree = tree;
    this.#adapter = text.adapter;
    this.#rooms = text.rooms;
    this.#length = text.length;
    // A copy is the call's own page, even one of a whole page that left the tree: it is offered, and given, with those that follow.
    this.#offered = Math.floor((text.length - (text.copied?.tokens ?? 0)) / space.pool.pageSize);
  }

  /** Records the tokens of the next inputs, whose slots were just filled. `unfillSlot` undoes this as well. */
  reserve(tokens: Uint32Array): void {
    const { pool, owner } = this.#space;
    const { pageSize } = pool;
    for (const token of tokens) {
      const slot = this.#length % pageSize;
      const at = (this.#length - slot) / pageSize;
      const page = this.#page(at);
      if (!page) throw new Error('more inputs than the call has');
      if (slot === 0) page.prefix = new PagePrefix(owner.tenant, this.#adapter, this.#page(at - 1)?.prefix, pageSize);
      const { prefix } = page;
      if (prefix?.known !== slot) throw new Error('a page’s tokens do not follow each other');
      prefix.tokens[slot] = token;
      prefix.known = slot + 1;
      this.#length++;
    }
  }

  /** True when others may hold the page: it keeps its slots even when the call fails, and `revert` maps an empty page in its place. */
  hasGiven(page: Page): boolean {
    return this.#given.has(page);
  }

  /** Puts the out-pages back after the reserved slots were unfilled, except those of given pages. Does nothing after `commit`. */
  revert(): void {
    const copied = this.#copied;
    if (copied && !this.#given.has(copied.room.page))
      for (let slot = copied.tokens - 1; slot >= 0; slot--) unfillSlot(copied.room.page, slot);
    for (const room of this.#rooms) if (this.#given.has(room.page)) mapEmpty(this.#space, room);
    putBack(this.#space, this.#replaced);
    this.#settle();
  }

  /** Gives the full pages so far to the tree although the call has inputs left: others need not compute these. */
  give(): void {
    // A begun page gets its former content back when the call fails, so it cannot be given, nor can any page behind it.
    if (this.#beginsInside) return;
    const { pageSize } = this.#space.pool;
    const first = this.#offered;
    this.#offer();
    for (let at = first; (at + 1) * pageSize <= this.#length; at++) {
      const page = this.#page(at);
      if (page) this.#given.add(page);
    }
  }

  /** Makes the reserved inputs final once they are computed (or were taken): their full pages go to the tree. */
  commit(): void {
    for (const { former, reserved } of this.#replaced) {
      if (reserved) this.#space.limits.unreserve();
      if (former) this.#space.letGo(former);
    }
    this.#settle();
    const node = this.#offer();
    const { pageSize } = this.#space.pool;
    const open = this.#length % pageSize === 0 ? undefined : this.#page(Math.floor(this.#length / pageSize));
    if (node && open) this.#tree.continueIn(node, open);
  }

  #settle(): void {
    this.#replaced = [];
    this.#copied = undefined;
    this.#given.clear();
  }

  /** Marks the reserved inputs as computed and puts their full pages in the tree. @returns the node of the last full page, if known */
  #offer(): PrefixNode<Page> | undefined {
    const { pageSize } = this.#space.pool;
    const full = Math.floor(this.#length / pageSize);
    for (let at = this.#offered; at * pageSize < this.#length; at++) {
      const prefix = this.#page(at)?.prefix;
      // A later call of the batch may have reserved more of the page.
      if (prefix) prefix.computed = Math.max(prefix.computed, Math.min(pageSize, this.#length - at * pageSize));
    }
    if (full === this.#offered) return this.#page(full - 1)?.prefix?.node;
    this.#offered = full;
    return plant(this.#space, this.#tree, full, (at) => this.#page(at));
  }

  /** Keys of the whole pages that the call computes next: `tokens` are its inputs from the next one on. None for a call that gives no page. */
  keysAhead(tokens: Uint32Array): readonly number[] {
    if (this.#beginsInside) return [];
    const { pageSize } = this.#space.pool;
    const at = Math.floor(this.#length / pageSize);
    const begun = this.#page(at)?.prefix?.tokens.subarray(0, this.#length % pageSize) ?? new Uint32Array(0);
    return textKeys(this.#page(at - 1)?.prefix, joined(begun, tokens), pageSize);
  }

  /** Keeps the known text for the next call that continues it. Call when this call is done. */
  keep(): void {
    const { text } = this.context;
    for (const room of this.#rooms) if (!text.add(room)) break;
    this.#space.keepText(text);
  }

  #page(at: number): Page | undefined {
    const { mappings } = this.context.text;
    return (at < mappings.length ? mappings[at] : this.#rooms[at - mappings.length])?.page;
  }
}

/** Undoes replacements. */
export function putBack(space: PageSpace, replaced: readonly Replacement[]): void {
  for (const { room, former, reserved } of replaced) {
    if (reserved) space.limits.unreserve();
    if (former) {
      space.remap(room, former);
      space.letGo(former);
    } else mapEmpty(space, room);
  }
}

function mapEmpty(space: PageSpace, room: Mapping): void {
  const empty = space.pool.blank();
  space.remap(room, empty);
  space.pool.release(empty);
}

/** Puts the first `count` full pages of a text in the tree, up to the first uncomputed one. @returns the node of the last */
export function plant(
  space: PageSpace,
  tree: PrefixTree<Page>,
  count: number,
  pageAt: (at: number) => Page | undefined,
): PrefixNode<Page> | undefined {
  // A page in the tree has been computed, and so has every page before it, so search a long text from its end.
  let missing = count;
  while (missing > 0 && !pageAt(missing - 1)?.prefix?.node?.attached) missing--;
  const parent = pageAt(missing - 1)?.prefix?.node;
  const fresh: Page[] = [];
  for (let at = missing; at < count; at++) {
    const page = pageAt(at);
    if (!page || !isComputed(page)) break;
    fresh.push(page);
  }
  if (fresh.length === 0) return parent;
  const { pageSize } = space.pool;
  const tokens = new Uint32Array(fresh.length * pageSize);
  for (const [i, { prefix }] of fresh.entries()) if (prefix) tokens.set(prefix.tokens, i * pageSize);
  const tenant = treeTenant(space.owner.tenant, fresh[0]?.prefix?.adapter);
  const { nodes, added } = tree.insert(tenant, parent, tokens, fresh);
  for (const page of added) space.pool.adopt(page);
  for (const [i, { prefix }] of fresh.entries()) if (prefix) prefix.node = nodes[i];
  return nodes.at(-1);
}

/** True when all of a full page is computed, and not merely reserved. */
export function isComputed({ prefix }: Page): boolean {
  return prefix !== undefined && prefix.computed === prefix.tokens.length;
}
