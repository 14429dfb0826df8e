import { type Job, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import type { Control } from '../invocations/control.ts';
import { INVOCATION_QUEUE } from '../keys.ts';
import type { RuntimeLease } from '../runtimes/lease.ts';
import { isConnectionError, StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import type { ActiveJobs } from './active-jobs.ts';
import { type Capacity, CapacityPolicy } from './capacity.ts';
import { PageEstimator } from './expected-pages.ts';
import type { InvocationJob, StopReason } from './job.ts';

/** Fetches in flight at once while jobs keep coming: a burst of 896 starts in 60–80 ms instead of 70–80 with one, and evenly. */
const MAX_FETCHES = 8;
/** Longest blocking wait for a job, and so the longest delay should a wake-up be lost. */
const BLOCK_SECONDS = 2;
/** BullMQ's own lock: leases say who is alive, so it only has to outlast every deadline. */
const LOCK_MS = 7 * 24 * 3_600_000;
/** A job fetched in an answer that was lost with the connection is given back after this. */
const LOST_REPLY_MS = 3000;
/** After a drain's deadline, what was told to stop gets this long to end. */
const STOP_GRACE_MS = 2000;
const RETRY_MS = 250;

export interface AdmissionWorkerOptions {
  readonly store: Store;
  readonly control: Control;
  readonly active: ActiveJobs;
  /** Opens a connection of the worker's own, with `maxRetriesPerRequest: null` and no command timeout. */
  readonly connect: () => Redis;
  readonly lease: RuntimeLease;
  readonly capacity: Capacity;
  /**
   * Runs one invocation to its end (`Invocations.beginAttempt` … `finish`) and resolves then. The signal aborts with a `StopReason`. When it
   * resolves or rejects without having ended the invocation, that fails as `internal`.
   */
  readonly run: (job: InvocationJob, signal: AbortSignal) => Promise<void>;
  /** Told of errors that no caller sees. */
  readonly onError?: (error: unknown) => void;
}

interface Held {
  readonly job: InvocationJob;
  readonly stop: AbortController;
  deadline?: NodeJS.Timeout;
}

/**
 * Takes invocations from the line and runs as many as fit: first come, first served, within slots and expected pages. BullMQ hands jobs
 * over, with up to eight fetches in flight; the capacity policy says when one starts.
 */
export class AdmissionWorker {
  readonly #options: AdmissionWorkerOptions;
  readonly #policy: CapacityPolicy;
  readonly #estimator = new PageEstimator();
  readonly #connection: Redis;
  readonly #worker: Worker<InvocationJob>;
  readonly #jobs = new Map<string, Held>();
  readonly #cleanups: (() => void)[] = [];
  #fetching = 0;
  /** Fetches allowed at once: 1 while the line is empty, doubling while jobs come. */
  #width = 1;
  #tokens = 0;
  #state: 'idle' | 'started' | 'draining' | 'closed' = 'idle';
  #onSettled: (() => void) | undefined;
  #auditTimer: NodeJS.Timeout | undefined;

  constructor(options: AdmissionWorkerOptions) {
    this.#options = options;
    this.#policy = new CapacityPolicy(options.capacity);
    this.#connection = options.connect();
    this.#connection.on('error', () => undefined);
    this.#worker = new Worker<InvocationJob>(INVOCATION_QUEUE, null, {
      connection: this.#connection,
      prefix: options.store.keys.bull,
      name: options.lease.id,
      autorun: false,
      skipStalledCheck: true,
      skipLockRenewal: true,
      lockDuration: LOCK_MS,
      drainDelay: BLOCK_SECONDS,
    });
    this.#worker.on('error', (error) => {
      if (this.#state !== 'closed' && !isConnectionError(error)) options.onError?.(error);
    });
    options.lease.reportLoad(() => ({ running: this.running, held: this.held }));
  }

  /** Invocations that run. */
  get running(): number {
    return this.#policy.running;
  }

  /** Invocations fetched that wait for capacity. */
  get held(): number {
    return this.#policy.held.length;
  }

  /** Starts to take jobs. */
  async start(): Promise<void> {
    const { control, lease } = this.#options;
    this.#cleanups.push(
      await control.onCancel(lease.id, (id, message) => this.#stop(id, { code: 'cancelled', message })),
      lease.onLost(() => this.#abandon()),
    );
    const audit = () => this.#scheduleAudit();
    this.#connection.on('ready', audit);
    this.#cleanups.push(() => this.#connection.off('ready', audit));
    await this.#worker.waitUntilReady();
    this.#state = 'started';
    this.#pump();
  }

  /** Changes what may run at once, for instance because a GPU host came back with other pages. */
  resize(capacity: Capacity): void {
    this.#policy.resize(capacity);
    this.#advance();
  }

  /** What a run held at most, by model; the next run of that function version is expected to hold as much. */
  observePages(job: InvocationJob, peak: Readonly<Record<string, number>>): void {
    this.#estimator.observe(versionKey(job), peak);
  }

  /**
   * Takes no more jobs, gives back those not started, and waits for the running ones until the deadline; then tells them to stop. When this
   * resolves the runtime holds nothing, and its connections are closed.
   */
  async drain(deadlineMs: number): Promise<void> {
    if (this.#state === 'closed') return;
    this.#state = 'draining';
    const { active, lease, onError } = this.#options;
    for (const { id } of [...this.#policy.held]) {
      this.#policy.withdraw(id);
      this.#jobs.delete(id);
      await active.giveBack(id, lease.id).catch((error) => onError?.(error));
    }
    await this.#settled(deadlineMs);
    for (const id of [...this.#jobs.keys()]) {
      this.#stop(id, { code: 'terminated', message: 'The runtime is shutting down.' });
    }
    await this.#settled(STOP_GRACE_MS);
    this.#state = 'closed';
    clearTimeout(this.#auditTimer);
    for (const cleanup of this.#cleanups.splice(0)) cleanup();
    await this.#worker.close(true);
    this.#connection.disconnect();
    // A fetch may have been answered while the connection closed, and a run may not have ended: nothing stays behind.
    const left = (await active.list()).filter(({ runtimeId }) => runtimeId === lease.id);
    await Promise.all(left.map(({ id }) => active.giveBack(id, lease.id)));
    for (const held of this.#jobs.values()) clearTimeout(held.deadline);
    this.#jobs.clear();
  }

  #pump(): void {
    while (this.#state === 'started' && this.#fetching < Math.min(this.#width, this.#policy.room)) {
      this.#fetching += 1;
      this.#fetch().finally(() => {
        this.#fetching -= 1;
        this.#pump();
      });
    }
  }

  async #fetch(): Promise<void> {
    this.#tokens += 1;
    try {
      const job = await this.#worker.getNextJob(`${this.#options.lease.id}:${this.#tokens}`, {
        block: this.#width === 1,
      });
      if (job) {
        this.#width = Math.min(this.#width * 2, MAX_FETCHES);
        this.#accept(job);
      } else {
        this.#width = 1;
      }
    } catch (error) {
      if (this.#state !== 'started') return;
      this.#options.onError?.(error);
      this.#width = 1;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  #accept({ data: job }: Job<InvocationJob>): void {
    const { active, lease, onError } = this.#options;
    if (this.#state !== 'started') {
      active.giveBack(job.id, lease.id).catch((error) => onError?.(error));
      return;
    }
    this.#jobs.set(job.id, { job, stop: new AbortController() });
    this.#policy.offer({
      id: job.id,
      arrival: job.arrival,
      pages: this.#estimator.expect(versionKey(job), job.expectedPages),
    });
    this.#advance();
  }

  /** Starts whoever may start, and fetches more when there is room. */
  #advance(): void {
    for (let next = this.#policy.next(); next !== null; next = this.#policy.next()) {
      const held = this.#jobs.get(next.id);
      if (held) this.#execute(held).catch((error) => this.#options.onError?.(error));
      else this.#policy.release(next.id);
    }
    this.#pump();
  }

  async #execute(held: Held): Promise<void> {
    const { run, onError } = this.#options;
    const { job, stop } = held;
    const leftMs = job.submittedAt + job.deadlineMs - this.#options.store.clock();
    held.deadline = setTimeout(
      () =>
        this.#stop(job.id, { code: 'deadline-exceeded', message: `The deadline of ${job.deadlineMs} ms has passed.` }),
      Math.max(0, Math.min(leftMs, 2 ** 31 - 1)),
    );
    try {
      await run(job, stop.signal);
    } catch (error) {
      onError?.(error);
    } finally {
      clearTimeout(held.deadline);
      const current = this.#jobs.get(job.id) === held;
      if (current) {
        this.#policy.release(job.id);
        this.#advance();
        await this.#over(job.id, stop.signal.aborted);
        this.#jobs.delete(job.id);
      }
      if (this.#jobs.size === 0) this.#onSettled?.();
    }
  }

  /** Hands the finished job in; Redis may be away for a while, and the invocation must not stay open. */
  async #over(id: string, cancelled: boolean): Promise<void> {
    const { active, control, lease, onError } = this.#options;
    while (this.#state !== 'closed') {
      try {
        await active.over(id, lease.id);
        if (cancelled) await control.settled(lease.id, id);
        return;
      } catch (error) {
        onError?.(error);
        if (StoreError.from(error).code !== 'store-unavailable') return;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  #stop(id: string, reason: StopReason): void {
    const held = this.#jobs.get(id);
    if (!held) return;
    if (!this.#policy.withdraw(id)) {
      held.stop.abort(reason);
      return;
    }
    // Not started: the record has ended, or ends now.
    this.#jobs.delete(id);
    this.#over(id, true).catch((error) => this.#options.onError?.(error));
    this.#advance();
  }

  /** This runtime was declared dead: others own its invocations now. */
  #abandon(): void {
    for (const [id, held] of [...this.#jobs]) {
      this.#policy.withdraw(id);
      this.#policy.release(id);
      this.#jobs.delete(id);
      clearTimeout(held.deadline);
      const message = 'This runtime was declared dead, because it did not renew its lease in time.';
      held.stop.abort({ code: 'runtime-lost', message } satisfies StopReason);
    }
    this.#advance();
  }

  /** After a reconnection: jobs that were fetched in an answer which never arrived go back in line. */
  #scheduleAudit(): void {
    clearTimeout(this.#auditTimer);
    this.#auditTimer = setTimeout(() => {
      this.#audit().catch((error) => {
        this.#options.onError?.(error);
        this.#scheduleAudit();
      });
    }, LOST_REPLY_MS);
  }

  async #audit(): Promise<void> {
    const { active, lease } = this.#options;
    const before = Date.now() - LOST_REPLY_MS;
    for (const { id, runtimeId, fetchedAt } of await active.list()) {
      if (runtimeId === lease.id && fetchedAt < before && !this.#jobs.has(id)) await active.giveBack(id, lease.id);
    }
  }

  async #settled(deadlineMs: number): Promise<void> {
    if (this.#jobs.size === 0) return;
    let timer: NodeJS.Timeout | undefined;
    try {
      await new Promise<void>((resolve) => {
        this.#onSettled = resolve;
        timer = setTimeout(resolve, deadlineMs);
      });
    } finally {
      clearTimeout(timer);
      this.#onSettled = undefined;
    }
  }
}

function versionKey(job: InvocationJob): string {
  return `${job.tenant}/${job.function}@${job.version}`;
}
