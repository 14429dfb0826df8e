import type { State } from './automaton.ts';

/** Where a call goes on, in a frame of its own. */
export interface Return<F> {
  readonly target: State;
  readonly below: F;
}

let lastId = 0;

/** All places that a rule goes back to when it ends: a node of the shared stacks. Equal ones are one object, as long as both are remembered. */
export class Frame {
  /** Of the root: when that ends, the text may end. */
  static readonly BOTTOM = new Frame([], true);

  readonly id: number;
  readonly returns: readonly Return<Frame>[];
  /** Whether the text may end here, besides. */
  readonly isBottom: boolean;

  constructor(returns: readonly Return<Frame>[], isBottom: boolean) {
    lastId += 1;
    this.id = lastId;
    this.returns = returns;
    this.isBottom = isBottom;
  }
}

/** Estimates of what they take in V8's heap. */
const FRAME_BYTES = 300;
const RETURN_BYTES = 120;

/** Frames that are remembered to be found again, by what they hold. */
export class KnownFrames {
  readonly #frames = new Map<string, Frame>();
  #bytes = 0;

  /** What all that were ever added take. */
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

/** A frame while calls of its rule are still being found. */
export class OpenFrame {
  readonly id: number;
  readonly returns: Return<Frame | OpenFrame>[] = [];
  /** Frames whose returns are its own as well. */
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

  /** The frame of all returns that were found, or an equal one of `known`. Open frames never stand in a circle: that would be left recursion. */
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
