import { setImmediate } from 'node:timers/promises';
import type { Batcher } from '../../batcher/batcher.ts';
import type { DeviceMemory } from '../../memory/device-memory.ts';
import { CallFault, CallHeld } from '../../memory/fault.ts';
import type { Page } from '../../memory/pool.ts';
import type { Relief } from '../../memory/relief.ts';
import type { Contender, PageSpace } from '../../memory/space.ts';
import { unexpected } from '../../unexpected.ts';
import type { HostCall, ModelSpace } from '../calls/call.ts';
import type { StepGaps } from '../sharing/thread-share.ts';
import type { ModelSpaces } from './spaces.ts';

/**
 * Time for which the device may do nothing while calls are held. After it, each family (an invocation and its children) of a tenant that waits for
 * memory, or that holds more than its share, counts as waiting, and the first held family that fits goes on. Longer than the time between a result and
 * the next call, shorter than most waits that inferlets announce.
 */
const STALL_MS = 20;
/**
 * Maximum held families for which one search between two steps counts the pages of all others, which takes some tenths of a millisecond each with
 * many families. The search after the next step goes on with the rest.
 */
const MAX_COUNTED = 4;
/** Time after which held calls that no family could go on with are considered again: other tenants keep their shares for a while after they end. */
const RETRY_MS = 500;

/** Holds the calls of preempted families on one model, and lets them go when their family returns. */
export class Preemption {
  readonly #relief: Relief;
  readonly #batcher: Batcher;
  readonly #spaces: ModelSpaces;
  readonly #engine: { wake(): void };
  #timer: NodeJS.Timeout | undefined;

  /** @param engine is woken when held calls may go on */
  constructor(relief: Relief, batcher: Batcher, spaces: ModelSpaces, engine: { wake(): void }) {
    this.#relief = relief;
    this.#batcher = batcher;
    this.#spaces = spaces;
    this.#engine = engine;
  }

  spaceOf(pages: PageSpace): ModelSpace | undefined {
    return this.#spaces.of(pages);
  }

  /** Holds the family's ready calls. Its later calls, and those on the device, are held when their turn comes. */
  preempt(family: Contender): void {
    for (const pages of family.spaces) {
      const space = this.spaceOf(pages);
      for (const { batchQueue: order } of space?.queues ?? []) {
        for (const call of [order.front, ...order.heldCalls]) {
          if (call?.state !== 'ready' || !space?.park(call as HostCall)) continue;
          this.#batcher.pause(call);
        }
      }
    }
  }

  /** Holds a call that was chosen to go and needs more memory than there is. */
  hold(call: HostCall): void {
    this.#batcher.hold(call);
    // A call that follows another held one is queued again, not paused: it waits for that call without being held.
    if (call.state !== 'paused' || call.hostQueue.space.park(call)) return;
    // The family has returned while the call waited for a disk.
    this.#batcher.resume(call, performance.now());
  }

  /** Lets a paused call go, or holds it while its family is preempted. */
  resume(call: HostCall): void {
    if (call.hostQueue.space.park(call)) this.#batcher.pause(call);
    else this.#batcher.resume(call, performance.now());
  }

  /** Resumes a held call of a preempted family, because it needs no memory any more. Returns false when the call is not held. */
  release(call: HostCall): boolean {
    const { space } = call.hostQueue;
    if (!space.parkedCalls.has(call)) return false;
    space.unpark(call);
    this.#batcher.resume(call, performance.now());
    return true;
  }

  /** Lets the held calls of a space go on, unless its family is preempted. */
  goOn(space: ModelSpace): void {
    if (space.pages.contender.isAway) return;
    this.#goOn(space);
    this.#engine.wake();
  }

  /** Lets those families return whose pages fit. Between two steps, it may leave a part of the search to the next call. */
  admit(): void {
    this.#admit(MAX_COUNTED);
  }

  #admit(maxCounted?: number): boolean {
    let anyReturned = false;
    for (let family = this.#relief.next(maxCounted); family; family = this.#relief.next(maxCounted)) {
      anyReturned = true;
      for (const pages of family.spaces) this.#goOn(this.spaceOf(pages));
    }
    return anyReturned;
  }

  /** The engine calls this method when the device has no work. Returns true when a family returned. */
  idle(): boolean {
    if (!this.#relief.holdsCalls) return false;
    this.#relief.noteChange();
    if (this.#admit()) return true;
    this.#timer ??= setTimeout(() => void this.#stalled(), STALL_MS);
    return false;
  }

  async #stalled(): Promise<void> {
    const timer = this.#timer;
    // This thread may have stood still meanwhile: one turn of the event loop reads the calls that have come, and the next one begins them.
    await setImmediate();
    await setImmediate();
    if (this.#timer !== timer) return;
    this.#timer = undefined;
    if (this.#relief.stalled()) this.#engine.wake();
    else if (this.#relief.holdsCalls) this.#timer = setTimeout(() => void this.#stalled(), RETRY_MS);
  }

  /** The engine calls this method when the device has work, and when the host stops. */
  stopWatching(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #goOn(space: ModelSpace | undefined): void {
    if (!space) return;
    for (const call of [...space.parkedCalls]) {
      space.unpark(call);
      if (call.state === 'paused' && call.acquire()) this.#batcher.resume(call, performance.now());
    }
  }
}

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
