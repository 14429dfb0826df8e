import { type Job, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { SCHEDULE_QUEUE } from '../keys.ts';
import type { Logger } from '../policies/logger.ts';
import { MAX_EXCUSED_MS } from '../policies/silence.ts';
import { isConnectionError, StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import { WorkerConnection } from '../store/worker-connection.ts';
import type { FiringJob, Schedules } from './schedules.ts';
import type { LastTime, Schedule } from './types.ts';

/** Maximum number of firings that one gateway serves at once. A firing is BullMQ's job for one time of a schedule. */
const CONCURRENCY = 16;
/** Time for which a firing stays locked after its gateway died: longer than a gateway is excused when it gets no core. */
const LOCK_MS = MAX_EXCUSED_MS + 5000;

export interface ScheduleWorkerOptions {
  readonly store: Store;
  readonly schedules: Schedules;
  /** Opens a connection for the worker alone, with `maxRetriesPerRequest: null` and no command timeout. */
  readonly connect: () => Redis;
  /**
   * Makes the invocation of a schedule, with an idempotency key that names schedule and time. Resolves to the outcome; throws only when
   * another try may succeed.
   */
  readonly run: (schedule: Schedule, key: string) => Promise<Omit<LastTime, 'at'>>;
  readonly log: Logger;
}

/** Makes the invocations of schedules when their times come. Every gateway runs one. */
export class ScheduleWorker {
  readonly #options: ScheduleWorkerOptions;
  readonly #connection: WorkerConnection;
  readonly #worker: Worker<FiringJob>;
  readonly #firings = new Set<Promise<void>>();
  #isStopping = false;

  constructor(options: ScheduleWorkerOptions) {
    const { store, connect } = options;
    this.#options = options;
    this.#connection = new WorkerConnection(connect());
    this.#worker = new Worker<FiringJob>(SCHEDULE_QUEUE, (job) => this.#begin(job), {
      connection: this.#connection.redis,
      prefix: store.keys.bull,
      autorun: false,
      concurrency: CONCURRENCY,
      lockDuration: LOCK_MS,
      // A firing that a dying gateway held is repeated, however often that happens.
      maxStalledCount: 1000,
    });
    this.#worker.on('error', (error) => this.#report(error));
    this.#worker.on('failed', (job, error) => {
      this.#report(error);
      const isTriedAgain = job && job.attemptsMade < (job.opts.attempts ?? 1);
      if (job && !isTriedAgain)
        this.#note(job.data, { error: { code: 'internal', message: 'The platform could not make the invocation.' } });
    });
  }

  start(): void {
    this.#worker.run().catch((error) => this.#report(error));
    this.#options.schedules.repair().catch((error) => this.#report(error));
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.allSettled(this.#firings);
    // Without force, BullMQ waits for ever while Redis is away. Another gateway repeats a firing that is cut off here; its
    // idempotency key is the same, so it makes no second invocation.
    await this.#worker.close(true);
    this.#connection.close();
  }

  async #begin(job: Job<FiringJob>): Promise<void> {
    const firing = this.#fire(job);
    this.#firings.add(firing);
    try {
      await firing;
    } finally {
      this.#firings.delete(firing);
    }
  }

  async #fire(job: Job<FiringJob>): Promise<void> {
    const { schedules, run, store } = this.#options;
    const { tenant, name, id } = job.data;
    const schedule = await schedules.get(tenant, name);
    if (schedule?.id !== id) {
      // The schedule was removed or replaced since the job was made.
      await schedules.align(tenant, name);
      return;
    }
    const outcome = await run(schedule, `schedule ${tenant}/${name} ${job.id}`);
    await schedules.note(job.data, { at: store.clock(), ...outcome });
  }

  #note(job: FiringJob, outcome: Omit<LastTime, 'at'>): void {
    const { schedules, store } = this.#options;
    schedules.note(job, { at: store.clock(), ...outcome }).catch((error) => this.#report(error));
  }

  #report(error: unknown): void {
    const isOutage = isConnectionError(error) || StoreError.from(error).code === 'store-unavailable';
    if (!this.#isStopping && !isOutage) this.#options.log.error({ error }, 'the work on schedules failed');
  }
}
