import type { Payer } from './meter.ts';

/** Work on memory that is too long for one gap between two steps. */
interface GapTask {
  /** Does a small part; false when it was the last. */
  readonly next: () => boolean;
  readonly payer: Payer;
  readonly done: () => void;
  readonly failed: (why: unknown) => void;
}

/** Time for such work in one gap: then sockets are read and the next step starts. */
export const GAP_MS = 2;

/** Long work on memory, done in the gaps between device steps. Tasks take turns of one gap; each gap does at least one part. */
export class StepGaps {
  readonly #tasks: GapTask[] = [];
  readonly #wanted: () => void;
  readonly #spend: (ms: number, payer: Payer) => void;

  /**
   * @param wanted called when there is work: `run` must be called soon, between two steps
   * @param spend charges time of the thread
   */
  constructor(wanted: () => void, spend: (ms: number, payer: Payer) => void) {
    this.#wanted = wanted;
    this.#spend = spend;
  }

  get isWaiting(): boolean {
    return this.#tasks.length > 0;
  }

  /** Calls `next` in one gap or several until it returns false. Rejects with what it throws. `payer` pays for the time. */
  work(next: () => boolean, payer: Payer): Promise<void> {
    return new Promise((done, failed) => {
      this.#tasks.push({ next, payer, done, failed });
      this.#wanted();
    });
  }

  /** Works for one gap. Returns true when some work is left. */
  run(): boolean {
    const untilMs = performance.now() + GAP_MS;
    for (let task = this.#tasks.shift(); task; task = this.#tasks.shift()) {
      if (this.#advance(task, untilMs)) this.#tasks.push(task);
      if (performance.now() >= untilMs) break;
    }
    return this.isWaiting;
  }

  /** Returns true when the task is not done at `untilMs`. */
  #advance({ next, payer, done, failed }: GapTask, untilMs: number): boolean {
    const startedMs = performance.now();
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
      this.#spend(performance.now() - startedMs, payer);
    }
  }
}
