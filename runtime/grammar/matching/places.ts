import type { Forced } from '../messages.ts';
import { Closure, type Way } from './closure.ts';
import { Frame, KnownFrames, OpenFrame } from './frames.ts';
import { MemoryBound } from './memory.ts';
import type { Rule } from './state.ts';
import { stringWays } from './string-ways.ts';

/** Maximum bytes that the places and masks of all of a worker's grammars take together. The worker's heap also holds the grammars' automata. */
export const MAX_PLACE_BYTES = 128 << 20;
/** Estimated sizes in V8's heap: a place, a way, a list of successors, and a forced text without its bytes. */
const PLACE_BYTES = 250;
const WAY_BYTES = 120;
const NEXT_BYTES = 256 * 8;
const FORCED_BYTES = 250;

/** The state of a text in a grammar: all ways to read it so far. Equal places are one object while `Places` remembers them. */
export class Place {
  readonly ways: readonly Way[];
  /** True when the text may end here. */
  readonly mayEnd: boolean;
  /** The place after each byte: null where no text continues, undefined before the first query. The list is made with the first query. */
  next: (Place | null | undefined)[] | undefined;
  /** The tokens that may come here, once computed: bit `t % 32` of word `t / 32` for token `t`. */
  mask: Uint32Array | undefined;
  /** The text that must come here, once computed. */
  forced: Forced | undefined;
  /** Set for a place within a shared string: its position in the string, and the frame of what follows. Such a place has no `ways`. */
  readonly within: Within | undefined;
  /** Set for a place of `Places.strings` once computed: the tokens that go on in the string. */
  stringTokens: StringTokens | undefined;

  constructor(ways: readonly Way[], mayEnd: boolean, within?: Within) {
    this.ways = ways;
    this.mayEnd = mayEnd;
    this.within = within;
  }
}

interface Within {
  /** A place of `Places.strings`: the position within the string. */
  readonly inner: Place;
  /** The returns of the string's rule: how the text goes on after the string. */
  readonly frame: Frame;
}

/** The tokens that may come at a place within a string. */
export interface StringTokens {
  /** Tokens that do not end the string. */
  readonly mask: Uint32Array;
  /** Nodes of the vocabulary's tree at which the string ends. */
  readonly exits: readonly number[];
}

/**
 * The places of a grammar, made as texts reach them: a lazily determinized pushdown automaton. The stacks of this automaton share common parts (a
 * graph-structured stack, as in Scott and Johnstone, "GLL parsing", 2010), so ambiguous grammars do not multiply them. The grammar has no
 * left recursion, so only finitely many ways are reachable without a byte. A place within a JSON string has two parts: a place of `strings`, and
 * the frame of what follows the string. All grammars of a vocabulary share `strings` and its masks. Remembered places are forgotten when they
 * take too much memory; the places of current texts stay valid.
 */
export class Places {
  readonly start: Place;
  /** The places within strings that grammars share. */
  readonly strings: Places | undefined;
  readonly #memory: MemoryBound<Places>;
  readonly #placesByHash = new Map<number, Place[]>();
  /** Places within shared strings, by the frame of what follows the string and the place of `strings`. */
  readonly #stringPlaces = new Map<Frame, Map<Place, Place>>();
  /** Places after shared strings, by the frame of what follows the string. */
  readonly #placesBehind = new Map<Frame, Place>();
  readonly #frames = new KnownFrames();
  /** Places that cache successors, tokens or a forced text, including places forgotten earlier that a current text still uses. */
  readonly #cachingPlaces = new Set<Place>();

  /**
   * @param memory bound on the memory of all places of the worker; its grammars share the bound
   * @param strings shared by the grammars of one vocabulary; without it, strings are read like other rules
   * @throws GrammarError `limit-exceeded` when the beginning has too many ways
   */
  constructor(root: Rule, memory = new MemoryBound<Places>(MAX_PLACE_BYTES), strings?: Places) {
    this.#memory = memory;
    this.strings = strings;
    this.start = this.#close([{ state: root.start, frame: Frame.BOTTOM }]);
  }

  /** The place after one more byte, or null if no text continues with it. @throws GrammarError `limit-exceeded` for too many ways */
  after(place: Place, byte: number): Place | null {
    if (place.within && this.strings) {
      const inner = this.strings.after(place.within.inner, byte);
      return inner && this.#inString(inner, place.within.frame);
    }
    const knownNext = place.next?.[byte];
    if (knownNext !== undefined) return knownNext;
    // Bytes that take the same edges lead to the same place. This search serves all bytes from `low` to `high`: `byte` and the neighbours that
    // take the same edges.
    let low = 0;
    let high = 255;
    const reachedWays: Way[] = [];
    for (const { state, frame } of place.ways) {
      for (const { from, to, target } of state.bytes) {
        if (byte < from) high = Math.min(high, from - 1);
        else if (byte > to) low = Math.max(low, to + 1);
        else {
          low = Math.max(low, from);
          high = Math.min(high, to);
          reachedWays.push({ state: target, frame });
        }
      }
    }
    const nextPlace = reachedWays.length === 0 ? null : this.#close(reachedWays);
    this.#successorsOf(place).fill(nextPlace, low, high + 1);
    return nextPlace;
  }

  /** Remembers the mask of a place. */
  keepMask(place: Place, mask: Uint32Array): void {
    this.#memory.take(this, mask.byteLength);
    place.mask = mask;
    this.#cachingPlaces.add(place);
  }

  /** Remembers the tokens that go on in a string. */
  keepStringTokens(place: Place, stringTokens: StringTokens): void {
    this.#memory.take(this, stringTokens.mask.byteLength + 8 * stringTokens.exits.length);
    place.stringTokens = stringTokens;
    this.#cachingPlaces.add(place);
  }

  /** The place after a shared string. */
  behind(frame: Frame): Place {
    const known = this.#placesBehind.get(frame);
    if (known) return known;
    const made = this.#settle(new Closure([], frame));
    this.#placesBehind.set(frame, made);
    return made;
  }

  /** The only byte that may come at a place; undefined where the text may end or has a choice. */
  only({ ways, mayEnd, within }: Place): number | undefined {
    if (within && this.strings) return this.strings.only(within.inner);
    let onlyByte: number | undefined;
    if (mayEnd) return undefined;
    for (const { state } of ways) {
      for (const { from, to } of state.bytes) {
        if (from !== to || (onlyByte !== undefined && onlyByte !== from)) return undefined;
        onlyByte = from;
      }
    }
    return onlyByte;
  }

  /** Remembers the text that must come at a place. */
  keepForced(place: Place, forced: Forced): void {
    this.#memory.take(this, FORCED_BYTES + forced.bytes.byteLength);
    place.forced = forced;
    this.#cachingPlaces.add(place);
  }

  /** Forgets all places except the start. The start's list of successors is forgotten, too. */
  forget(): void {
    for (const place of this.#cachingPlaces) {
      place.next = undefined;
      place.mask = undefined;
      place.forced = undefined;
      place.stringTokens = undefined;
    }
    this.#cachingPlaces.clear();
    this.#placesByHash.clear();
    this.#stringPlaces.clear();
    this.#placesBehind.clear();
    this.#frames.forget();
  }

  #successorsOf(place: Place): (Place | null | undefined)[] {
    if (!place.next) {
      this.#memory.take(this, NEXT_BYTES);
      place.next = new Array(256).fill(undefined);
      this.#cachingPlaces.add(place);
    }
    return place.next;
  }

  /** The place of these ways and of all ways reachable from them without a byte. */
  #close(ways: readonly Way[]): Place {
    const inString = this.strings && stringWays(ways);
    if (!this.strings || !inString) return this.#settle(new Closure(ways));
    return this.#inString(this.strings.#settle(new Closure(inString.ways)), inString.frame);
  }

  /** The place at `inner` in a string, when `frame` follows the string. */
  #inString(inner: Place, frame: Frame): Place {
    // The text has passed the closing quote, so the string has ended.
    if (inner.mayEnd) return this.behind(frame);
    let places = this.#stringPlaces.get(frame);
    if (!places) {
      places = new Map();
      this.#stringPlaces.set(frame, places);
    }
    const known = places.get(inner);
    if (known) return known;
    this.#memory.take(this, PLACE_BYTES);
    const made = new Place([], false, { inner, frame });
    places.set(inner, made);
    return made;
  }

  /** The place of a closure's ways: an equal place that is remembered, or a new one. */
  #settle({ reading, mayEnd }: Closure): Place {
    const framesBefore = this.#frames.bytes;
    const ways = reading.map(
      ({ state, frame }): Way => ({ state, frame: frame instanceof OpenFrame ? frame.close(this.#frames) : frame }),
    );
    ways.sort((a, b) => a.state.id - b.state.id || a.frame.id - b.frame.id);
    const distinct = ways.filter((way, index) => !isSame(way, ways[index - 1]));
    return this.#remember(distinct, mayEnd, this.#frames.bytes - framesBefore);
  }

  /** @param ways sorted */
  #remember(ways: readonly Way[], mayEnd: boolean, frameBytes: number): Place {
    let hash = mayEnd ? 1 : 0;
    for (const { state, frame } of ways) hash = Math.imul(Math.imul(hash, 31) + state.id, 0x9e3779b1) + frame.id;
    const sameHash = this.#placesByHash.get(hash);
    const known = sameHash?.find(
      (place) =>
        place.mayEnd === mayEnd &&
        place.ways.length === ways.length &&
        place.ways.every((way, index) => isSame(way, ways[index])),
    );
    if (known) return known;
    this.#memory.take(this, PLACE_BYTES + WAY_BYTES * ways.length + frameBytes);
    const place = new Place(ways, mayEnd);
    // `take` may have forgotten places to make room, so `sameHash` may no longer be the list of this hash.
    const list = this.#placesByHash.get(hash);
    if (list) list.push(place);
    else this.#placesByHash.set(hash, [place]);
    return place;
  }
}

function isSame(a: Way, b: Way | undefined): boolean {
  return b !== undefined && a.state === b.state && a.frame === b.frame;
}
