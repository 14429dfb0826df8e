import type { OpenWay, Way } from './closure.ts';
import { Frame, OpenFrame } from './frames.ts';
import type { State } from './state.ts';

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
export function stringWays(ways: readonly Way[]): StringWays | undefined {
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
