import { Rotation } from '../batcher/rotation.ts';
import type { DeviceTime, Payer } from './meter.ts';

/** Work on memory that is too long for one gap between two steps. */
interface GapTask {
  /** Does a small part; false when it was the last. */
  readonly next: () => boolean;
  readonly tenant: string;
  readonly payer: Payer;
  readonly done: () => void;
  readonly failed: (why: unknown) => void;
}

/** Time for such work in one gap: then sockets are read and the next step starts. */
export const GAP_MS = 2;

/** Long work on memory, done in the gaps between device steps. Tenants take turns of one gap; each gap does at least one part. */
export class StepGaps {
  readonly #tasks = new Rotation<GapTask>();
  readonly #wanted: () => void;
  readonly #time: DeviceTime;

  /**
   * @param wanted called when there is work: `run` must be called soon, between two steps
   * @param time charges the tasks' payers
   */
  constructor(wanted: () => void, time: DeviceTime) {
    this.#wanted = wanted;
    this.#time = time;
  }

  get isWaiting(): boolean {
    return !this.#tasks.isEmpty;
  }

  /** Calls `next` in one gap or several until it returns false. Rejects with what it throws. `payer` pays for the time. */
  work(next: () => boolean, tenant: string, payer: Payer): Promise<void> {
    return new Promise((done, failed) => {
      this.#tasks.push(tenant, { next, tenant, payer, done, failed });
      this.#wanted();
    });
  }

  /** Works for one gap. Returns true when some work is left. */
  run(): boolean {
    const untilMs = performance.now() + GAP_MS;
    for (let task = this.#tasks.shift(); task; task = this.#tasks.shift()) {
      if (this.#advance(task, untilMs)) this.#tasks.push(task.tenant, task);
      if (performance.now() >= untilMs) break;
    }
    return this.isWaiting;
  }

  /** Returns true when the task is not done at `untilMs`. */
  #advance({ next, payer, done, failed }: GapTask, untilMs: number): boolean {
    const [startedMs, spentNs] = [performance.now(), this.#time.spentNs];
    try {
      do {
        if (!next()) {
          done();
          return false;
        }
      } while (performance.now() < untilMs);
      return true;
    } catch (why) {
      failed(why);
      return false;
    } finally {
      // Parts that copy pages have charged that time already.
      this.#time.spendFor(performance.now() - startedMs - (this.#time.spentNs - spentNs) / 1e6, payer);
    }
  }
}
