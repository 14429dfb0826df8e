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
