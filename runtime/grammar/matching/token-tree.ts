import type { Vocabulary } from '../vocabulary.ts';
import type { Place, Places, StringTokens } from './places.ts';
import { stringTokensAt } from './string-masks.ts';

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
