import type { Batcher } from '../../batcher/batcher.ts';
import { CallHeld } from '../../memory/fault.ts';
import { type HostCall, InstantCall } from '../calls/call.ts';
import { BarrierCall, MemoryCall } from '../calls/memory-call.ts';
import type { DeviceTime } from '../sharing/meter.ts';
import type { StepGaps, ThreadShare } from '../sharing/thread-share.ts';
import type { CallEnds } from './beside-steps.ts';
import type { Preemption } from './preemption.ts';

/** The parts of the engine that the calls without a step use. */
export interface InstantParts {
  readonly batcher: Batcher;
  /** Charges the inferlets. */
  readonly time: DeviceTime;
  /** Executes long calls of tenants that have used their share of `thread`. */
  readonly gaps: StepGaps;
  readonly thread: ThreadShare;
  /** Holds a call that waits for memory. The call has changed nothing, and is executed again later. */
  readonly preemption: Pick<Preemption, 'hold'>;
}

/** The engine, as the calls that need no step see it. */
export interface InstantEngine extends Pick<CallEnds, 'finish' | 'fail'> {
  /** Wakes the engine for work between two batches. */
  wake(): void;
}

/** After this time, ms, a turn begins no further call that needs no step. After the turn, the thread reads sockets and starts the next step. */
const INSTANTS_MS = 4;
/** Maximum thread time of one call that is not charged: a smaller charge is not worth its bookkeeping. */
const FREE_MS = 0.1;

/**
 * Cost of an allocated page in the tenant's share of the thread, ms. An inferlet that allocates and frees pages in a loop computes nothing, but makes
 * the host evict and swap pages of its tenant. Beside other tenants, it may so allocate some 6,000 pages a second: more than prefills fill.
 */
const PAGE_MS = 0.01;

/** Executes the calls of one model that need no step, between two batches. */
export class Instants {
  readonly #batcher: Batcher;
  readonly #time: DeviceTime;
  readonly #gaps: StepGaps;
  readonly #thread: ThreadShare;
  readonly #preemption: Pick<Preemption, 'hold'>;
  readonly #engine: InstantEngine;
  /** Completions of calls (for example on a disk), to be handled between two batches. */
  #completions: (() => void)[] = [];

  constructor({ batcher, time, gaps, thread, preemption }: InstantParts, engine: InstantEngine) {
    this.#batcher = batcher;
    this.#time = time;
    this.#gaps = gaps;
    this.#thread = thread;
    this.#preemption = preemption;
    this.#engine = engine;
  }

  /** True when completions wait to be handled. */
  get isWaiting(): boolean {
    return this.#completions.length > 0;
  }

  /** Runs `action` between two batches. */
  later(action: () => void): void {
    this.#completions.push(action);
    this.#engine.wake();
  }

  /** Executes completions and ready calls. Returns true when the time ran out: other work then has its turn before the remaining calls. */
  run(): boolean {
    for (const action of this.#completions.splice(0)) action();
    const untilMs = performance.now() + INSTANTS_MS;
    for (let call = this.#batcher.takeInstant(); call; call = this.#batcher.takeInstant()) {
      if (call instanceof InstantCall || call instanceof BarrierCall) this.#execute(call);
      if (performance.now() > untilMs) return true;
    }
    return false;
  }

  /** Executes allocations for which a page was set aside. They change nothing that a batch uses, so they need not wait for its end. */
  allocateSpared(): void {
    for (let call = this.#batcher.takeInstant(isSpared); call; call = this.#batcher.takeInstant(isSpared))
      this.#execute(call as MemoryCall);
  }

  /** Charges an inferlet for the thread's time since `startedMs`, except `spentMs`, which was charged already. A short time is free. */
  chargeSince(startedMs: number, { hostQueue: { space } }: HostCall, spentMs = 0): void {
    const ms = performance.now() - startedMs - spentMs;
    if (ms > FREE_MS) this.#time.spendFor(ms, space.port.meter);
  }

  #execute(call: InstantCall | BarrierCall): void {
    const [startedMs, spentNs] = [performance.now(), this.#time.spentNs];
    this.#start(call);
    const spentMs = call.isLong ? performance.now() - startedMs : 0;
    const pagesMs = call instanceof MemoryCall ? call.payPages() * PAGE_MS : 0;
    if (spentMs + pagesMs > 0) this.#thread.spend(call.hostQueue.space.owner.tenant, Math.max(spentMs, pagesMs));
    this.chargeSince(startedMs, call, (this.#time.spentNs - spentNs) / 1e6);
  }

  #mayWork(call: InstantCall | BarrierCall): boolean {
    const isPaced = call.isLong || (call instanceof MemoryCall && call.unpaidPages > 0);
    return !isPaced || this.#thread.mayWork(call.hostQueue.space.owner.tenant);
  }

  async #executeInGap(call: InstantCall | BarrierCall): Promise<void> {
    const { space } = call.hostQueue;
    let completion: undefined | Promise<void>;
    const execute = (): false | undefined => {
      // The pages of a closed space may belong to another inferlet by now.
      if (space.closed) return undefined;
      completion = call.execute();
      return false;
    };
    await this.#gaps.work(execute, space.owner.tenant, space.port.meter);
    await completion;
  }

  #start(call: InstantCall | BarrierCall): void {
    try {
      const pending = this.#mayWork(call) ? call.execute() : this.#executeInGap(call);
      if (!pending) this.#engine.finish(call);
      else
        pending.then(
          () => this.later(() => this.#engine.finish(call)),
          (error: unknown) => this.later(() => this.#fail(call, error)),
        );
    } catch (error) {
      this.#fail(call, error);
    }
  }

  #fail(call: HostCall, error: unknown): void {
    if (!(error instanceof CallHeld)) this.#engine.fail(call, error);
    else if (call.hostQueue.space.closed) this.#engine.finish(call);
    else this.#preemption.hold(call);
  }
}

const isSpared = (_tenant: string, call: unknown): boolean => call instanceof MemoryCall && call.spared !== undefined;
