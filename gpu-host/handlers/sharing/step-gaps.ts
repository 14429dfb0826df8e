import { Rotation } from '../../batcher/rotation.ts';
import type { DeviceTime, Payer } from './meter.ts';
import type { ThreadShare } from './thread-share.ts';

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
