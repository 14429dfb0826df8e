import type { Forced } from '../messages.ts';
import { tooLarge } from '../translate/expression.ts';
import type { Rule, State } from './automaton.ts';

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

/** Maximum number of ways through the grammar that are followed at once. */
const MAX_WAYS = 4096;

/** One way to read a text so far: the state in a rule, and the returns of that rule. */
interface Way {
  readonly state: State;
  readonly frame: Frame;
}

/** A way while its frame may be under construction. */
interface OpenWay {
  readonly state: State;
  readonly frame: Frame | OpenFrame;
}

/** All ways that are reachable from some ways without a byte. */
class Closure {
  /** The ways that can read a byte. */
  readonly reading: OpenWay[] = [];
  mayEnd = false;
  readonly #pending: OpenWay[] = [];
  /** The first frame with which each state was reached. */
  readonly #firstFrames = new Map<State, Frame | OpenFrame>();
  /** Keys of the pairs of a state and a further frame with which it was reached. */
  readonly #furtherKeys = new Set<string>();
  readonly #endedFrames = new Set<Frame | OpenFrame>();
  readonly #openFrames = new Map<Rule, OpenFrame>();

  /**
   * @param endedFrame a frame whose rule has just ended
   * @throws GrammarError `limit-exceeded` for too many ways
   */
  constructor(ways: readonly OpenWay[], endedFrame?: Frame) {
    for (const { state, frame } of ways) this.#reach(state, frame);
    if (endedFrame) this.#return(endedFrame);
    for (let way = this.#pending.pop(); way !== undefined; way = this.#pending.pop()) {
      const { state, frame } = way;
      state.open();
      if (state.bytes.length > 0) this.reading.push(way);
      for (const target of state.empty) this.#reach(target, frame);
      for (const { rule, target } of state.calls) this.#call(rule, target, frame);
      if (state.isEnd) this.#return(frame);
    }
  }

  #reach(state: State, frame: Frame | OpenFrame): void {
    const firstFrame = this.#firstFrames.get(state);
    if (firstFrame === frame) return;
    if (firstFrame === undefined) this.#firstFrames.set(state, frame);
    else {
      const key = `${state.id}.${frame.id}`;
      if (this.#furtherKeys.has(key)) return;
      this.#furtherKeys.add(key);
    }
    if (this.#firstFrames.size + this.#furtherKeys.size > MAX_WAYS) {
      throw tooLarge(`the grammar can be read in more than ${MAX_WAYS} ways at one place; make it less ambiguous`);
    }
    this.#pending.push({ state, frame });
  }

  /** Calls a rule. All calls of this rule within one closure share a frame. */
  #call(rule: Rule, target: State, frame: Frame | OpenFrame): void {
    let openFrame = this.#openFrames.get(rule);
    if (!openFrame) {
      openFrame = new OpenFrame();
      this.#openFrames.set(rule, openFrame);
      this.#reach(rule.start, openFrame);
    }
    // A tail call inherits its caller's returns, so that right-recursive lists need no stack.
    if (target.isEnd) openFrame.inherit(frame);
    else openFrame.add(target, frame);
    if (!this.#endedFrames.has(openFrame)) return;
    // An earlier call found that the rule can match the empty text, so this call can return at once.
    if (target.isEnd) this.#return(frame);
    else this.#reach(target, frame);
  }

  /** Continues after a rule has ended, at each return of its frame. */
  #return(frame: Frame | OpenFrame): void {
    const pending = [frame];
    for (let endedFrame = pending.pop(); endedFrame !== undefined; endedFrame = pending.pop()) {
      if (this.#endedFrames.has(endedFrame)) continue;
      this.#endedFrames.add(endedFrame);
      if (endedFrame instanceof OpenFrame) pending.push(...endedFrame.inherited);
      else if (endedFrame.isBottom) this.mayEnd = true;
      for (const { target, below } of endedFrame.returns) this.#reach(target, below);
    }
  }
}

/** A return from a called rule: the caller's state after the call, and the caller's own frame. */
interface Return<F> {
  readonly target: State;
  readonly below: F;
}

let lastId = 0;

/** A node of the stacks that ways share: all returns of a called rule. Equal frames are one object, as long as `KnownFrames` remembers them. */
class Frame {
  /** The frame of the grammar's root rule: when the root ends, the text may end. */
  static readonly BOTTOM = new Frame([], true);

  readonly id: number;
  readonly returns: readonly Return<Frame>[];
  /** True when the text may also end where the frame's rule ends. */
  readonly isBottom: boolean;

  constructor(returns: readonly Return<Frame>[], isBottom: boolean) {
    lastId += 1;
    this.id = lastId;
    this.returns = returns;
    this.isBottom = isBottom;
  }
}

/** Estimated sizes of a frame and of each of its returns in V8's heap. */
const FRAME_BYTES = 300;
const RETURN_BYTES = 120;

/** Remembered frames by their content, so that an equal frame is not made again. */
class KnownFrames {
  readonly #frames = new Map<string, Frame>();
  #bytes = 0;

  /** Bytes of all frames that were ever added. */
  get bytes(): number {
    return this.#bytes;
  }

  get(key: string): Frame | undefined {
    return this.#frames.get(key);
  }

  add(key: string, frame: Frame): void {
    this.#frames.set(key, frame);
    this.#bytes += FRAME_BYTES + RETURN_BYTES * frame.returns.length;
  }

  forget(): void {
    this.#frames.clear();
  }
}

/** A frame under construction: more calls of its rule may be found. */
class OpenFrame {
  readonly id: number;
  readonly returns: Return<Frame | OpenFrame>[] = [];
  /** Frames whose returns are also returns of this frame, because of tail calls. */
  readonly inherited = new Set<Frame | OpenFrame>();
  #closed: Frame | undefined;

  constructor() {
    lastId += 1;
    this.id = lastId;
  }

  add(target: State, below: Frame | OpenFrame): void {
    this.returns.push({ target, below });
  }

  inherit(frame: Frame | OpenFrame): void {
    this.inherited.add(frame);
  }

  /** The frame of all returns found, or an equal one of `known`. This ends, because open frames form no cycle: a cycle would be left recursion. */
  close(known: KnownFrames): Frame {
    if (this.#closed) return this.#closed;
    const closed = (frame: Frame | OpenFrame) => (frame instanceof OpenFrame ? frame.close(known) : frame);
    const returns = new Map<string, Return<Frame>>();
    const add = (target: State, below: Frame) => returns.set(`${target.id}.${below.id}`, { target, below });
    let isBottom = false;
    for (const { target, below } of this.returns) add(target, closed(below));
    for (const frame of this.inherited) {
      const inheritedFrame = closed(frame);
      for (const { target, below } of inheritedFrame.returns) add(target, below);
      isBottom ||= inheritedFrame.isBottom;
    }
    const key = `${isBottom} ${[...returns.keys()].sort().join(' ')}`;
    this.#closed = isBottom && returns.size === 0 ? Frame.BOTTOM : known.get(key);
    if (!this.#closed) {
      this.#closed = new Frame([...returns.values()], isBottom);
      known.add(key, this.#closed);
    }
    return this.#closed;
  }
}

/**
 * Ways within JSON strings whose rule several grammars share. A way is a state and the stack of frames with the returns to its callers. Each stack is
 * split where the string's rule returns: the part within the string is the same in all these grammars.
 */
interface StringWays {
  /** The ways with the parts of their stacks within the string. These parts end in `Frame.BOTTOM` where the string's rule returns. */
  readonly ways: readonly OpenWay[];
  /** The rest of the stack, equal for all ways: the returns of the string's rule. */
  readonly frame: Frame;
}

/** Splits the stacks of `ways` at the string's rule. Returns undefined if a way lies outside shared strings, or if the rests of the stacks differ. */
function stringWays(ways: readonly Way[]): StringWays | undefined {
  const innerWays: OpenWay[] = [];
  let commonBelow: Frame | undefined;
  const knownSplits = new Map<Frame, SplitFrame>();
  for (const { state, frame } of ways) {
    const innerState = followTailCalls(state);
    if (!innerState.isShared) return undefined;
    const split = splitFrame(frame, knownSplits);
    if (!split) return undefined;
    if (commonBelow && split.below !== commonBelow) return undefined;
    commonBelow = split.below;
    innerWays.push({ state: innerState, frame: split.inner });
  }
  return commonBelow && { ways: innerWays, frame: commonBelow };
}

/**
 * Follows tail calls. While the only transition of a state is a call with which the state's rule ends, goes on to the start of the called rule.
 * Returns the first state that is not of this kind. The frame of a way stays the same, because a tail call adds no return.
 */
function followTailCalls(state: State): State {
  let current = state;
  for (;;) {
    current.open();
    const [call, ...otherCalls] = current.calls;
    const hasOtherTransitions = otherCalls.length > 0 || current.bytes.length > 0 || current.empty.length > 0;
    if (!call?.target.isEnd || hasOtherTransitions) return current;
    current = call.rule.start;
  }
}

/** A stack in two parts. */
interface SplitFrame {
  /** The part within the string. It ends in `Frame.BOTTOM` where the string's rule returns. */
  readonly inner: Frame | OpenFrame;
  /** The returns of the string's rule. */
  readonly below: Frame;
}

/**
 * Splits a stack where the string's rule returns. A return to a shared state belongs to the part within the string, because only rules called within
 * the string return to shared states. Returns undefined if the branches of the stack differ below the string.
 */
function splitFrame(frame: Frame, knownSplits: Map<Frame, SplitFrame>): SplitFrame | undefined {
  const known = knownSplits.get(frame);
  if (known) return known;
  const isWithinString = !frame.isBottom && frame.returns.some(({ target }) => target.isShared);
  if (!isWithinString) return { inner: Frame.BOTTOM, below: frame };
  const inner = new OpenFrame();
  let commonBelow: Frame | undefined;
  for (const { target, below } of frame.returns) {
    const split = target.isShared ? splitFrame(below, knownSplits) : undefined;
    if (!split) return undefined;
    if (commonBelow && split.below !== commonBelow) return undefined;
    commonBelow = split.below;
    inner.add(target, split.inner);
  }
  if (!commonBelow) return undefined;
  const split = { inner, below: commonBelow };
  knownSplits.set(frame, split);
  return split;
}

/** A holder of computed values. It can free their memory, and compute them again later. */
interface Forgetful {
  forget(): void;
}

/** Bounds the memory that all holders of one kind take together in a worker. Beyond the bound, all holders forget at once. */
export class MemoryBound<T extends Forgetful> {
  readonly #mostBytes: number;
  readonly #holders = new Map<T, number>();
  #bytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** Counts `bytes` that `holder` is about to take. If they would exceed the bound, all holders forget first. */
  take(holder: T, bytes: number): void {
    if (this.#bytes + bytes > this.#mostBytes) for (const each of [...this.#holders.keys()]) this.forget(each);
    this.#bytes += bytes;
    this.#holders.set(holder, (this.#holders.get(holder) ?? 0) + bytes);
  }

  forget(holder: T): void {
    this.#bytes -= this.#holders.get(holder) ?? 0;
    this.#holders.delete(holder);
    holder.forget();
  }
}
