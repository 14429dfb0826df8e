import type { Shortfall } from '#scheduler/policies/victims.ts';
import type { Contender } from './contender.ts';
import type { Page } from './pool.ts';
import { FrameGain, type FrameNeed, framesNeeded, type IdleHolders, type SwapRoom } from './pressure.ts';
import type { PageSpace } from './space.ts';

/** A claim, and what memory has for it while all others stay. */
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
  readonly #short: number;

  constructor({ requester, need, free, idle, room }: Claim) {
    this.#requester = requester;
    this.#gain = new FrameGain(idle, room);
    this.#short = framesNeeded(need, []) - free;
  }

  get missing(): number {
    return this.#short - this.#gain.frames;
  }

  leave(family: Contender): void {
    this.#change(family, 1);
  }

  stay(family: Contender): void {
    this.#change(family, -1);
  }

  #change({ spaces }: Contender, change: 1 | -1): void {
    for (const space of spaces)
      if (space !== this.#requester && space.pins === 0 && !space.movable) this.#gain.idle(space, change);
  }
}

/** The frames that a claim still lacks while inferlets are ended one by one. */
export class EndingShortfall implements Shortfall<PageSpace> {
  readonly #need: FrameNeed;
  readonly #free: number;
  readonly #gain: FrameGain;
  readonly #idle: ReadonlySet<object>;
  /** References of ended inferlets to the pages that the claim writes. */
  readonly #gone = new Map<Page, number>();

  constructor({ need, free, idle, room }: Claim) {
    this.#need = need;
    this.#free = free;
    this.#gain = new FrameGain(idle, room);
    this.#idle = new Set(idle.spaces);
  }

  get missing(): number {
    return framesNeeded(this.#need, [{ held: this.#gone }]) - this.#free - this.#gain.frames;
  }

  leave(space: PageSpace): void {
    this.#change(space, 1);
  }

  stay(space: PageSpace): void {
    this.#change(space, -1);
  }

  #change(space: PageSpace, change: 1 | -1): void {
    const { held } = space;
    this.#gain.end({ held }, change, this.#idle.has(space));
    for (const page of this.#need.copies.keys()) {
      const references = held.get(page);
      if (references) this.#gone.set(page, (this.#gone.get(page) ?? 0) + change * references);
    }
  }
}
