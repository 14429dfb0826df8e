import { tooLarge } from '../translate/error.ts';
import { type Frame, OpenFrame } from './frames.ts';
import type { Rule, State } from './state.ts';

/** Maximum number of ways through the grammar that are followed at once. */
const MAX_WAYS = 4096;

/** One way to read a text so far: the state in a rule, and the returns of that rule. */
export interface Way {
  readonly state: State;
  readonly frame: Frame;
}

/** A way while its frame may be under construction. */
export interface OpenWay {
  readonly state: State;
  readonly frame: Frame | OpenFrame;
}

/** All ways that are reachable from some ways without a byte. */
export class Closure {
  /** The ways that can read a byte. */
  readonly reading: OpenWay[] = [];
  mayEnd = false;
  readonly #pending: OpenWay[] = [];
  /** The first frame of each state that was reached, and the keys of states that were reached with other frames. */
  readonly #seen = new Map<State, Frame | OpenFrame>();
  readonly #seenAgain = new Set<string>();
  readonly #ended = new Set<Frame | OpenFrame>();
  readonly #open = new Map<Rule, OpenFrame>();

  /**
   * @param ended a frame whose rule has just ended
   * @throws GrammarError `limit-exceeded` for too many ways
   */
  constructor(ways: readonly OpenWay[], ended?: Frame) {
    for (const { state, frame } of ways) this.#reach(state, frame);
    if (ended) this.#return(ended);
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
    const first = this.#seen.get(state);
    if (first === frame) return;
    if (first === undefined) this.#seen.set(state, frame);
    else {
      const key = `${state.id}.${frame.id}`;
      if (this.#seenAgain.has(key)) return;
      this.#seenAgain.add(key);
    }
    if (this.#seen.size + this.#seenAgain.size > MAX_WAYS) {
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
    if (target.isEnd) open.inherit(frame);
    else open.add(target, frame);
    if (!this.#ended.has(open)) return;
    // The rule may match the empty text, and was found to do so before this call.
    if (target.isEnd) this.#return(frame);
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
