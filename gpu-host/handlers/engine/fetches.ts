import type { DeviceMemory } from '../../memory/device-memory.ts';
import { CallFault, CallHeld } from '../../memory/fault.ts';
import type { Page } from '../../memory/pool.ts';
import type { PageSpace } from '../../memory/space.ts';
import { unexpected } from '../../unexpected.ts';
import type { ModelSpace } from '../calls/space.ts';
import type { StepGaps } from '../sharing/step-gaps.ts';
import type { Preemption } from './preemption.ts';

/** Maximum fetches that read the disk at once. Each takes a transfer buffer, and `TransferBuffers` keeps this many in pinned memory. */
const MAX_CONCURRENT_READS = 8;

/** A fetch that waits until it may read the disk. */
interface WaitingFetch {
  readonly frames: number;
  readonly start: () => void;
}

/**
 * Brings pages of inferlets back from swap on disk. Meanwhile, the inferlet's calls that need pages are held, and its other calls go on. A fetch
 * waits for its turn while `MAX_CONCURRENT_READS` others read the disk, or while the free frames are too few for the pages of all fetches
 * together.
 */
export class Fetches {
  readonly #memory: DeviceMemory;
  readonly #gaps: StepGaps;
  readonly #preemption: Preemption;
  readonly #runningFetches = new Set<Promise<void>>();
  readonly #waitingFetches: WaitingFetch[] = [];
  /** Number of fetches that may read the disk now. */
  #readingCount = 0;
  /** Number of frames that all pages of these fetches need. */
  #readingFrames = 0;

  /** @param preemption holds the calls, and lets them go when the pages are back */
  constructor(memory: DeviceMemory, gaps: StepGaps, preemption: Preemption) {
    this.#memory = memory;
    this.#gaps = gaps;
    this.#preemption = preemption;
  }

  /** Begins to bring back the pages `absent`, for which their space has claimed frames. */
  begin(pages: PageSpace, absent: readonly Page[]): void {
    const runningFetch = this.#fetch(pages, absent).finally(() => this.#runningFetches.delete(runningFetch));
    this.#runningFetches.add(runningFetch);
  }

  /** Resolves when no fetch is under way any more. */
  async whenIdle(): Promise<void> {
    // A copy in a gap may begin another fetch meanwhile.
    while (this.#runningFetches.size > 0) await Promise.all(this.#runningFetches);
  }

  async #fetch(pages: PageSpace, absent: readonly Page[]): Promise<void> {
    const space = this.#preemption.spaceOf(pages);
    const hasWaited = await this.#waitForTurn(absent.length, space);
    let isReading = false;
    try {
      if (!space || hasWaited === null) return;
      const between = (move: () => void) => this.#between(space, move);
      // Claim the frames again: while the fetch waited, other calls may have taken them.
      if (hasWaited) await between(() => this.#memory.claim(pages, absent.length));
      if (space.closed) return;
      isReading = true;
      await this.#memory.bringFromDisk(pages, absent, between);
    } catch (error) {
      // Report no refusal here: the held calls get it themselves when they go on.
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
   * Resolves when a fetch of `frames` pages may read the disk: with true when it had to wait, otherwise with false. The caller must call `#leave`
   * afterwards. Resolves with null when the space has ended while the fetch waited; the caller must not call `#leave` then.
   */
  #waitForTurn(frames: number, space: ModelSpace | undefined): Promise<boolean | null> {
    if (this.#waitingFetches.length === 0 && this.#hasRoom(frames)) {
      this.#enter(frames);
      return Promise.resolve(false);
    }
    return new Promise((resolve) => {
      const start = () => {
        space?.whenClosed.delete(drop);
        resolve(true);
      };
      const waitingFetch = { frames, start };
      const drop = () => {
        this.#waitingFetches.splice(this.#waitingFetches.indexOf(waitingFetch), 1);
        resolve(null);
        this.#startNext();
      };
      this.#waitingFetches.push(waitingFetch);
      space?.whenClosed.add(drop);
    });
  }

  #enter(frames: number): void {
    this.#readingCount++;
    this.#readingFrames += frames;
  }

  #leave(frames: number): void {
    this.#readingCount--;
    this.#readingFrames -= frames;
    this.#startNext();
  }

  #startNext(): void {
    for (let next = this.#waitingFetches[0]; next && this.#hasRoom(next.frames); next = this.#waitingFetches[0]) {
      this.#waitingFetches.shift();
      this.#enter(next.frames);
      next.start();
    }
  }

  #hasRoom(frames: number): boolean {
    if (this.#readingCount === 0) return true;
    return this.#readingCount < MAX_CONCURRENT_READS && this.#readingFrames + frames <= this.#memory.pool.free;
  }
}
