import { CallFault } from './fault.ts';
import { samePrefix, treeTenant } from './identity.ts';
import { KnownText } from './known-text.ts';
import { copyPart, type PagePart, partAfter } from './page-part.ts';
import { type Page, slotBits } from './pool.ts';
import { joined } from './prefix/tokens.ts';
import type { PrefixNode, PrefixTree } from './prefix/tree.ts';
import { type CopiedPart, isComputed, PrefixRun, plant, putBack, type Replacement } from './prefix-run.ts';
import type { ContextPages, Mapping, PageSpace } from './space.ts';
import { textKeys } from './text-keys.ts';

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
