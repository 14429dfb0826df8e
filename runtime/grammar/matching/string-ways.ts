import type { OpenWay, Way } from './closure.ts';
import { Frame, OpenFrame } from './frames.ts';
import type { State } from './state.ts';

/** Ways within strings that grammars share, without the frames below the string's rule. */
interface StringWays {
  readonly ways: readonly OpenWay[];
  /** The returns of the string's rule. The frames of `ways` end in `Frame.BOTTOM` instead. */
  readonly frame: Frame;
}

/** Cuts off the stacks of `ways` below the string's rule. Returns undefined if a way lies outside shared strings, or the string's returns differ. */
export function stringWays(ways: readonly Way[]): StringWays | undefined {
  const found: OpenWay[] = [];
  let common: Frame | undefined;
  const known = new Map<Frame, Relative>();
  for (const { state, frame } of ways) {
    const start = followTailCalls(state);
    if (!start.isShared) return undefined;
    const relative = relativeOf(frame, known);
    if (!relative || (common && relative.below !== common)) return undefined;
    common = relative.below;
    found.push({ state: start, frame: relative.frame });
  }
  return common && { ways: found, frame: common };
}

/** Follows states that only call a rule at the end of their own rule. Returns the start of the last rule called. */
function followTailCalls(state: State): State {
  for (let at = state; ; ) {
    at.open();
    const [call, ...more] = at.calls;
    if (!call?.target.isEnd || more.length > 0 || at.bytes.length > 0 || at.empty.length > 0) return at;
    at = call.rule.start;
  }
}

/** A frame in two parts: `frame` ends where the string's rule returns, and `below` has the returns of that rule. */
interface Relative {
  readonly frame: Frame | OpenFrame;
  readonly below: Frame;
}

/** Cuts off `frame` below the string's rule. Keeps the returns to shared states: they belong to rules that the string's rule calls. */
function relativeOf(frame: Frame, known: Map<Frame, Relative>): Relative | undefined {
  const made = known.get(frame);
  if (made) return made;
  const isInner = !frame.isBottom && frame.returns.some(({ target }) => target.isShared);
  if (!isInner) return { frame: Frame.BOTTOM, below: frame };
  const open = new OpenFrame();
  let common: Frame | undefined;
  for (const { target, below } of frame.returns) {
    const relative = target.isShared ? relativeOf(below, known) : undefined;
    if (!relative || (common && relative.below !== common)) return undefined;
    common = relative.below;
    open.add(target, relative.frame);
  }
  if (!common) return undefined;
  const relative = { frame: open, below: common };
  known.set(frame, relative);
  return relative;
}
