import type { Pieces } from '../engine/pieces.ts';
import { IndexError } from '../protocol/errors.ts';

/** Time of one turn. A piece that takes longer is the last one of its turn. */
const TURN_MS = 4;

interface Job {
  /** Runs one piece; returns false when the job has ended. */
  step(): boolean;
}

interface TenantQueue {
  readonly jobs: Job[];
  /** Start tag of the tenant's next turn, in virtual milliseconds. */
  startMs: number;
}

/**
 * Shares the thread among tenants: start-time fair queueing (Goyal, Vin and Cheng, 1996) by the time that their pieces take. A tenant that
 * fills an index therefore delays another tenant's query by one turn for each turn of the query. Jobs of one tenant alternate. Unlike in the paper,
 * virtual time does not advance to the largest finish tag when no jobs are left: a tenant that comes next may go before the one served last.
 */
export class Turns {
  readonly #queues = new Map<string, TenantQueue>();
  readonly #now: () => number;
  /** Virtual time: the start tag of the turn that was served last. */
  #virtualMs = 0;
  #isScheduled = false;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Runs a job to its end. A signal that aborts ends the job between two pieces, with the signal's reason. */
  run<T>(tenant: string, work: Pieces<T>, signal?: AbortSignal): Promise<T> {
    const queue = this.#queues.get(tenant) ?? { jobs: [], startMs: this.#virtualMs };
    this.#queues.set(tenant, queue);
    queue.startMs = Math.max(queue.startMs, this.#virtualMs);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    queue.jobs.push({
      step() {
        try {
          if (signal?.aborted) {
            work.return(undefined as T);
            reject(IndexError.from(signal.reason));
            return false;
          }
          const { done, value } = work.next();
          if (done) resolve(value as T);
          return !done;
        } catch (error) {
          reject(error);
          return false;
        }
      },
    });
    this.#schedule();
    return promise;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (this.#serveTurn()) this.#schedule();
    });
  }

  /** Serves one job for one turn; returns false when there was none. */
  #serveTurn(): boolean {
    const queue = this.#nextQueue();
    const job = queue?.jobs.shift();
    if (!queue || !job) return false;
    const turnStartMs = this.#now();
    let goesOn = job.step();
    // The clock is read after each piece; most pieces are shorter than a turn.
    while (goesOn && this.#now() - turnStartMs < TURN_MS) goesOn = job.step();
    this.#virtualMs = queue.startMs;
    queue.startMs += this.#now() - turnStartMs;
    if (goesOn) queue.jobs.push(job);
    return true;
  }

  #nextQueue(): TenantQueue | null {
    let earliest: TenantQueue | null = null;
    for (const [tenant, queue] of this.#queues) {
      if (queue.jobs.length > 0) {
        if (earliest === null || queue.startMs < earliest.startMs) earliest = queue;
      } else if (queue.startMs <= this.#virtualMs) this.#queues.delete(tenant);
    }
    return earliest;
  }
}
