import { Rotation } from '../batcher/rotation.ts';
import type { DeviceTime, Payer } from './meter.ts';
import type { ThreadShare } from './thread-share.ts';

/** Work that is too long for one gap between two steps. */
interface GapTask {
  /** Does a small part; false when it was the last, undefined when there was nothing to do. */
  readonly next: () => boolean | undefined;
  readonly tenant: string;
  readonly payer: Payer;
  readonly done: () => void;
  readonly failed: (why: unknown) => void;
}

/** Time for such work in one gap: then sockets are read and the next step starts. */
export const GAP_MS = 2;
/** Time until tenants that have used their share of the thread are looked at again, ms. */
const RETRY_MS = 5;

/**
 * Long work, done in the gaps between device steps. Tenants take turns of one gap; each gap does at least one part, unless the tenants have
 * used their share of the thread.
 */
export class StepGaps {
  readonly #tasks = new Rotation<GapTask>();
  readonly #wanted: () => void;
  readonly #time: DeviceTime;
  readonly #thread: ThreadShare;
  readonly #now: () => number;
  #retry: NodeJS.Timeout | undefined;

  /**
   * @param wanted called when there is work: `run` must be called soon, between two steps
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

  /** Calls `next` in one gap or several until it no longer returns true. Rejects with the error of `next`. `payer` pays for the time. */
  work(next: () => boolean | undefined, tenant: string, payer: Payer): Promise<void> {
    return new Promise((done, failed) => {
      this.#tasks.push(tenant, { next, tenant, payer, done, failed });
      this.#wanted();
      this.#retryLater();
    });
  }

  /** Works for one gap. Returns true when work is left that may be done now; `wanted` is called for the rest later. */
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

  /** Asks for a gap later when no work may be done now. */
  #retryLater(): void {
    if (this.#tasks.isEmpty || this.isDue) return;
    this.#retry ??= setTimeout(() => {
      this.#retry = undefined;
      this.#wanted();
    }, RETRY_MS);
  }

  #mayWork = (tenant: string): boolean => this.#thread.mayWork(tenant);

  /** Returns true when the task is not done at `untilMs`. */
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
      // `undefined` also stands for an ended inferlet, which cannot pay: its last report of usage may have been sent.
      const ms = more === undefined ? 0 : this.#now() - startedMs;
      this.#thread.spend(tenant, ms);
      // Parts that copy pages have charged that time already.
      if (ms > 0) this.#time.spendFor(ms - (this.#time.spentNs - spentNs) / 1e6, payer);
    }
  }
}
