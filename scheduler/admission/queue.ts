import { Queue } from 'bullmq';
import { INVOCATION_QUEUE } from '../keys.ts';
import type { Store } from '../store/store.ts';
import type { InvocationJob } from './job.ts';

/** BullMQ keeps a stream of its own events, which nobody reads here. */
const BULL_EVENTS = 100;

/** The line in which invocations wait: a BullMQ queue, first come, first served. */
export class AdmissionQueue {
  readonly #store: Store;
  readonly #queue: Queue<InvocationJob>;

  constructor(store: Store) {
    this.#store = store;
    this.#queue = new Queue(INVOCATION_QUEUE, {
      connection: store.redis,
      prefix: store.keys.bull,
      streams: { events: { maxLen: BULL_EVENTS } },
    });
    // Errors of the connection are reported by the calls.
    this.#queue.on('error', () => undefined);
  }

  /** Puts an invocation in line. Doing so twice is harmless. */
  async enqueue(job: InvocationJob): Promise<void> {
    await this.#store.call(() => this.#queue.add('invoke', job, { jobId: job.id }));
  }

  /** Takes a waiting invocation out of the line; false when it is not waiting (any more). */
  async remove(id: string): Promise<boolean> {
    return (await this.#store.call(() => this.#queue.remove(id))) === 1;
  }

  /** How many wait, and how many are in the hands of runtimes. */
  async depth(): Promise<{ readonly waiting: number; readonly active: number }> {
    const counts = await this.#store.call(() => this.#queue.getJobCounts('wait', 'active'));
    return { waiting: counts.wait ?? 0, active: counts.active ?? 0 };
  }

  /** Ids of waiting invocations, next first. */
  async waiting(limit = 100): Promise<string[]> {
    const ids = await this.#store.call((redis) =>
      redis.lrange(`${this.#store.keys.bull}:${INVOCATION_QUEUE}:wait`, -limit, -1),
    );
    return ids.reverse();
  }

  /** Lets go of BullMQ's listeners; the connection is its owner's. */
  async close(): Promise<void> {
    await this.#queue.close();
  }
}
