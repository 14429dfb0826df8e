import { CallFault } from './fault.ts';
import type { ContextPages, Mapping } from './known-text.ts';
import { KnownText, textKeys } from './known-text.ts';
import { fillSlot, type Page, PagePrefix, samePrefix, slotBits, treeTenant, unfillSlot } from './pool.ts';
import { commonStart, joined, type PrefixNode, type PrefixTree } from './prefix/tree.ts';
import type { PageSpace } from './space.ts';

/** A call that may take pages from the prefix tree. */
export interface PrefixRequest {
  readonly inPages: Uint32Array;
  readonly outPages: Uint32Array;
  /** One position per input. */
  readonly positions: Uint32Array;
  /** The known tokens of the inputs. For a run of steps that the device gets ahead of time, only the first is known: the device picks the others. */
  readonly tokens: Uint32Array;
  /** Number of last inputs that must be computed, because the caller wants their outputs. */
  readonly keep: number;
  /** True when each input sees all context and the inputs up to itself: there is no explicit mask. */
  readonly causal: boolean;
  /** The low-rank adapter that computes; undefined for the model alone. */
  readonly adapter?: string | undefined;
}

/** The text (successive tokens from position 0 on) that a call continues: its full pages, and the page in which it ends. */
interface Text {
  /** Full pages after those of the known text, in order. */
  readonly full: readonly Mapping[];
  /** The page that the text ends in, unless the text ends at a page's end. */
  readonly partial: Mapping | undefined;
  /** Number of tokens of the text. */
  readonly length: number;
}

/**
 * Replaces out-pages of a call by pages of the prefix tree that already hold the call's inputs. It may replace empty out-pages, and the out-page in
 * which the text ends. Afterwards the context is on the device, and `emptySlots(outPages, inputs - cachedInputs)` cannot fail.
 * Undefined when the call does not continue a plain text: a slot of its pages is masked, its context was not computed from tokens alone with the
 * call's adapter, or its positions skip.
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
  const { text, rooms, begunTokens, wantedPages } = plain;
  space.makeResident(pages.rest);
  space.makeWritable(rooms);
  const { pageSize } = space.pool;
  const knownText = pages.text;
  for (const mapping of text.full) knownText.add(mapping);
  const sequence = wantedPages > 0 ? sequenceOf(text, request.tokens) : request.tokens;
  const foundChain =
    wantedPages > 0 && isTextComputed(text, knownText.last)
      ? find(space, tree, knownText, adapter, sequence, wantedPages)
      : NOTHING;
  const replacements = mapFound(space, foundChain.nodes, rooms);
  const mappedPages = replacements.length;
  let copiedPart: CopiedPart | undefined;
  try {
    if (mappedPages === foundChain.nodes.length) copiedPart = copyNext(space, plain, foundChain, sequence);
  } catch (error) {
    putBack(space, replacements);
    throw error;
  }
  const partTokens = copiedPart?.tokens ?? 0;
  tree.countHits(mappedPages * pageSize + partTokens);
  const mappedLength = mappedPages > 0 ? (knownText.mappings.length + mappedPages) * pageSize : text.length;
  const takenRooms = mappedPages + (partTokens > 0 ? 1 : 0);
  const contextRooms = Math.max(takenRooms, text.partial ? 1 : 0);
  return new PrefixRun(space, tree, {
    adapter,
    rooms,
    cachedInputs: Math.max(0, mappedPages * pageSize - begunTokens) + partTokens,
    length: mappedLength + partTokens,
    context: { text: knownText, rest: rooms.slice(0, contextRooms) },
    replaced: replacements,
    copied: copiedPart,
    beginsInside: mappedPages === 0 && begunTokens > 0,
  });
}

/** The pages of the prefix tree that a call would take if it began now. */
export interface PrefixPeek {
  /** Number of inputs that `beginPrefix` would take, if frames and limits leave room for their pages. */
  readonly cachedInputs: number;
  /** Computes the keys (`textKeys`) of the whole pages after those found, which the call would compute and give to others. */
  keys(): readonly number[];
  /** Number of these pages, from the first one on, that the call could take from the tree if another call computes them first. */
  readonly takes: number;
}

/**
 * Finds the pages that `beginPrefix` would take. Changes neither mappings, order of use nor statistics. Finds nothing
 * for a call that cannot use the tree, or that fails.
 */
export function peekPrefix(space: PageSpace, tree: PrefixTree<Page>, request: PrefixRequest): PrefixPeek {
  let plain: PlainCall | undefined;
  try {
    const pages = { text: new KnownText(space.pool), rest: space.peekAll(request.inPages) };
    plain = plainCall(space, request, pages);
  } catch (error) {
    if (error instanceof CallFault) return FINDS_NOTHING;
    throw error;
  }
  if (!plain || plain.wantedPages === 0) return FINDS_NOTHING;
  const { text, begunTokens, wantedPages } = plain;
  const lastPrefix = text.full.at(-1)?.page.prefix;
  if (!isTextComputed(text) || (lastPrefix && !lastPrefix.node?.attached)) return FINDS_NOTHING;
  const { pageSize } = space.pool;
  const sequence = sequenceOf(text, request.tokens);
  const nodes = tree.peek(treeTenant(space.owner.tenant, request.adapter), lastPrefix?.node, sequence, wantedPages);
  const partTokens = nextPart(space, plain, { parent: lastPrefix?.node, nodes }, sequence)?.tokens ?? 0;
  const foundTokens = nodes.length * pageSize;
  const prefixBefore = nodes.at(-1)?.page.prefix ?? lastPrefix;
  return {
    cachedInputs: Math.max(0, foundTokens - begunTokens) + partTokens,
    // A call that begins inside a page gives no page to others.
    keys: () => (begunTokens > foundTokens ? [] : textKeys(prefixBefore, sequence.subarray(foundTokens), pageSize)),
    takes: wantedPages - nodes.length,
  };
}

const FINDS_NOTHING: PrefixPeek = { cachedInputs: 0, keys: () => [], takes: 0 };

/** A call that continues a plain text. */
interface PlainCall {
  readonly text: Text;
  /** The out-pages that its inputs fill. */
  readonly rooms: Mapping[];
  /** Number of tokens on the page that the text ends in. */
  readonly begunTokens: number;
  /** Maximum tokens to take from the tree, counted from the beginning of the page that the text ends in. */
  readonly maxTakenTokens: number;
  /** Number of whole pages among those tokens. */
  readonly wantedPages: number;
}

/** @throws CallFault as `roomIn` does */
function plainCall(space: PageSpace, request: PrefixRequest, pages: ContextPages): PlainCall | undefined {
  const { outPages, positions, tokens, keep } = request;
  const isCandidate = request.causal && tokens.length > 0 && outPages.length > 0;
  const text = isCandidate ? textOf(space, pages, request.adapter) : undefined;
  if (!text || !runsOn(positions, text.length)) return undefined;
  const rooms = space.roomIn(outPages, positions.length);
  if (!continues(text, rooms)) return undefined;
  const begunTokens = text.partial ? (text.partial.page.prefix?.known ?? 0) : 0;
  const maxTakenTokens = begunTokens + Math.max(0, Math.min(tokens.length, positions.length - keep));
  return { text, rooms, begunTokens, maxTakenTokens, wantedPages: Math.floor(maxTakenTokens / space.pool.pageSize) };
}

/** The text that these pages hold; undefined when they hold anything else. Empty pages may follow. */
function textOf(space: PageSpace, { text, rest }: ContextPages, adapter: string | undefined): Text | undefined {
  const { pageSize } = space.pool;
  const full: Mapping[] = [];
  let partial: Mapping | undefined;
  let lastPrefix = text.last?.prefix;
  let hasEnded = false;
  for (const mapping of rest) {
    const { page } = mapping;
    if (mapping.masked !== 0) return undefined;
    if (page.filled === 0) {
      hasEnded = true;
      continue;
    }
    const { prefix } = page;
    if (hasEnded || partial || !prefix || !isKnown(page)) return undefined;
    if (prefix.tenant !== space.owner.tenant || prefix.adapter !== adapter) return undefined;
    if (prefix.parent !== lastPrefix && !samePrefix(prefix.parent, lastPrefix)) return undefined;
    lastPrefix = prefix;
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

/** The pages of the prefix tree that continue a text. */
interface FoundChain {
  /** The node of the text's last page; undefined for the beginning of a text, or when that page is not in the tree. */
  readonly parent: PrefixNode<Page> | undefined;
  readonly nodes: readonly PrefixNode<Page>[];
}

const NOTHING: FoundChain = { parent: undefined, nodes: [] };

function find(
  space: PageSpace,
  tree: PrefixTree<Page>,
  knownText: KnownText,
  adapter: string | undefined,
  sequence: Uint32Array,
  maxPages: number,
): FoundChain {
  const parent = plant(space, tree, knownText.mappings.length, (at) => knownText.mappings[at]?.page);
  return { parent, nodes: tree.match(treeTenant(space.owner.tenant, adapter), parent, sequence, maxPages) };
}

/** The tokens of the page that the text ends in, then the call's. */
function sequenceOf(text: Text, tokens: Uint32Array): Uint32Array {
  const prefix = text.partial?.page.prefix;
  return prefix ? joined(prefix.tokens.subarray(0, prefix.known), tokens) : tokens;
}

/** The beginning of a page that continues the text after the found pages. The call must copy it, because the call writes the rest of the page. */
function nextPart(
  space: PageSpace,
  { rooms, maxTakenTokens }: PlainCall,
  { parent, nodes }: FoundChain,
  sequence: Uint32Array,
): PagePart | undefined {
  const { pageSize } = space.pool;
  const room = rooms[nodes.length];
  if (room?.page.filled !== 0) return undefined;
  const from = nodes.length * pageSize;
  return partAfter(nodes.at(-1) ?? parent, sequence.subarray(from, Math.min(maxTakenTokens, from + pageSize)));
}

function copyNext(
  space: PageSpace,
  plain: PlainCall,
  foundChain: FoundChain,
  sequence: Uint32Array,
): CopiedPart | undefined {
  const part = nextPart(space, plain, foundChain, sequence);
  const room = plain.rooms[foundChain.nodes.length];
  const prefixBefore = (foundChain.nodes.at(-1) ?? foundChain.parent)?.page.prefix;
  if (!part || !room || !prefixBefore) return undefined;
  copyPart(space, part, room, prefixBefore);
  return { room, tokens: part.tokens };
}

/** Maps the found pages over `rooms`, one each, as far as that puts no inferlet under memory pressure. */
function mapFound(space: PageSpace, nodes: readonly PrefixNode<Page>[], rooms: readonly Mapping[]): Replacement[] {
  const replacements: Replacement[] = [];
  const { pool } = space;
  for (const { page } of nodes) {
    const room = rooms[replacements.length];
    if (!room) break;
    const isBegun = room.page.filled !== 0;
    // A page with tokens is kept until `commit`: it still counts, and its frame is not free.
    if (isBegun && !space.hasRoom) break;
    if (!bringBack(space, page, isBegun ? undefined : room.page)) break;
    let former = isBegun ? room.page : undefined;
    // When a limit counts the found page already, the replacement of the empty page lowers the count by one. Hold that place, so that a revert
    // cannot fail: by a blank page when this inferlet holds the found page, and by a reservation in the tenant's quota when only the tenant holds it.
    const isHeld = space.held.has(page);
    const reserved = !former && !isHeld && space.tenantHolds(page);
    if (former) space.keep(former);
    else if (reserved) space.limits.reserve();
    else if (isHeld) {
      former = pool.blank(space.account);
      space.keep(former);
      pool.release(former);
    }
    space.remap(room, page);
    replacements.push({ room, former, reserved });
  }
  return replacements;
}

/**
 * Brings a found page to the device if it was swapped out: to the frame of `donor`, the empty page that it replaces, or to a free one. False
 * when no frame is free, or when swap lost the page, which then leaves the tree.
 */
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

/**
 * True when all of a text has been computed. Pages that a call under way still has to compute must stay where they are, and are not in the tree.
 * `knownPage` is the last page of the known text (`KnownText`): it is full, but may not have been computed yet. Once it is computed, so are the
 * pages before it.
 */
function isTextComputed({ full, partial }: Text, knownPage?: Page): boolean {
  if (knownPage && !isComputed(knownPage)) return false;
  const prefix = partial?.page.prefix;
  return full.every(({ page }) => isComputed(page)) && prefix?.computed === prefix?.known;
}

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

/** The first slots of a page, for another text to copy. */
export interface PagePart {
  readonly page: Page;
  /** Number of these slots. */
  readonly tokens: number;
}

/**
 * Finds the first slots of a page that hold the first of `tokens`, so that a hit may end inside a page. Considers only
 * the page in which a text last continued after `node`. That page may have changed since, so only the identity that the
 * page has now counts. Undefined when the page is not on the device, or begins with another token.
 */
export function partAfter(node: PrefixNode<Page> | undefined, tokens: Uint32Array): PagePart | undefined {
  const page = node?.next;
  const prefix = page?.prefix;
  if (!page || page.frame < 0 || !prefix || prefix.parent?.node !== node) return undefined;
  const common = commonStart(prefix.tokens.subarray(0, prefix.computed), tokens);
  return common > 0 ? { page, tokens: common } : undefined;
}

/** Copies a part into an empty page of the space. `before` is the identity of the page in front of the empty one. */
export function copyPart(
  space: PageSpace,
  { page, tokens }: PagePart,
  { page: to }: Mapping,
  before: PagePrefix,
): void {
  const { pageSize } = space.pool;
  const slots = Uint32Array.from({ length: tokens }, (_, slot) => slot);
  space.memory.copySlots(
    space,
    slots.map((slot) => page.frame * pageSize + slot),
    slots.map((slot) => to.frame * pageSize + slot),
  );
  const prefix = new PagePrefix(before.tenant, before.adapter, before, pageSize);
  prefix.tokens.set((page.prefix as PagePrefix).tokens.subarray(0, tokens));
  prefix.known = tokens;
  prefix.computed = tokens;
  for (const slot of slots) fillSlot(to, slot, page.positions[slot] as number);
  to.prefix = prefix;
}
