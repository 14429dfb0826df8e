import type { State } from './state.ts';

/** A return from a called rule: the caller's state after the call, and the caller's own frame. */
export interface Return<F> {
  readonly target: State;
  readonly below: F;
}

let lastId = 0;

/** A node of the stacks that ways share: all returns of a called rule. Equal frames are one object, as long as `KnownFrames` remembers them. */
export class Frame {
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
