import type { Shortfall } from '#scheduler/policies/preemption.ts';
import type { Contender } from './contender.ts';
import type { Page } from './pool.ts';
import { FrameGain, type FrameNeed, framesNeeded, type IdleHolders, type SwapRoom } from './pressure.ts';
import type { PageSpace } from './space.ts';

/** A claim for frames, and the frames that memory can give it while no family is preempted and no inferlet is ended for it. */
export interface Claim {
  readonly requester: PageSpace;
  readonly need: FrameNeed;
  /** Free frames of the pool. */
  readonly free: number;
  /** Holders whose pages may go to swap, without the requester. */
  readonly idle: IdleHolders;
  readonly room: SwapRoom;
}

/** The frames that a claim still lacks while families are preempted one by one. */
export class PreemptionShortfall implements Shortfall<Contender> {
  readonly #requester: PageSpace;
  readonly #gain: FrameGain;
  readonly #shortFrames: number;

  constructor({ requester, need, free, idle, room }: Claim) {
    this.#requester = requester;
    this.#gain = new FrameGain(idle, room);
    this.#shortFrames = framesNeeded(need, []) - free;
  }

  get missing(): number {
    return this.#shortFrames - this.#gain.frames;
  }

  leave(family: Contender): void {
    this.#change(family, 1);
  }

  stay(family: Contender): void {
    this.#change(family, -1);
  }

  #change({ spaces }: Contender, change: 1 | -1): void {
    // A movable space counts as idle already.
    for (const space of spaces)
      if (space !== this.#requester && space.pins === 0 && !space.movable) this.#gain.changeIdle(space, change);
  }
}

/** The frames that a claim still lacks while inferlets are ended one by one. */
export class EndingShortfall implements Shortfall<PageSpace> {
  readonly #need: FrameNeed;
  readonly #freeFrames: number;
  readonly #gain: FrameGain;
  readonly #idleSpaces: ReadonlySet<object>;
  /** References of ended inferlets to the pages that the claim writes. */
  readonly #endedReferences = new Map<Page, number>();

  constructor({ need, free, idle, room }: Claim) {
    this.#need = need;
    this.#freeFrames = free;
    this.#gain = new FrameGain(idle, room);
    this.#idleSpaces = new Set(idle.spaces);
  }

  get missing(): number {
    return framesNeeded(this.#need, [{ held: this.#endedReferences }]) - this.#freeFrames - this.#gain.frames;
  }

  leave(space: PageSpace): void {
    this.#change(space, 1);
  }

  stay(space: PageSpace): void {
    this.#change(space, -1);
  }

  #change(space: PageSpace, change: 1 | -1): void {
    const { held } = space;
    this.#gain.changeEnded({ held }, change, this.#idleSpaces.has(space));
    for (const page of this.#need.copies.keys()) {
      const references = held.get(page);
      if (references) this.#endedReferences.set(page, (this.#endedReferences.get(page) ?? 0) + change * references);
    }
  }
}
