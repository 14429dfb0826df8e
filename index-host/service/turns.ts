import type { Pieces } from '../engine/sizes.ts';
import { IndexError } from '../protocol/types.ts';

/** Length of a turn. The piece during which a turn reaches this length is its last one. */
const TURN_MS = 4;

interface Job {
  /** Runs one piece; returns false when the job has ended. */
  step(): boolean;
}

interface TenantQueue {
  readonly jobs: Job[];
  /** Start tag of the tenant's next turn, in virtual milliseconds: the queue with the earliest tag is served next. */
  startMs: number;
}

/**
 * Shares the thread among tenants by the time that their pieces of work take, with start-time fair queueing (Goyal, Vin and Cheng, 1996). While
 * one tenant fills an index, another tenant's query therefore gets about every second turn. The jobs of one tenant alternate.
 *
 * When no jobs are left, virtual time in the paper jumps to the end of the last turn, which makes all tenants equal again. Here it stays, so a
 * tenant that was just served goes after one that was not.
 */
export class Turns {
  readonly #queues = new Map<string, TenantQueue>();
  readonly #now: () => number;
  /** Virtual time: the start tag of the last turn. */
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

  /** Lets the process handle I/O before each turn. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (this.#serveTurn()) this.#schedule();
    });
  }

  /** Serves one job for one turn; returns false when no tenant has a job. */
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

  /**
   * Returns the queue with the earliest start tag among those with jobs. Removes a queue without jobs once virtual time has reached its tag. Until
   * then the queue stays: a tenant whose jobs come one by one must not lose its tag, the record of the time that it has used.
   */
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
