import { DelayedError, type Job, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { SCHEDULE_QUEUE } from '../keys.ts';
import type { Logger } from '../policies/logger.ts';
import { MAX_EXCUSED_MS } from '../policies/silence.ts';
import { WorkerConnection } from '../store/connection.ts';
import { CrashGuard } from '../store/crash-guard.ts';
import { isConnectionError, StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import type { LastTime, Schedule } from './rules.ts';
import { type FiringJob, repeatStrategy, type Schedules } from './schedules.ts';

/** Maximum number of firings that one gateway serves at once. A firing is BullMQ's job for one time of a schedule. */
const CONCURRENCY = 16;
/** Time for which a firing stays locked after its gateway died: longer than a gateway is excused when it gets no core. */
const LOCK_MS = MAX_EXCUSED_MS + 5000;
/** Pause before a firing that found another one running alone is tried again. */
const LATER_MS = 1000;

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
  readonly #guard: CrashGuard;
  readonly #firings = new Set<Promise<void>>();
  #isStopping = false;

  constructor(options: ScheduleWorkerOptions) {
    const { store, connect, log } = options;
    this.#options = options;
    this.#guard = new CrashGuard(store, SCHEDULE_QUEUE, (schedule) =>
      log.warn({ schedule }, 'a schedule fires alone: the last two gateways that made its invocation died meanwhile'),
    );
    this.#connection = new WorkerConnection(connect());
    this.#worker = new Worker<FiringJob>(SCHEDULE_QUEUE, (job, token) => this.#begin(job, token), {
      connection: this.#connection.redis,
      prefix: store.keys.bull,
      autorun: false,
      concurrency: CONCURRENCY,
      lockDuration: LOCK_MS,
      settings: { repeatStrategy },
      // BullMQ repeats the firing of a job scheduler however often it stalls, whatever `maxStalledCount` says. The guard ends the repetition.
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

  async #begin(job: Job<FiringJob>, token: string | undefined): Promise<void> {
    const firing = this.#fire(job, token);
    this.#firings.add(firing);
    try {
      await firing;
    } finally {
      this.#firings.delete(firing);
    }
  }

  async #fire(job: Job<FiringJob>, token: string | undefined): Promise<void> {
    const { schedules, run, store } = this.#options;
    const { tenant, name, id } = job.data;
    const schedule = await schedules.get(tenant, name);
    if (schedule === null || schedule.id !== id || schedule.last?.suspended === true) {
      // The schedule was removed, replaced or suspended since the job was made.
      await schedules.align(tenant, name);
      return;
    }
    const outcome = await this.#guard.run(firingOf(job.data), async () => {
      const last = await run(schedule, `schedule ${tenant}/${name} ${job.id}`);
      await schedules.note(job.data, { at: store.clock(), ...last });
    });
    switch (outcome.kind) {
      case 'ended':
        return;
      case 'later':
        await job.moveToDelayed(Date.now() + LATER_MS, token);
        // Tells BullMQ that the job was moved: it has neither succeeded nor failed.
        throw new DelayedError();
      case 'refused':
        await this.#suspend(schedule, job);
    }
  }

  /** Ends the repetition of a firing during which the gateway died each time. */
  async #suspend(schedule: Schedule, { id: firing, data }: Job<FiringJob>): Promise<void> {
    const { schedules, store, log } = this.#options;
    const { tenant, name, function: fn } = schedule;
    const message = `Three gateways in a row died while they made an invocation of this schedule, at last while it ran alone. Correct the function or the input, then run \`pie schedule resume ${name}\`.`;
    await schedules.note(data, { at: store.clock(), error: { code: 'internal', message }, suspended: true });
    await schedules.align(tenant, name);
    await this.#guard.forget(firingOf(data));
    log.error(
      { tenant, schedule: name, function: fn, firing, unendedRuns: 3 },
      'a schedule is suspended: three gateways in a row died while they made its invocation',
    );
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

/** The work that the guard counts: all firings of one entry of a schedule. */
const firingOf = ({ tenant, name, id }: FiringJob): string => `${tenant}/${name}/${id}`;
