import type { Forced } from '../messages.ts';
import { tooLarge } from '../translate/error.ts';
import type { Rule, State } from './automaton.ts';
import { Frame, KnownFrames, OpenFrame } from './frames.ts';
import { MemoryBound } from './memory.ts';

/** Most ways through the grammar that are followed at once. */
const MAX_WAYS = 4096;
/** Most bytes of places and masks of all grammars of a worker; its heap also holds the grammars' automata. */
export const MAX_PLACE_BYTES = 128 << 20;
/** Estimated sizes in V8's heap. */
const PLACE_BYTES = 250;
const WAY_BYTES = 120;
const NEXT_BYTES = 256 * 8;
const FORCED_BYTES = 250;

/** One way to read a text so far: the state in a rule, and the returns of that rule. */
interface Way {
  readonly state: State;
  readonly frame: Frame;
}

/** The state of a text in a grammar: all ways to read it so far. Equal places are one object, as long as both are remembered. */
export class Place {
  readonly ways: readonly Way[];
  /** True when the text may end here. */
  readonly mayEnd: boolean;
  /** The place after each byte: null where no text continues, undefined before the first query. The list is made with the first query. */
  next: (Place | null | undefined)[] | undefined;
  /** The tokens that may come here, once computed. */
  mask: Uint32Array | undefined;
  /** The text that must come here, once computed. */
  forced: Forced | undefined;

  constructor(ways: readonly Way[], mayEnd: boolean) {
    this.ways = ways;
    this.mayEnd = mayEnd;
  }
}

/**
 * The places of a grammar, made as texts reach them: a lazily determinized pushdown automaton. Its stacks share common parts (a
 * graph-structured stack, as in Scott and Johnstone, "GLL parsing", 2010), so ambiguous grammars do not multiply them. The grammar has no
 * left recursion, so only finitely many ways are reachable without a byte. Remembered places are forgotten when they take too much memory;
 * the places of current texts stay valid.
 */
export class Places {
  readonly start: Place;
  readonly #memory: MemoryBound<Places>;
  readonly #known = new Map<string, Place>();
  readonly #frames = new KnownFrames();
  /** Places with successors or a mask, including forgotten places that a text was still at. */
  readonly #leading = new Set<Place>();

  /**
   * @param memory shared with the other grammars of the worker
   * @throws GrammarError `limit-exceeded` when the beginning has too many ways
   */
  constructor(root: Rule, memory = new MemoryBound<Places>(MAX_PLACE_BYTES)) {
    this.#memory = memory;
    this.start = this.#close([{ state: root.start, frame: Frame.BOTTOM }]);
  }

  /** The place after one more byte, or null if no text continues with it. @throws GrammarError `limit-exceeded` for too many ways */
  after(place: Place, byte: number): Place | null {
    const known = place.next?.[byte];
    if (known !== undefined) return known;
    // All bytes around this one that take the same edges lead to the same place.
    let low = 0;
    let high = 255;
    const reached: Way[] = [];
    for (const { state, frame } of place.ways) {
      for (const { from, to, target } of state.bytes) {
        if (byte < from) high = Math.min(high, from - 1);
        else if (byte > to) low = Math.max(low, to + 1);
        else {
          low = Math.max(low, from);
          high = Math.min(high, to);
          reached.push({ state: target, frame });
        }
      }
    }
    const next = reached.length === 0 ? null : this.#close(reached);
    this.#lead(place).fill(next, low, high + 1);
    return next;
  }

  /** Remembers the mask of a place. */
  keepMask(place: Place, mask: Uint32Array): void {
    this.#memory.take(this, mask.byteLength);
    place.mask = mask;
    this.#leading.add(place);
  }

  /** The only byte that may come at a place; undefined where the text may end or has a choice. */
  only({ ways, mayEnd }: Place): number | undefined {
    let only: number | undefined;
    if (mayEnd) return undefined;
    for (const { state } of ways) {
      for (const { from, to } of state.bytes) {
        if (from !== to || (only !== undefined && only !== from)) return undefined;
        only = from;
      }
    }
    return only;
  }

  /** Remembers the text that must come at a place. */
  keepForced(place: Place, forced: Forced): void {
    this.#memory.take(this, FORCED_BYTES + forced.bytes.byteLength);
    place.forced = forced;
    this.#leading.add(place);
  }

  /** Forgets all places but the start, and the start's successors. */
  forget(): void {
    for (const place of this.#leading) {
      place.next = undefined;
      place.mask = undefined;
      place.forced = undefined;
    }
    this.#leading.clear();
    this.#known.clear();
    this.#frames.forget();
  }

  #lead(place: Place): (Place | null | undefined)[] {
    if (!place.next) {
      this.#memory.take(this, NEXT_BYTES);
      place.next = new Array(256).fill(undefined);
      this.#leading.add(place);
    }
    return place.next;
  }

  /** The place of these ways and of all ways reachable from them without a byte. */
  #close(ways: readonly Way[]): Place {
    const closure = new Closure(ways);
    const framesBefore = this.#frames.bytes;
    const reading = new Map<string, Way>();
    for (const { state, frame } of closure.reading) {
      const closed = frame instanceof OpenFrame ? frame.close(this.#frames) : frame;
      reading.set(`${state.id}.${closed.id}`, { state, frame: closed });
    }
    return this.#remember(reading, closure.mayEnd, this.#frames.bytes - framesBefore);
  }

  #remember(reading: ReadonlyMap<string, Way>, mayEnd: boolean, frameBytes: number): Place {
    const key = `${mayEnd} ${[...reading.keys()].sort().join(' ')}`;
    const known = this.#known.get(key);
    if (known) return known;
    this.#memory.take(this, PLACE_BYTES + WAY_BYTES * reading.size + frameBytes);
    const place = new Place([...reading.values()], mayEnd);
    this.#known.set(key, place);
    return place;
  }
}

/** All ways that are reachable from some ways without a byte. */
class Closure {
  /** The ways that can read a byte. */
  readonly reading: { readonly state: State; readonly frame: Frame | OpenFrame }[] = [];
  mayEnd = false;
  readonly #pending: { readonly state: State; readonly frame: Frame | OpenFrame }[] = [];
  readonly #seen = new Set<string>();
  readonly #ended = new Set<Frame | OpenFrame>();
  readonly #open = new Map<Rule, OpenFrame>();

  constructor(ways: readonly Way[]) {
    for (const { state, frame } of ways) this.#reach(state, frame);
    for (let way = this.#pending.pop(); way !== undefined; way = this.#pending.pop()) {
      const { state, frame } = way;
      if (state.bytes.length > 0) this.reading.push(way);
      for (const target of state.empty) this.#reach(target, frame);
      for (const { rule, target } of state.calls) this.#call(rule, target, frame);
      if (isEnd(state)) this.#return(frame);
    }
  }

  #reach(state: State, frame: Frame | OpenFrame): void {
    const key = `${state.id}.${frame.id}`;
    if (this.#seen.has(key)) return;
    this.#seen.add(key);
    if (this.#seen.size > MAX_WAYS) {
      throw tooLarge(`the grammar can be read in more than ${MAX_WAYS} ways at one place; make it less ambiguous`);
    }
    this.#pending.push({ state, frame });
  }

  /** All calls of a rule at one place share a frame. */
  #call(rule: Rule, target: State, frame: Frame | OpenFrame): void {
    let open = this.#open.get(rule);
    if (!open) {
      open = new OpenFrame();
      this.#open.set(rule, open);
      this.#reach(rule.start, open);
    }
    // A tail call inherits its caller's returns, so that right-recursive lists need no stack.
    if (isEnd(target)) open.inherit(frame);
    else open.add(target, frame);
    if (!this.#ended.has(open)) return;
    // The rule may match the empty text, and was found to do so before this call.
    if (isEnd(target)) this.#return(frame);
    else this.#reach(target, frame);
  }

  /** Continues after a rule has ended, at all its calls. */
  #return(frame: Frame | OpenFrame): void {
    const pending = [frame];
    for (let ended = pending.pop(); ended !== undefined; ended = pending.pop()) {
      if (this.#ended.has(ended)) continue;
      this.#ended.add(ended);
      if (ended instanceof OpenFrame) pending.push(...ended.inherited);
      else if (ended.isBottom) this.mayEnd = true;
      for (const { target, below } of ended.returns) this.#reach(target, below);
    }
  }
}

/** True for a state without transitions: the end of its rule. */
function isEnd({ bytes, empty, calls }: State): boolean {
  return bytes.length === 0 && empty.length === 0 && calls.length === 0;
}
