import { Rotation } from '../../batcher/rotation.ts';
import type { TenantsAtWork } from './device-share.ts';
import type { DeviceTime, Payer } from './meter.ts';

/** Part of the thread's time that the long work of all tenants together may take while more than one tenant is at work. */
const SHARE = 1 / 16;
/** Maximum balance of a tenant, ms. */
const MAX_BALANCE_MS = 2;
/** A tenant counts as at work for this time after its last call, ms, because its guest may soon make the next call. */
const PRESENT_MS = 50;

interface TenantCall {
  readonly tenant: string;
  /** Time of the call, by the clock `#now`. */
  readonly ms: number;
}

/**
 * Divides the time of the host's thread, which all tenants share, among tenants that do *long work*: work that takes long and needs no device step. A
 * tenant that is alone at work does long work without a limit. While several tenants are at work, all long work together gets the part `SHARE` of the
 * time, which is divided equally among the tenants that do long work.
 */
export class ThreadShare {
  readonly #now: () => number;
  readonly #models: TenantsAtWork[] = [];
  /** Time that each tenant may still take, ms; negative after work that took longer. A tenant without an entry has the maximum balance. */
  readonly #balances = new Map<string, number>();
  /** Time of the last payment, by the clock `#now`. */
  #lastPaymentMs = 0;
  #latestCall: TenantCall | undefined;
  /** The latest call of another tenant than `#latestCall`. */
  #latestOtherCall: TenantCall | undefined;

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Adds a model. */
  join(calls: TenantsAtWork): void {
    this.#models.push(calls);
  }

  /** Notes that the tenant made a call at the time `ms`. */
  noteCall(tenant: string, ms: number): void {
    if (this.#latestCall && this.#latestCall.tenant !== tenant) this.#latestOtherCall = this.#latestCall;
    this.#latestCall = { tenant, ms };
  }

  /** True when the tenant may do long work now. */
  mayWork(tenant: string): boolean {
    this.#pay();
    return this.#balanceOf(tenant) > 0 || !this.#isBesideOthers(tenant);
  }

  /** Charges the tenant for long work that took the thread for `ms`. The work of a tenant that is alone is free. */
  spend(tenant: string, ms: number): void {
    if (!this.#isBesideOthers(tenant)) return;
    this.#pay();
    this.#balances.set(tenant, this.#balanceOf(tenant) - ms);
  }

  #balanceOf(tenant: string): number {
    return this.#balances.get(tenant) ?? MAX_BALANCE_MS;
  }

  /** Adds `SHARE` of the time since the last payment to `#balances`, in equal parts. Removes the balances that reach the maximum. */
  #pay(): void {
    const nowMs = this.#now();
    const elapsedMs = nowMs - this.#lastPaymentMs;
    this.#lastPaymentMs = nowMs;
    if (this.#balances.size === 0) return;
    const partMs = (elapsedMs * SHARE) / this.#balances.size;
    for (const [tenant, balanceMs] of this.#balances) {
      if (balanceMs + partMs >= MAX_BALANCE_MS) this.#balances.delete(tenant);
      else this.#balances.set(tenant, balanceMs + partMs);
    }
  }

  /** True when another tenant is at work: it has made a call within `PRESENT_MS`, or has calls that wait for the device or use it. */
  #isBesideOthers(tenant: string): boolean {
    const otherCall = this.#latestCall?.tenant === tenant ? this.#latestOtherCall : this.#latestCall;
    if (otherCall && this.#now() - otherCall.ms < PRESENT_MS) return true;
    for (const calls of this.#models) {
      for (const name of calls.tenants()) if (name !== tenant) return true;
    }
    return false;
  }
}

/** A piece of work that may take several gaps. A *gap* is the time between two device steps, in which the host's thread is free. */
interface GapTask {
  /** Does a small part. Returns false when the part was the last, undefined when there was nothing to do or the inferlet has ended. */
  readonly next: () => boolean | undefined;
  readonly tenant: string;
  readonly payer: Payer;
  readonly done: () => void;
  readonly failed: (why: unknown) => void;
}

/** Maximum milliseconds of long work in one gap; afterwards the thread reads its sockets and starts the next step. */
export const GAP_MS = 2;
/** Milliseconds after which `StepGaps` asks again if tenants that had used up their share of the thread may work. */
const RETRY_MS = 5;

/**
 * Does long work in the gaps between device steps. The tenants' tasks take turns: a task works until the gap is over or its tenant has used up
 * its share of the thread (`ThreadShare`). Each gap does at least one part, unless no tenant may work.
 */
export class StepGaps {
  readonly #tasks = new Rotation<GapTask>();
  readonly #wanted: () => void;
  readonly #time: DeviceTime;
  readonly #thread: ThreadShare;
  readonly #now: () => number;
  #retry: NodeJS.Timeout | undefined;

  /**
   * @param wanted called when there is work that may be done; the callee must then call `run` soon, between two steps
   * @param time charges the tasks' payers
   * @param thread says which tenants may work now
   * @param now milliseconds of a monotonic clock
   */
  constructor(wanted: () => void, time: DeviceTime, thread: ThreadShare, now: () => number = () => performance.now()) {
    this.#wanted = wanted;
    this.#time = time;
    this.#thread = thread;
    this.#now = now;
  }

  /** True when there is work that may be done now. */
  get isDue(): boolean {
    return this.#tasks.isDue(this.#mayWork);
  }

  /** Calls `next` in one gap or several until it returns false or undefined. Rejects with the error of `next`. `payer` pays for the time. */
  work(next: () => boolean | undefined, tenant: string, payer: Payer): Promise<void> {
    return new Promise((done, failed) => {
      this.#tasks.push(tenant, { next, tenant, payer, done, failed });
      this.#wanted();
      this.#retryLater();
    });
  }

  /** Works for one gap. Returns true when there is more work that may be done now. If there is only other work, `wanted` is called later. */
  run(): boolean {
    if (this.#tasks.isEmpty) return false;
    const untilMs = this.#now() + GAP_MS;
    for (let task = this.#tasks.shift(this.#mayWork); task; task = this.#tasks.shift(this.#mayWork)) {
      if (this.#advance(task, untilMs)) this.#tasks.push(task.tenant, task);
      if (this.#now() >= untilMs) break;
    }
    this.#retryLater();
    return this.isDue;
  }

  /** Calls `wanted` after `RETRY_MS` when there is work, but none that may be done now. */
  #retryLater(): void {
    if (this.#tasks.isEmpty || this.isDue) return;
    this.#retry ??= setTimeout(() => {
      this.#retry = undefined;
      this.#wanted();
    }, RETRY_MS);
  }

  #mayWork = (tenant: string): boolean => this.#thread.mayWork(tenant);

  /** Returns true when the task is not done at `untilMs`, or when its tenant may no longer work. */
  #advance({ next, tenant, payer, done, failed }: GapTask, untilMs: number): boolean {
    const [startedMs, spentNs] = [this.#now(), this.#time.spentNs];
    let more: boolean | undefined = true;
    try {
      do {
        more = next();
        if (!more) {
          done();
          return false;
        }
      } while (this.#now() < untilMs && this.#thread.mayWork(tenant));
      return true;
    } catch (why) {
      failed(why);
      return false;
    } finally {
      // After `undefined`, no time is charged: the inferlet may have ended, and its last report of usage may have been sent.
      const ms = more === undefined ? 0 : this.#now() - startedMs;
      this.#thread.spend(tenant, ms);
      // Parts that copy pages have charged the time of their copies already.
      if (ms > 0) this.#time.spendFor(ms - (this.#time.spentNs - spentNs) / 1e6, payer);
    }
  }
}

/** Shortest wait that uses a timer. A shorter one takes a turn of the event loop, because timers are not precise enough. */
const SHORTEST_TIMER_MS = 2;

/** The engine's waits between steps. Each ends at its time, or when a frame or completion wakes the engine. */
export class Pause {
  #wake: (() => void) | undefined;
  #lingeredMs = 0;

  /** Ends the current wait. */
  wake(): void {
    this.#wake?.();
  }

  /** Waits up to `ms`, and at least until pending I/O was handled. */
  async wait(ms: number): Promise<void> {
    if (ms < SHORTEST_TIMER_MS) return nextTurn();
    await new Promise<void>((resolve) => {
      // The timer ends a millisecond early: turns of the event loop cover the rest.
      const timer = setTimeout(resolve, ms - 1);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = undefined;
  }

  /** Waits amid a batch, while the device is idle. @returns the time that it waited, ms */
  async linger(ms: number): Promise<number> {
    const startedMs = performance.now();
    await this.wait(ms);
    const waitedMs = performance.now() - startedMs;
    this.#lingeredMs += waitedMs;
    return waitedMs;
  }

  /** Milliseconds of `linger` since the last call of this method. */
  takeLingeredMs(): number {
    const ms = this.#lingeredMs;
    this.#lingeredMs = 0;
    return ms;
  }

  /** Waits until a frame or completion wakes the engine, at most until `end`. */
  async until(end: Promise<void>): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      void end.then(resolve);
    });
    this.#wake = undefined;
  }
}

/** Lets pending I/O be handled. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
