import { loadScript } from './lua-script.ts';
import type { Store } from './store.ts';

const BEGIN_RUN = loadScript(new URL('./store.lua', import.meta.url), 'begin-run');

/** Runs in a row that did not end, after which a job runs alone in its process, and after which it is refused. */
const RUNS_BEFORE_ALONE = 2;
const MOST_RUNS = 3;
/** Time for which runs that did not end are counted. BullMQ repeats a job about a minute after its process died. */
const COUNTED_MS = 86_400_000;

/**
 * Outcome of a job: it ended; it must be run later, because another job runs alone now; or it is refused, because each of its last runs ended with
 * the death of the process.
 */
export type GuardedOutcome<Result> =
  | { readonly kind: 'ended'; readonly result: Result }
  | { readonly kind: 'later' | 'refused' };

/**
 * Runs the jobs of a queue in this process, and refuses a job that kills its process each time. BullMQ repeats such a job for ever. It counts the
 * deaths of the process for each job that was running then; after two of them, a job runs alone, so that the third one is its own fault.
 * Guard only the part of a job that evaluates untrusted data, and no wait for another party: while a job runs alone, all others are put off.
 */
export class CrashGuard {
  readonly #store: Store;
  readonly #queue: string;
  readonly #onAlone: (job: string) => void;
  readonly #runs = new Set<Promise<unknown>>();
  #runsAlone = false;

  /**
   * @param queue names the jobs of this guard in Redis, so that all processes count the same runs
   * @param onAlone called when a job is about to run alone
   */
  constructor(store: Store, queue: string, onAlone: (job: string) => void) {
    this.#store = store;
    this.#queue = queue;
    this.#onAlone = onAlone;
  }

  /** Runs a job. Rejects with the error of `work`, and with a `StoreError` before the job runs. */
  async run<Result>(job: string, work: () => Promise<Result>): Promise<GuardedOutcome<Result>> {
    if (this.#runsAlone) return { kind: 'later' };
    const run = this.#begin(job, work, RUNS_BEFORE_ALONE);
    this.#runs.add(run);
    const outcome = await run.finally(() => this.#runs.delete(run));
    if (typeof outcome !== 'number') return outcome;
    if (outcome >= MOST_RUNS) return { kind: 'refused' };
    if (this.#runsAlone) return { kind: 'later' };
    this.#runsAlone = true;
    try {
      await Promise.allSettled(this.#runs);
      this.#onAlone(job);
      const alone = await this.#begin(job, work, MOST_RUNS);
      return typeof alone === 'number' ? { kind: 'refused' } : alone;
    } finally {
      this.#runsAlone = false;
    }
  }

  /** Forgets the runs of a job that did not end. */
  async forget(job: string): Promise<void> {
    await this.#store.call((redis) => redis.del(this.#keyOf(job)));
  }

  /** Runs a job if fewer than `limit` of its last runs did not end. Otherwise returns the number of those. */
  async #begin<Result>(
    job: string,
    work: () => Promise<Result>,
    limit: number,
  ): Promise<number | { readonly kind: 'ended'; readonly result: Result }> {
    const unended = Number(await this.#store.script(BEGIN_RUN, [this.#keyOf(job)], [limit, COUNTED_MS]));
    if (unended >= limit) return unended;
    try {
      return { kind: 'ended', result: await work() };
    } finally {
      // A process that still lives ends the count, whatever the outcome. A count that stays, while Redis is away, is ended by the next run.
      await this.forget(job).catch(() => undefined);
    }
  }

  #keyOf(job: string): string {
    return this.#store.keys.unendedRuns(this.#queue, job);
  }
}
