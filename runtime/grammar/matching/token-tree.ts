import type { Forced } from '../messages.ts';
import type { Vocabulary } from '../vocabulary.ts';
import { StringState, stringRule } from './automaton.ts';
import { type MemoryBound, type Place, Places, type StringTokens } from './places.ts';

/**
 * A vocabulary as a prefix tree over bytes, whose nodes are stored in preorder. Each node has its byte, its depth, the token that ends there, and
 * the end of its subtree. The tree leaves out the tokens without bytes and the end-of-sequence tokens.
 */
export class TokenTree {
  readonly #size: number;
  readonly #bytes: Uint8Array;
  readonly #depths: Uint16Array;
  /** The first token that ends at a node, or -1. */
  readonly #tokens: Int32Array;
  /** For each node, the index after the last node of its subtree. */
  readonly #ends: Uint32Array;
  /** For each token, the next token with the same bytes, or -1. */
  readonly #twins: Int32Array;
  /** The places on the path to the current node, by depth. */
  readonly #path: Place[] = [];
  /** The places within a string on the path to the current node, by depth. */
  readonly #innerPath: Place[] = [];
  /** Bytes of the longest token. */
  readonly longest: number;

  constructor({ size, bytes, offsets, eos }: Vocabulary) {
    const all = Buffer.from(bytes);
    const spellings = Array.from({ length: size }, (_, id) => all.subarray(offsets[id], offsets[id + 1]));
    const sorted = spellings.flatMap((spelling, id) =>
      spelling.length > 0 && !eos.includes(id) ? [{ spelling, id }] : [],
    );
    sorted.sort((a, b) => Buffer.compare(a.spelling, b.spelling) || b.id - a.id);
    const nodes: { byte: number; depth: number; token: number; end: number }[] = [];
    const openNodes: { byte: number; depth: number; token: number; end: number }[] = [];
    this.#twins = new Int32Array(size).fill(-1);
    let previousSpelling: Buffer = Buffer.alloc(0);
    for (const { spelling, id } of sorted) {
      let shared = 0;
      while (shared < previousSpelling.length && previousSpelling[shared] === spelling[shared]) shared += 1;
      for (const node of openNodes.splice(shared)) node.end = nodes.length;
      for (let depth = shared; depth < spelling.length; depth += 1) {
        const node = { byte: spelling[depth] ?? 0, depth, token: -1, end: 0 };
        nodes.push(node);
        openNodes.push(node);
      }
      const lastNode = openNodes[spelling.length - 1];
      if (lastNode) {
        this.#twins[id] = lastNode.token;
        lastNode.token = id;
      }
      previousSpelling = spelling;
    }
    for (const node of openNodes) node.end = nodes.length;
    this.#size = size;
    this.longest = sorted.reduce((most, { spelling }) => Math.max(most, spelling.length), 0);
    this.#bytes = Uint8Array.from(nodes, ({ byte }) => byte);
    this.#depths = Uint16Array.from(nodes, ({ depth }) => depth);
    this.#tokens = Int32Array.from(nodes, ({ token }) => token);
    this.#ends = Uint32Array.from(nodes, ({ end }) => end);
  }

  /** True when a token is longer than `prefix` and begins with it, and the token's remaining bytes may come at `place`. */
  reaches(places: Places, prefix: Uint8Array, place: Place): boolean {
    const count = this.#bytes.length;
    let node = 0;
    let depth = 0;
    // Nodes of the same depth between `node` and the end of their parent's subtree are siblings.
    for (let end = count; depth < prefix.length; ) {
      while (node < end && this.#bytes[node] !== prefix[depth]) node = this.#ends[node] as number;
      if (node >= end) return false;
      end = this.#ends[node] as number;
      depth += 1;
      node += 1;
    }
    const end = this.#ends[node - 1] as number;
    while (node < end) {
      const at = (this.#depths[node] as number) - depth;
      const nextPlace = places.after(at === 0 ? place : (this.#path[at - 1] as Place), this.#bytes[node] as number);
      if (nextPlace === null) {
        node = this.#ends[node] as number;
        continue;
      }
      if ((this.#tokens[node] as number) >= 0) return true;
      this.#path[at] = nextPlace;
      node += 1;
    }
    return false;
  }

  /** Tokens after which a text of the grammar can continue: bit `t % 32` of word `t / 32`. */
  mask(places: Places, start: Place): Uint32Array {
    const { within } = start;
    if (within && places.strings) {
      const { mask, exits } = stringTokensAt(within.inner, places.strings, this);
      const maskCopy = new Uint32Array(mask);
      this.#leave(maskCopy, places, places.behind(within.frame), exits);
      return maskCopy;
    }
    const mask = new Uint32Array(Math.ceil(this.#size / 32));
    this.#walk(mask, places, start, 0, this.#bytes.length, 0);
    return mask;
  }

  /** Tokens that stay within a string, and the nodes at which the string ends. @param start a place of `strings` */
  stringTokens(strings: Places, start: Place): StringTokens {
    const mask = new Uint32Array(Math.ceil(this.#size / 32));
    const exits = this.#walkInside(mask, strings, start, 0, this.#bytes.length, 0);
    return { mask, exits };
  }

  #mark(mask: Uint32Array, node: number): void {
    for (let token = this.#tokens[node] as number; token >= 0; token = this.#twins[token] as number) {
      mask[token >>> 5] = (mask[token >>> 5] as number) | (1 << (token & 31));
    }
  }

  /**
   * Walks the nodes from `first` up to `end` (excluded), and adds the tokens that may come to `mask`. The place before the nodes of depth `top` is
   * `start`.
   */
  #walk(mask: Uint32Array, places: Places, start: Place, first: number, end: number, top: number): void {
    for (let node = first; node < end; ) {
      const depth = this.#depths[node] as number;
      const from = depth === top ? start : (this.#path[depth - 1] as Place);
      const byte = this.#bytes[node] as number;
      const knownNext = from.next?.[byte];
      const place = knownNext === undefined ? places.after(from, byte) : knownNext;
      if (place === null) {
        node = this.#ends[node] as number;
        continue;
      }
      this.#mark(mask, node);
      const { within } = place;
      if (within && places.strings) {
        const subtreeEnd = this.#ends[node] as number;
        const exits = this.#walkInside(mask, places.strings, within.inner, node + 1, subtreeEnd, depth + 1);
        this.#leave(mask, places, places.behind(within.frame), exits);
        node = subtreeEnd;
        continue;
      }
      this.#path[depth] = place;
      node += 1;
    }
  }

  /** Like `#walk`, but stays within a string. Returns the nodes that end the string, and does not go below these. */
  #walkInside(
    mask: Uint32Array,
    strings: Places,
    start: Place,
    first: number,
    end: number,
    top: number,
  ): readonly number[] {
    const exits: number[] = [];
    for (let node = first; node < end; ) {
      const depth = this.#depths[node] as number;
      const from = depth === top ? start : (this.#innerPath[depth - 1] as Place);
      const byte = this.#bytes[node] as number;
      const knownNext = from.next?.[byte];
      const place = knownNext === undefined ? strings.after(from, byte) : knownNext;
      if (place === null || place.mayEnd) {
        if (place !== null) exits.push(node);
        node = this.#ends[node] as number;
        continue;
      }
      this.#innerPath[depth] = place;
      this.#mark(mask, node);
      node += 1;
    }
    return exits;
  }

  /** Adds the tokens of `exits` (nodes that end a string) and of the nodes below them. @param behind the place after the string */
  #leave(mask: Uint32Array, places: Places, behind: Place, exits: readonly number[]): void {
    for (const node of exits) {
      this.#mark(mask, node);
      this.#walk(mask, places, behind, node + 1, this.#ends[node] as number, (this.#depths[node] as number) + 1);
    }
  }
}

/**
 * The places within strings that the grammars of one vocabulary share. They do not depend on what follows the string, so their masks are computed
 * once (context-independent tokens, as in Dong et al., "XGrammar", MLSys 2025). At the start, any characters may follow and the string may end.
 */
export function stringPlaces(memory?: MemoryBound<Places>): Places {
  return new Places(stringRule({ min: 0, max: Number.POSITIVE_INFINITY, isBegun: true }), memory);
}

/** Tokens that may come at a place of a string. All places that are far from the string's length bounds share the tokens of the start. */
function stringTokensAt(place: Place, strings: Places, tree: TokenTree): StringTokens {
  const representative = isFarFromBounds(place, strings.start, tree.longest) ? strings.start : place;
  if (representative.stringTokens) return representative.stringTokens;
  const stringTokens = tree.stringTokens(strings, representative);
  strings.keepStringTokens(representative, stringTokens);
  return stringTokens;
}

/** True if, as at `start`, any text of up to `longest` characters may follow, and the string may end after it. */
function isFarFromBounds({ ways }: Place, start: Place, longest: number): boolean {
  const stringState = ways.find(({ state }) => state instanceof StringState)?.state;
  if (!(stringState instanceof StringState) || stringState.min > 0 || stringState.max < longest) return false;
  if (ways.length !== start.ways.length) return false;
  const states = new Set(start.ways.map(({ state }) => state));
  // The other ways are within a character. They return to the string when the character ends, with one character fewer to come.
  return ways.every(({ state, frame }) => {
    if (state === stringState) return true;
    const [firstReturn, ...furtherReturns] = frame.returns;
    const stateAfter = firstReturn?.target;
    return (
      states.has(state) &&
      furtherReturns.length === 0 &&
      stateAfter instanceof StringState &&
      stateAfter.max === stringState.max - 1
    );
  });
}

/** Maximum bytes of one answer. A longer forced text comes in several answers. */
const MAX_BYTES = 2048;

/** Maximum number of offsets in `Forced.reaching`: each costs the caller a tokenization. With more offsets, no forced text is reported. */
const MAX_REACHING = 8;

export const NOT_FORCED: Forced = { bytes: new Uint8Array(0), reaching: [] };

/** The text that must come at a place, and the offsets from which a token may reach past the text's end. */
export function forcedAt(place: Place, places: Places, tree: TokenTree): Forced {
  const bytes: number[] = [];
  /** The place before each byte, and the place after the last one. */
  const path = [place];
  for (let at = place; bytes.length < MAX_BYTES; ) {
    const byte = places.only(at);
    const nextPlace = byte === undefined ? null : places.after(at, byte);
    if (byte === undefined || nextPlace === null) break;
    bytes.push(byte);
    path.push(nextPlace);
    at = nextPlace;
  }
  const end = wholeCharacters(bytes);
  const lastPlace = path[end];
  if (end === 0 || lastPlace === undefined) return NOT_FORCED;
  const text = Uint8Array.from(bytes.slice(0, end));
  const reaching: number[] = [];
  // A token that reaches past the end begins fewer than `longest` bytes before it.
  for (let from = Math.max(0, end - tree.longest + 1); from < end; from += 1) {
    if (tree.reaches(places, text.subarray(from), lastPlace)) reaching.push(from);
  }
  return reaching.length > MAX_REACHING ? NOT_FORCED : { bytes: text, reaching };
}

/** Number of bytes up to the end of the last whole character; 0 when the bytes begin within a character. */
function wholeCharacters(bytes: readonly number[]): number {
  if (isContinuation(bytes[0])) return 0;
  let lead = bytes.length - 1;
  while (lead > 0 && isContinuation(bytes[lead])) lead -= 1;
  return lead >= 0 && bytes.length - lead < lengthOf(bytes[lead] ?? 0) ? lead : bytes.length;
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/** Number of bytes of the character whose first byte is `lead`. */
function lengthOf(lead: number): number {
  if (lead < 0x80) return 1;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}
