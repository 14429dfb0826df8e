import type { DeviceMemory } from '../memory/device-memory.ts';
import { CallFault, CallHeld } from '../memory/fault.ts';
import type { Page } from '../memory/pool.ts';
import type { PageSpace } from '../memory/space.ts';
import { unexpected } from '../unexpected.ts';
import type { Preemption } from './preemption.ts';
import type { ModelSpace } from './space.ts';
import type { StepGaps } from './step-gaps.ts';

/** Maximum fetches that read the disk at once: each takes a buffer, and `TransferBuffers` has this many in pinned memory. */
const MOST_AT_ONCE = 8;

/** A fetch that waits for its turn. */
interface WaitingFetch {
  readonly frames: number;
  readonly start: () => void;
}

/**
 * Brings pages of inferlets back from swap on disk. The inferlet's calls that need pages are held meanwhile, and the others go on. Fetches
 * beyond `MOST_AT_ONCE`, and those for which no frames are left beside others, wait for their turn.
 */
export class Fetches {
  readonly #memory: DeviceMemory;
  readonly #gaps: StepGaps;
  readonly #preemption: Preemption;
  readonly #running = new Set<Promise<void>>();
  readonly #waiting: WaitingFetch[] = [];
  /** Number of fetches that read the disk, and frames for all their pages. */
  #reading = 0;
  #frames = 0;

  /** @param preemption holds the calls, and lets them go when the pages are back */
  constructor(memory: DeviceMemory, gaps: StepGaps, preemption: Preemption) {
    this.#memory = memory;
    this.#gaps = gaps;
    this.#preemption = preemption;
  }

  /** Begins to bring back the pages `absent`, for which their space has claimed frames. */
  begin(pages: PageSpace, absent: readonly Page[]): void {
    const running = this.#fetch(pages, absent).finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Resolves when no disk is read any more. */
  async ended(): Promise<void> {
    // A copy in a gap may begin another fetch meanwhile.
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  async #fetch(pages: PageSpace, absent: readonly Page[]): Promise<void> {
    const space = this.#preemption.spaceOf(pages);
    const hasWaited = await this.#turn(absent.length, space);
    let isReading = false;
    try {
      if (!space || hasWaited === null) return;
      const between = (move: () => void) => this.#between(space, move);
      // Others may have taken the frames meanwhile.
      if (hasWaited) await between(() => this.#memory.claim(pages, absent.length));
      if (space.closed) return;
      isReading = true;
      await this.#memory.bringFromDisk(pages, absent, between);
    } catch (error) {
      // The calls meet the same refusal when they go on.
      if (!(error instanceof CallHeld || error instanceof CallFault)) unexpected(error);
    } finally {
      if (hasWaited !== null) this.#leave(absent.length);
      pages.isFetching = false;
      pages.readsItself = isReading && absent.some(({ frame }) => frame < 0);
      if (space && !space.closed) this.#preemption.goOn(space);
    }
  }

  /** Does `move` between two steps, unless the space has ended. */
  #between(space: ModelSpace, move: () => void): Promise<void> {
    const moveOpen = (): false | undefined => {
      // The pages of a closed space may belong to another inferlet by now.
      if (space.closed) return undefined;
      move();
      return false;
    };
    return this.#gaps.work(moveOpen, space.owner.tenant, space.port.meter);
  }

  /**
   * Resolves when a fetch of so many pages may read the disk: true when it had to wait. `leave` must follow. Null when its space has ended
   * while it waited.
   */
  #turn(frames: number, space: ModelSpace | undefined): Promise<boolean | null> {
    if (this.#waiting.length === 0 && this.#hasRoom(frames)) {
      this.#enter(frames);
      return Promise.resolve(false);
    }
    return new Promise((resolve) => {
      const start = () => {
        space?.whenClosed.delete(drop);
        resolve(true);
      };
      const waiting = { frames, start };
      const drop = () => {
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        resolve(null);
        this.#startNext();
      };
      this.#waiting.push(waiting);
      space?.whenClosed.add(drop);
    });
  }

  #enter(frames: number): void {
    this.#reading++;
    this.#frames += frames;
  }

  #leave(frames: number): void {
    this.#reading--;
    this.#frames -= frames;
    this.#startNext();
  }

  #startNext(): void {
    for (let next = this.#waiting[0]; next && this.#hasRoom(next.frames); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#enter(next.frames);
      next.start();
    }
  }

  #hasRoom(frames: number): boolean {
    if (this.#reading === 0) return true;
    return this.#reading < MOST_AT_ONCE && this.#frames + frames <= this.#memory.pool.free;
  }
}
