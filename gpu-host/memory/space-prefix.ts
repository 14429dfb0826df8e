import { CallFault } from './fault.ts';
import { PagePrefix, samePrefix, treeTenant } from './identity.ts';
import { KnownText } from './known-text.ts';
import { type Page, slotBits } from './pool.ts';
import type { PrefixNode, PrefixTree } from './prefix/tree.ts';
import type { ContextPages, Mapping, PageSpace } from './space.ts';

/** A call that may take pages from the prefix tree. */
export interface PrefixRequest {
  readonly inPages: Uint32Array;
  readonly outPages: Uint32Array;
  /** One position per input. */
  readonly positions: Uint32Array;
  /** The inputs' known tokens: of a run on the device only the first is known. */
  readonly tokens: Uint32Array;
  /** Number of last inputs that must be computed, because the caller wants their outputs. */
  readonly keep: number;
  /** True when each input sees all context and the inputs up to itself: there is no explicit mask. */
  readonly causal: boolean;
  /** The low-rank adapter that computes; undefined for the model alone. */
  readonly adapter?: string | undefined;
}

/** The text that a call continues: the pages that hold its start, and those that take the inputs. */
interface Text {
  /** Full pages after those of the known text, in order. */
  readonly full: readonly Mapping[];
  /** The page that the text ends in, unless the text ends at a page's end. */
  readonly partial: Mapping | undefined;
  /** Tokens so far. */
  readonly length: number;
}

interface Replacement {
  readonly room: Mapping;
  /** The page to put back; undefined for an empty page. */
  readonly former: Page | undefined;
  /** True when a place in the tenant's quota is reserved, because the tenant holds a page fewer meanwhile. */
  readonly reserved: boolean;
}

/**
 * A call over a plain text from position 0 on, whose pages can be found by their tokens. Its first inputs may come from the prefix tree,
 * and the pages that it fills go there (RadixAttention, SGLang, section 3).
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
    },
  ) {
    this.#replaced = text.replaced;
    this.taken = text.taken;
    this.context = text.context;
    this.#space = space;
    this.#tree = tree;
    this.#adapter = text.adapter;
    this.#rooms = text.rooms;
    this.#length = text.length;
    this.#offered = Math.floor(text.length / space.pool.pageSize);
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

  /** Puts the replaced out-pages back after the reserved slots were unfilled. Does nothing after the first `commit`. */
  revert(): void {
    for (const { room, former, reserved } of this.#replaced) {
      if (reserved) this.#space.limits.unreserve();
      if (former) {
        this.#space.remap(room, former);
        this.#space.letGo(former);
      } else {
        const empty = this.#space.pool.blank();
        this.#space.remap(room, empty);
        this.#space.pool.release(empty);
      }
    }
    this.#replaced = [];
  }

  /** Makes the reserved inputs final once they are computed (or were taken): their full pages go to the tree. */
  commit(): void {
    for (const { former, reserved } of this.#replaced) {
      if (reserved) this.#space.limits.unreserve();
      if (former) this.#space.letGo(former);
    }
    this.#replaced = [];
    const { pageSize } = this.#space.pool;
    const full = Math.floor(this.#length / pageSize);
    for (let at = this.#offered; at * pageSize < this.#length; at++) {
      const prefix = this.#page(at)?.prefix;
      // A later call of the batch may have reserved more of the page.
      if (prefix) prefix.computed = Math.max(prefix.computed, Math.min(pageSize, this.#length - at * pageSize));
    }
    if (full === this.#offered) return;
    this.#offered = full;
    plant(this.#space, this.#tree, full, (at) => this.#page(at));
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

/**
 * Maps the pages that the prefix tree has of a call's inputs over its empty out-pages. Afterwards the context is on the device and
 * `emptySlots(outPages, inputs - taken)` cannot fail. Undefined when the call does not continue a plain text: something is masked, its
 * context was not computed from tokens alone by what computes now, or its positions skip.
 * @throws CallFault as `emptySlots` does, and changes nothing then
 */
export function beginPrefix(
  space: PageSpace,
  tree: PrefixTree<Page>,
  request: PrefixRequest,
  pages: ContextPages,
): PrefixRun | undefined {
  const { adapter } = request;
  const plain = plainCall(space, request, pages);
  if (!plain) return undefined;
  const { text, rooms, begun, wanted } = plain;
  space.makeResident(pages.rest);
  space.makeWritable(rooms);
  const { pageSize } = space.pool;
  const known = pages.text;
  for (const mapping of text.full) known.add(mapping);
  const found = wanted > 0 && isThere(text, known.last) ? find(space, tree, known, text, request, wanted) : [];
  const replaced = mapFound(space, found, rooms);
  const mapped = replaced.length;
  tree.took(mapped);
  return new PrefixRun(space, tree, {
    adapter,
    rooms,
    taken: Math.max(0, mapped * pageSize - begun),
    length: mapped > 0 ? (known.mappings.length + mapped) * pageSize : text.length,
    context: { text: known, rest: rooms.slice(0, Math.max(mapped, text.partial ? 1 : 0)) },
    replaced,
  });
}

/**
 * Number of inputs of a call that `beginPrefix` would take now, as long as no page has to leave for them. Changes neither mappings, order
 * of use nor statistics; 0 for a call that cannot use the tree, or fails.
 */
export function peekPrefix(space: PageSpace, tree: PrefixTree<Page>, request: PrefixRequest): number {
  let plain: PlainCall | undefined;
  try {
    const pages = { text: new KnownText(space.pool), rest: space.peekAll(request.inPages) };
    plain = plainCall(space, request, pages);
  } catch (error) {
    if (error instanceof CallFault) return 0;
    throw error;
  }
  if (!plain || plain.wanted === 0) return 0;
  const { text, begun, wanted } = plain;
  const parent = text.full.at(-1)?.page.prefix?.node;
  if (!isThere(text) || (text.full.length > 0 && !parent?.attached)) return 0;
  const pages = tree.peek(
    treeTenant(space.owner.tenant, request.adapter),
    parent,
    sequenceOf(text, request.tokens),
    wanted,
  );
  return Math.max(0, pages * space.pool.pageSize - begun);
}

/** A call that continues a plain text. */
interface PlainCall {
  readonly text: Text;
  /** The out-pages that its inputs fill. */
  readonly rooms: Mapping[];
  /** Number of tokens on the page that the text ends in. */
  readonly begun: number;
  /** Maximum pages to take from the tree, the begun one included. */
  readonly wanted: number;
}

/** @throws CallFault as `roomIn` does */
function plainCall(space: PageSpace, request: PrefixRequest, pages: ContextPages): PlainCall | undefined {
  const { outPages, positions, tokens, keep } = request;
  const mayBe = request.causal && tokens.length > 0 && outPages.length > 0;
  const text = mayBe ? textOf(space, pages, request.adapter) : undefined;
  if (!text || !runsOn(positions, text.length)) return undefined;
  const rooms = space.roomIn(outPages, positions.length);
  if (!continues(text, rooms)) return undefined;
  const begun = text.partial ? (text.partial.page.prefix?.known ?? 0) : 0;
  const inputs = Math.max(0, Math.min(tokens.length, positions.length - keep));
  return { text, rooms, begun, wanted: Math.floor((begun + inputs) / space.pool.pageSize) };
}

/** The text that these pages hold; undefined when they hold anything else. Empty pages may follow. */
function textOf(space: PageSpace, { text, rest }: ContextPages, adapter: string | undefined): Text | undefined {
  const { pageSize } = space.pool;
  const full: Mapping[] = [];
  let partial: Mapping | undefined;
  let last = text.last?.prefix;
  let ended = false;
  for (const mapping of rest) {
    const { page } = mapping;
    if (mapping.masked !== 0) return undefined;
    if (page.filled === 0) {
      ended = true;
      continue;
    }
    const { prefix } = page;
    if (ended || partial || !prefix || !isKnown(page)) return undefined;
    if (prefix.tenant !== space.owner.tenant || prefix.adapter !== adapter) return undefined;
    if (prefix.parent !== last && !samePrefix(prefix.parent, last)) return undefined;
    last = prefix;
    if (prefix.known === pageSize) full.push(mapping);
    else partial = mapping;
  }
  const pages = text.mappings.length + full.length;
  return { full, partial, length: pages * pageSize + (partial?.page.prefix?.known ?? 0) };
}

/** True when the page's filled slots are exactly those whose tokens are known. */
function isKnown(page: Page): boolean {
  return page.prefix !== undefined && page.filled === slotBits(page.prefix.known) >>> 0;
}

function runsOn(positions: Uint32Array, from: number): boolean {
  for (let i = 0; i < positions.length; i++) if (positions[i] !== from + i) return false;
  return positions.length > 0;
}

/** True when inputs that fill these pages continue right where the text ends. */
function continues(text: Text, rooms: readonly Mapping[]): boolean {
  const { partial } = text;
  if (partial && rooms[0] !== partial) return false;
  return rooms.every(
    ({ page, masked }, i) => masked === 0 && (page.filled === 0 || (partial !== undefined && i === 0)),
  );
}

function find(
  space: PageSpace,
  tree: PrefixTree<Page>,
  known: KnownText,
  text: Text,
  { tokens, adapter }: PrefixRequest,
  maxPages: number,
): readonly PrefixNode<Page>[] {
  return tree.match(
    treeTenant(space.owner.tenant, adapter),
    plant(space, tree, known.mappings.length, (at) => known.mappings[at]?.page),
    sequenceOf(text, tokens),
    maxPages,
  );
}

/** The tokens of the page that the text ends in, then the call's. */
function sequenceOf(text: Text, tokens: Uint32Array): Uint32Array {
  const prefix = text.partial?.page.prefix;
  const begun = prefix ? prefix.tokens.subarray(0, prefix.known) : new Uint32Array(0);
  const sequence = new Uint32Array(begun.length + tokens.length);
  sequence.set(begun);
  sequence.set(tokens, begun.length);
  return sequence;
}

/** Maps the found pages over `rooms`, one each, as far as that puts no inferlet under memory pressure. */
function mapFound(space: PageSpace, nodes: readonly PrefixNode<Page>[], rooms: readonly Mapping[]): Replacement[] {
  const replaced: Replacement[] = [];
  const { pool } = space;
  for (const { page } of nodes) {
    const room = rooms[replaced.length];
    if (!room) break;
    const begun = room.page.filled !== 0;
    // A page that has tokens stays until `commit`: it counts, and its frame is taken.
    if (begun && !space.hasRoom) break;
    if (!bringBack(space, page, begun ? undefined : room.page)) break;
    let former = begun ? room.page : undefined;
    // Keep enough of every limit that a revert cannot fail.
    const held = space.held.has(page);
    const reserved = !former && !held && space.tenantHolds(page);
    if (former) space.keep(former);
    else if (reserved) space.limits.reserve();
    else if (held) {
      former = pool.blank();
      space.keep(former);
      pool.release(former);
    }
    space.remap(room, page);
    replaced.push({ room, former, reserved });
  }
  return replaced;
}

/** Swaps a cached page in if it was swapped out, if need be into the frame of the empty page that it replaces. */
function bringBack(space: PageSpace, page: Page, donor: Page | undefined): boolean {
  if (page.frame >= 0) return true;
  if (!donor && space.pool.free === 0) return false;
  try {
    space.memory.swapIn(space, page, donor);
    return true;
  } catch (error) {
    if (!(error instanceof CallFault)) throw error;
    space.memory.uncache(page);
    return false;
  }
}

/** Puts the first `count` full pages of a text in the tree, up to the first uncomputed one. @returns the node of the last */
function plant(
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

/**
 * True when a text has been computed, `known` being the last of its known pages: pages that the batch being made will write must stay where
 * they are. A known page was full when it was kept, but a call under way may have reserved it. Pages are computed in order.
 */
function isThere({ full, partial }: Text, known?: Page): boolean {
  if (known && !isComputed(known)) return false;
  const prefix = partial?.page.prefix;
  return full.every(({ page }) => isComputed(page)) && prefix?.computed === prefix?.known;
}

/** True when all of a full page is computed, and not merely reserved. */
function isComputed({ prefix }: Page): boolean {
  return prefix !== undefined && prefix.computed === prefix.tokens.length;
}
