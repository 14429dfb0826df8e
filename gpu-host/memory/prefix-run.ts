import { PagePrefix, treeTenant } from './identity.ts';
import { type Page, unfillSlot } from './pool.ts';
import { joined } from './prefix/tokens.ts';
import type { PrefixNode, PrefixTree } from './prefix/tree.ts';
import type { ContextPages, Mapping, PageSpace } from './space.ts';
import { textKeys } from './text-keys.ts';

/** An out-page of a call, mapped by `room`, in whose place the call uses a page of the prefix tree. */
export interface Replacement {
  readonly room: Mapping;
  /**
   * The page that a failed call gets back: the former page if it has tokens, or a blank page that holds the former
   * one's place in the limits. Undefined when the call can get a new empty page then.
   */
  readonly former: Page | undefined;
  /** True when the replacement leaves the tenant with one page fewer, and the quota for that page is reserved in case the call fails. */
  readonly reserved: boolean;
}

/** Keys and values copied from another page into the first slots of the empty out-page that `room` maps. */
export interface CopiedPart {
  readonly room: Mapping;
  readonly tokens: number;
}

/**
 * One call's use of the prefix tree (RadixAttention, SGLang, section 3). The call is over a plain text from position 0 on, whose pages can be found
 * by their tokens. Keys and values of its first inputs may come from the tree. The pages that it fills go into the tree, after each part when
 * the call is computed in parts.
 */
export class PrefixRun {
  /** Inputs whose keys and values came from the tree, mapped or copied. The call computes the remaining inputs, over `context`. */
  readonly cachedInputs: number;
  /** The pages before the remaining inputs. They replace the call's in-pages. */
  readonly context: ContextPages;
  readonly #space: PageSpace;
  readonly #tree: PrefixTree<Page>;
  readonly #adapter: string | undefined;
  /** The mappings of the call's out-pages, which follow the text's full pages. */
  readonly #rooms: readonly Mapping[];
  /** Tokens of the text, up to the last filled or reserved slot. */
  #textLength: number;
  /** Number of pages offered to the tree. */
  #offeredPages: number;
  /** Out-pages that pages of the tree replace; emptied by `commit` or `revert`. */
  #replacements: readonly Replacement[];
  /** The page after the replaced ones, when its beginning was copied; undefined after `commit` or `revert`. */
  #copiedPart: CopiedPart | undefined;
  /** True when the call begins inside a page that no page of the tree replaced. */
  readonly #beginsInside: boolean;
  /** Pages that `give` put in the tree: others may hold them although the call can still fail. */
  readonly #givenPages = new Set<Page>();

  constructor(
    space: PageSpace,
    tree: PrefixTree<Page>,
    text: {
      readonly adapter: string | undefined;
      readonly rooms: readonly Mapping[];
      readonly length: number;
      readonly cachedInputs: number;
      readonly context: ContextPages;
      readonly replaced: readonly Replacement[];
      readonly copied: CopiedPart | undefined;
      readonly beginsInside: boolean;
    },
  ) {
    this.#replacements = text.replaced;
    this.#copiedPart = text.copied;
    this.#beginsInside = text.beginsInside;
    this.cachedInputs = text.cachedInputs;
    this.context = text.context;
    this.#space = space;
    this.#tree = tree;
    this.#adapter = text.adapter;
    this.#rooms = text.rooms;
    this.#textLength = text.length;
    // A copied part lies on the call's own page, even when it fills that page: the page is offered, and given, with those that follow.
    this.#offeredPages = Math.floor((text.length - (text.copied?.tokens ?? 0)) / space.pool.pageSize);
  }

  /** Records the tokens of the next inputs, whose slots were just filled. `unfillSlot` undoes this as well. */
  reserve(tokens: Uint32Array): void {
    const { pool, owner } = this.#space;
    const { pageSize } = pool;
    for (const token of tokens) {
      const slot = this.#textLength % pageSize;
      const index = (this.#textLength - slot) / pageSize;
      const page = this.#page(index);
      if (!page) throw new Error('more inputs than the call has');
      if (slot === 0)
        page.prefix = new PagePrefix(owner.tenant, this.#adapter, this.#page(index - 1)?.prefix, pageSize);
      const { prefix } = page;
      if (prefix?.known !== slot) throw new Error('a page’s tokens do not follow each other');
      prefix.tokens[slot] = token;
      prefix.known = slot + 1;
      this.#textLength++;
    }
  }

  /** True for a page that `give` put in the tree: it keeps its slots even when the call fails, and `revert` maps an empty page in its place. */
  hasGiven(page: Page): boolean {
    return this.#givenPages.has(page);
  }

  /**
   * Puts the out-pages of a failed call back. Call it once the reserved slots are unfilled; slots of given pages stay
   * filled. Does nothing after `commit`.
   */
  revert(): void {
    const copiedPart = this.#copiedPart;
    if (copiedPart && !this.#givenPages.has(copiedPart.room.page))
      for (let slot = copiedPart.tokens - 1; slot >= 0; slot--) unfillSlot(copiedPart.room.page, slot);
    for (const room of this.#rooms) if (this.#givenPages.has(room.page)) mapEmpty(this.#space, room);
    putBack(this.#space, this.#replacements);
    this.#settle();
  }

  /** Gives the full pages so far to the tree although the call has inputs left: others need not compute these. */
  give(): void {
    // A begun page gets its former content back when the call fails, so it cannot be given, nor can any page behind it.
    if (this.#beginsInside) return;
    const { pageSize } = this.#space.pool;
    const firstPage = this.#offeredPages;
    this.#offer();
    for (let index = firstPage; (index + 1) * pageSize <= this.#textLength; index++) {
      const page = this.#page(index);
      if (page) this.#givenPages.add(page);
    }
  }

  /** Makes the reserved inputs final once they are computed (or were taken): their full pages go to the tree. */
  commit(): void {
    for (const { former, reserved } of this.#replacements) {
      if (reserved) this.#space.limits.unreserve();
      if (former) this.#space.letGo(former);
    }
    this.#settle();
    const node = this.#offer();
    const { pageSize } = this.#space.pool;
    const openPage =
      this.#textLength % pageSize === 0 ? undefined : this.#page(Math.floor(this.#textLength / pageSize));
    if (node && openPage) this.#tree.continueIn(node, openPage);
  }

  #settle(): void {
    this.#replacements = [];
    this.#copiedPart = undefined;
    this.#givenPages.clear();
  }

  /** Marks the reserved inputs as computed and puts their full pages in the tree. @returns the node of the last full page, if known */
  #offer(): PrefixNode<Page> | undefined {
    const { pageSize } = this.#space.pool;
    const fullPages = Math.floor(this.#textLength / pageSize);
    for (let index = this.#offeredPages; index * pageSize < this.#textLength; index++) {
      const prefix = this.#page(index)?.prefix;
      // A later call of the batch may have reserved more of the page.
      if (prefix) prefix.computed = Math.max(prefix.computed, Math.min(pageSize, this.#textLength - index * pageSize));
    }
    if (fullPages === this.#offeredPages) return this.#page(fullPages - 1)?.prefix?.node;
    this.#offeredPages = fullPages;
    return plant(this.#space, this.#tree, fullPages, (at) => this.#page(at));
  }

  /** Keys of the whole pages that the call computes next; none for a call that gives no page. @param tokens its inputs from the next one on */
  keysAhead(tokens: Uint32Array): readonly number[] {
    if (this.#beginsInside) return [];
    const { pageSize } = this.#space.pool;
    const index = Math.floor(this.#textLength / pageSize);
    const begunTokens =
      this.#page(index)?.prefix?.tokens.subarray(0, this.#textLength % pageSize) ?? new Uint32Array(0);
    return textKeys(this.#page(index - 1)?.prefix, joined(begunTokens, tokens), pageSize);
  }

  /** Keeps the known text for the next call that continues it. Call when this call is done. */
  keep(): void {
    const { text } = this.context;
    for (const room of this.#rooms) if (!text.add(room)) break;
    this.#space.keepText(text);
  }

  #page(index: number): Page | undefined {
    const { mappings } = this.context.text;
    return (index < mappings.length ? mappings[index] : this.#rooms[index - mappings.length])?.page;
  }
}

/** Undoes replacements. */
export function putBack(space: PageSpace, replacements: readonly Replacement[]): void {
  for (const { room, former, reserved } of replacements) {
    if (reserved) space.limits.unreserve();
    if (former) {
      space.remap(room, former);
      space.letGo(former);
    } else mapEmpty(space, room);
  }
}

function mapEmpty(space: PageSpace, room: Mapping): void {
  const emptyPage = space.pool.blank(space.account);
  space.remap(room, emptyPage);
  space.pool.release(emptyPage);
}

/** Puts the first `count` full pages of a text in the tree, up to the first uncomputed one. @returns the node of the last */
export function plant(
  space: PageSpace,
  tree: PrefixTree<Page>,
  count: number,
  pageAt: (at: number) => Page | undefined,
): PrefixNode<Page> | undefined {
  // A page in the tree has been computed, and so has every page before it, so search a long text from its end.
  let firstMissing = count;
  while (firstMissing > 0 && !pageAt(firstMissing - 1)?.prefix?.node?.attached) firstMissing--;
  const parent = pageAt(firstMissing - 1)?.prefix?.node;
  const newPages: Page[] = [];
  for (let index = firstMissing; index < count; index++) {
    const page = pageAt(index);
    if (!page || !isComputed(page)) break;
    newPages.push(page);
  }
  if (newPages.length === 0) return parent;
  const { pageSize } = space.pool;
  const tokens = new Uint32Array(newPages.length * pageSize);
  for (const [i, { prefix }] of newPages.entries()) if (prefix) tokens.set(prefix.tokens, i * pageSize);
  const tenant = treeTenant(space.owner.tenant, newPages[0]?.prefix?.adapter);
  const { nodes, added } = tree.insert(tenant, parent, tokens, newPages);
  for (const page of added) space.pool.adopt(page);
  for (const [i, { prefix }] of newPages.entries()) if (prefix) prefix.node = nodes[i];
  return nodes.at(-1);
}

/** True when all of a full page is computed, and not merely reserved. */
export function isComputed({ prefix }: Page): boolean {
  return prefix !== undefined && prefix.computed === prefix.tokens.length;
}
