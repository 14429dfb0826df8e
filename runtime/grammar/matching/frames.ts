import type { State } from './state.ts';

/** A return from a called rule: the caller's state after the call, and the caller's own frame. */
export interface Return<F> {
  readonly target: State;
  readonly below: F;
}

let lastId = 0;

/** All returns of a rule that may end next: a node of the stacks that ways share. Equal frames are one object, as long as both are remembered. */
export class Frame {
  /** The frame of the grammar's root rule: when the root ends, the text may end. */
  static readonly BOTTOM = new Frame([], true);

  readonly id: number;
  readonly returns: readonly Return<Frame>[];
  /** True when the text may also end here. */
  readonly isBottom: boolean;

  constructor(returns: readonly Return<Frame>[], isBottom: boolean) {
    lastId += 1;
    this.id = lastId;
    this.returns = returns;
    this.isBottom = isBottom;
  }
}

/** Estimated sizes in V8's heap. */
const FRAME_BYTES = 300;
const RETURN_BYTES = 120;

/** Remembered frames by content, so that equal frames are found again. */
export class KnownFrames {
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
export class OpenFrame {
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

  /** The frame of all found returns, or an equal one of `known`. Open frames form no cycle: that would be left recursion. */
  close(known: KnownFrames): Frame {
    if (this.#closed) return this.#closed;
    const closed = (frame: Frame | OpenFrame) => (frame instanceof OpenFrame ? frame.close(known) : frame);
    const returns = new Map<string, Return<Frame>>();
    const add = (target: State, below: Frame) => returns.set(`${target.id}.${below.id}`, { target, below });
    let isBottom = false;
    for (const { target, below } of this.returns) add(target, closed(below));
    for (const frame of this.inherited) {
      const { returns: theirs, isBottom: bottom } = closed(frame);
      for (const { target, below } of theirs) add(target, below);
      isBottom ||= bottom;
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
