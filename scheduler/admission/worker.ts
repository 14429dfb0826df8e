import type { Redis } from 'ioredis';
import { type Control, type Loss, MAX_LOGGED_IDS } from '../invocations/endings.ts';
import { attemptOutcome } from '../invocations/invocations.ts';
import { SHOWN_AHEAD } from '../invocations/log.ts';
import { tuple } from '../invocations/replies.ts';
import type { AttemptOutcome } from '../invocations/types.ts';
import type { Logger } from '../policies/logger.ts';
import type { RuntimeLease } from '../runtimes/lease.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { Store } from '../store/store.ts';
import type { ActiveJobs } from './active-jobs.ts';
import type { Admission } from './admission.ts';
import type { InvocationJob, StopReason } from './job.ts';

/** Time after which a job whose fetch reply was lost with the connection goes back into the queue. */
const LOST_REPLY_MS = 3000;
/** Interval of the search for jobs that Redis assigns to this runtime and that the runtime does not know of. */
const AUDIT_MS = 5000;
/** Number of searches that are skipped after one that found nothing, unless a job comes or goes. */
const QUIET_INTERVALS = 5;
/** Time that invocations get to end after a drain has told them to stop. */
const STOP_GRACE_MS = 2000;
/** Pause before a failed or refused call to Redis is repeated. */
const RETRY_MS = 250;
/** Shortest time that a drain gives the present fetch to end. */
const FETCH_GRACE_MS = 250;
/** Why an attempt ends of which its runtime does not know. */
const UNKNOWN: Loss = {
  why: 'its lease had run out when it began this invocation, or the answer of Redis did not reach it',
};
/** The longest delay that `setTimeout` takes. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export interface AdmissionWorkerOptions {
  readonly store: Store;
  readonly control: Control;
  readonly active: ActiveJobs;
  readonly admission: Admission;
  /** Opens a connection of the worker's own, without a command timeout, because its fetches block. */
  readonly connect: () => Redis;
  readonly lease: RuntimeLease;
  /** Invocations that the runtime runs at once. */
  readonly slots: number;
  /** Lets fetches begin the attempts of their jobs; by default, `run` begins all attempts. */
  readonly begins?: {
    /** Maximum number of attempts that the next fetch begins. */
    readonly most: () => number;
    /** True when the runtime itself, instead of the store, shows the events of these attempts to the clients that follow them. */
    readonly showsOwnEvents: boolean;
  };
  /**
   * Runs one invocation to its end, which it reports by `Invocations.finish`. The signal aborts with a `StopReason`.
   *
   * `begun` is null unless the fetch of the job also began the attempt. `run` first takes the outcome of the attempt: from `begun`, or from
   * `Invocations.beginAttempt` when `begun` is null.
   *
   * The result of `run` tells the worker what remains to do:
   * - `'ended'`: nothing. `finish` has ended the invocation and removed its job.
   * - `'not-held'`: the attempt was refused with this reason. The worker gives the job back, which changes nothing if another runtime has it.
   * - Any other result, or an error: the worker removes the job. An invocation that has not ended then fails as `internal`.
   */
  readonly run: (job: InvocationJob, signal: AbortSignal, begun: Begun | null) => Promise<unknown>;
  readonly log: Logger;
}

/**
 * Resolves to the outcome of an attempt that the fetch of its job began, once Redis knows that this runtime has the job. May be called again.
 *
 * @throws StoreError `store-unavailable`
 */
export type Begun = () => Promise<AttemptOutcome>;

interface RunningJob {
  readonly job: InvocationJob;
  readonly begun: Begun | null;
  /** Token of the fetch. An id may have two runs: an invocation that was given back may come again before its earlier run is over. */
  readonly token: string;
  readonly stop: AbortController;
  deadline?: NodeJS.Timeout;
}

/**
 * Fetches admitted invocations, up to the runtime's number of slots, and runs each at once: `Admission` has already decided for all
 * runtimes which invocations start.
 */
export class AdmissionWorker {
  readonly #options: AdmissionWorkerOptions;
  readonly #fetcher: JobFetcher;
  /** By id, the latest run of each job. */
  readonly #jobs = new Map<string, RunningJob>();
  /** All runs, including those of jobs that came again before their earlier run was over. */
  readonly #runningJobs = new Set<RunningJob>();
  readonly #cleanups: (() => void)[] = [];
  /** Cancels of jobs that are not in `#jobs`: Redis may have begun their attempts in a fetch whose answer has not arrived. */
  readonly #pendingCancels = new Map<string, StopReason>();
  #fetching: Promise<void> | null = null;
  readonly #slots: number;
  #state: 'idle' | 'started' | 'draining' | 'closed' = 'idle';
  #isPaused = false;
  /**
   * The report of `#isPaused` to Redis, under way or done; undefined after a change or a failed report, when `pause` must begin another one. The
   * initial value needs no report, since `start` reports `#isPaused`.
   */
  #pauseReport: Promise<void> | undefined = Promise.resolve();
  #onSettled: (() => void) | undefined;
  #auditTimer: NodeJS.Timeout | undefined;
  /** Intervals that pass before the next search, unless a job comes or goes. */
  #quietIntervals = 0;

  constructor(options: AdmissionWorkerOptions) {
    this.#options = options;
    this.#slots = checkedSlots(options.slots);
    const { lease, log } = options;
    const showsOwnEvents = options.begins?.showsOwnEvents ?? false;
    this.#fetcher = new JobFetcher(options.store, options.connect(), { lease, showsOwnEvents, log });
    options.lease.reportLoad(() => ({ running: this.running }));
  }

  get running(): number {
    return this.#runningJobs.size;
  }

  /** Starts to take jobs; from now on the runtime counts in the platform's capacity. */
  async start(): Promise<void> {
    const { control, lease } = this.#options;
    this.#cleanups.push(
      await control.onCancel(lease.id, (id, message) => this.#cancel(id, { code: 'cancelled', message })),
      lease.onLost(() => this.#abandon()),
    );
    const onReconnect = () => {
      this.#quietIntervals = 0;
      this.#scheduleAudit(LOST_REPLY_MS);
      // On a new connection, ioredis sends an unanswered fetch again with its wait, although Redis may have run the fetch: end that wait.
      if (this.#fetcher.unanswered !== null) this.#fetcher.wake().catch(() => undefined);
    };
    this.#cleanups.push(this.#fetcher.onReady(onReconnect));
    await this.#fetcher.ready();
    this.#state = 'started';
    this.#scheduleAudit(AUDIT_MS);
    await lease.describe({ slots: this.#slots, accepting: !this.#isPaused });
    this.#pump();
    await this.#options.admission.admit();
  }

  /**
   * Pauses or resumes the worker. A paused worker takes no jobs: running invocations go on, and new ones wait in the queue. A call with true
   * resolves once no fetch can take more jobs. After an error, the caller repeats the call.
   */
  async pause(paused: boolean): Promise<void> {
    if (this.#isPaused !== paused) this.#pauseReport = undefined;
    this.#isPaused = paused;
    if (this.#state !== 'started') return;
    this.#pauseReport ??= paused ? this.#endFetches() : this.#options.lease.describe({ accepting: true });
    const report = this.#pauseReport;
    try {
      await report;
    } catch (error) {
      if (this.#pauseReport === report) this.#pauseReport = undefined;
      throw error;
    } finally {
      this.#pump();
    }
  }

  /**
   * Takes no more jobs, waits for the running ones until the deadline, then tells them to stop. When this resolves, the runtime holds no
   * job and the connection that fetched jobs is closed. When Redis does not take back the jobs, this fails, and recovery takes them once the
   * lease has ended.
   *
   * @throws StoreError
   */
  async drain(deadlineMs: number): Promise<void> {
    if (this.#state === 'closed') return;
    this.#state = 'draining';
    const { active, lease, log } = this.#options;
    const drainEndsAt = performance.now() + deadlineMs;
    await this.#endFetch(deadlineMs).catch((error: unknown) => log.warn({ error }, 'the fetch of jobs did not end'));
    await this.#waitUntilSettled(Math.max(0, drainEndsAt - performance.now()));
    for (const id of [...this.#jobs.keys()]) {
      this.#stop(id, { code: 'terminated', message: 'The runtime is shutting down.' });
    }
    await this.#waitUntilSettled(STOP_GRACE_MS);
    this.#state = 'closed';
    clearTimeout(this.#auditTimer);
    for (const cleanup of this.#cleanups.splice(0)) cleanup();
    this.#fetcher.close();
    for (const runningJob of this.#runningJobs) clearTimeout(runningJob.deadline);
    this.#runningJobs.clear();
    this.#jobs.clear();
    // Redis may have answered a fetch while the connection closed, and a run may not have ended: give all those jobs back.
    const remainingJobs = await active.heldBy(lease.id);
    await Promise.all(remainingJobs.map(({ id }) => active.giveBack(id, lease.id)));
  }

  get #isTaking(): boolean {
    return this.#state === 'started' && !this.#isPaused;
  }

  #pump(): void {
    if (this.#fetching || this.#state !== 'started') return;
    // Even without a free slot, repeat an unanswered fetch, because Redis may have begun attempts in it.
    if (this.#fetcher.unanswered === null && (this.#isPaused || this.#runningJobs.size >= this.#slots)) return;
    this.#fetching = this.#fetch().finally(() => {
      this.#fetching = null;
      this.#pump();
    });
  }

  async #fetch(): Promise<void> {
    try {
      const bounds = { jobs: this.#slots - this.#runningJobs.size, begins: this.#options.begins?.most() ?? 0 };
      const fetchedJobs = await this.#fetcher.take(bounds);
      await this.#accept(fetchedJobs ?? []);
      this.#pendingCancels.clear();
      // Null: Redis does not know yet that this runtime takes jobs, or the lease is late to be renewed. Try again a little later.
      if (fetchedJobs === null && this.#isTaking) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    } catch (error) {
      this.#quietIntervals = 0;
      if (this.#state !== 'started') return;
      if (StoreError.from(error).code !== 'store-unavailable')
        this.#options.log.error({ error }, 'jobs could not be fetched');
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  /**
   * Tells Redis that this runtime takes no more jobs, and waits for the end of the present fetch, which may have taken some already.
   *
   * @param maxWaitMs maximum wait for the fetch, raised to at least `FETCH_GRACE_MS`; no maximum by default
   */
  async #endFetch(maxWaitMs?: number): Promise<void> {
    await this.#options.lease.describe({ accepting: false });
    if (!this.#fetching) return;
    await this.#fetcher.wake();
    await (maxWaitMs === undefined ? this.#fetching : waitAtMost(this.#fetching, Math.max(maxWaitMs, FETCH_GRACE_MS)));
  }

  /** Waits for the end of the present fetch. When it fails, waits for its repetitions, too, since Redis may have handed over jobs under its token. */
  async #endFetches(): Promise<void> {
    do await this.#endFetch();
    while (this.#state === 'started' && this.#isPaused && this.#fetcher.unanswered !== null);
  }

  /** Runs fetched jobs. Before the next fetch, gives back those that this runtime may no longer run. */
  async #accept(fetchedJobs: readonly FetchedJob[]): Promise<void> {
    const { active, lease, log } = this.#options;
    if (fetchedJobs.length > 0) this.#quietIntervals = 0;
    // An attempt that the fetch has begun counts as running, and a pause or a drain lets running attempts end.
    const mayRun = ({ begun }: FetchedJob) => this.#state !== 'closed' && (begun !== null || this.#isTaking);
    const giveBacks = fetchedJobs
      .filter((one) => !mayRun(one))
      .map(({ job }) =>
        active.giveBack(job.id, lease.id, job.fetchToken).catch((error: unknown) => {
          log.error({ error, invocation: job.id }, 'a job could not be given back');
        }),
      );
    const runnableJobs = fetchedJobs.filter(mayRun);
    const confirmHeld = this.#fetcher.confirmReceived(runnableJobs);
    for (const { job, begun } of runnableJobs) {
      // This runtime may have lost the job since the fetch began its attempt.
      const outcomeIfHeld: Begun | null =
        begun && (async () => ((await confirmHeld()).has(job.id) ? begun : { refused: 'not-held' }));
      this.#hold(job, outcomeIfHeld);
    }
    await Promise.all(giveBacks);
  }

  #hold(job: FetchedJob['job'], begun: Begun | null): void {
    const runningJob: RunningJob = { job, begun, token: job.fetchToken, stop: new AbortController() };
    this.#jobs.set(job.id, runningJob);
    this.#runningJobs.add(runningJob);
    const cancel = this.#pendingCancels.get(job.id);
    if (cancel) runningJob.stop.abort(cancel);
    this.#execute(runningJob).catch((error: unknown) => {
      this.#options.log.error({ error, invocation: job.id }, 'the work on a job failed');
    });
  }

  async #execute(runningJob: RunningJob): Promise<void> {
    const { run, log } = this.#options;
    const { job, begun, stop } = runningJob;
    const remainingMs = job.submittedAt + job.deadlineMs - this.#options.store.clock();
    runningJob.deadline = setTimeout(
      () =>
        this.#stop(job.id, { code: 'deadline-exceeded', message: `The deadline of ${job.deadlineMs} ms has passed.` }),
      Math.max(0, Math.min(remainingMs, MAX_TIMER_MS)),
    );
    let outcome: unknown;
    try {
      outcome = await run(job, stop.signal, begun);
    } catch (error) {
      log.error({ error, invocation: job.id }, 'a run failed');
    } finally {
      clearTimeout(runningJob.deadline);
      this.#quietIntervals = 0;
      if (outcome === 'not-held' && this.#runningJobs.has(runningJob)) {
        await this.#leave(runningJob, 'giveBack');
        // If this runtime was declared dead and does not know it yet, the next job would be refused too: keep the slot for a moment.
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
      // Not after `#abandon`, which empties the set: a runtime that was declared dead does not own the job.
      if (this.#runningJobs.delete(runningJob)) {
        this.#pump();
        if (outcome !== 'not-held' && outcome !== 'ended') await this.#leave(runningJob, 'over');
        if (this.#jobs.get(job.id) === runningJob) this.#jobs.delete(job.id);
      }
      if (this.#jobs.size === 0) this.#onSettled?.();
    }
  }

  /** Gives up a job: its run is over, or it goes back into the queue. Retries while Redis is away, since the invocation must not stay open. */
  async #leave(runningJob: RunningJob, how: 'over' | 'giveBack'): Promise<void> {
    const { job, token, stop } = runningJob;
    const { id } = job;
    const { active, control, lease, log } = this.#options;
    while (this.#state !== 'closed') {
      try {
        await active[how](id, lease.id, token);
        // After a newer fetch of this job, a stored cancel is meant for the newer run.
        if (stop.signal.aborted && this.#jobs.get(id) === runningJob) await control.forgetCancel(lease.id, id);
        return;
      } catch (error) {
        log.warn({ error, invocation: id }, 'a job could not be given up');
        if (StoreError.from(error).code !== 'store-unavailable') return;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  #stop(id: string, reason: StopReason): void {
    this.#jobs.get(id)?.stop.abort(reason);
  }

  #cancel(id: string, reason: StopReason): void {
    if (this.#jobs.has(id)) this.#stop(id, reason);
    else if (this.#fetcher.unanswered !== null) this.#pendingCancels.set(id, reason);
  }

  /** Aborts all runs: this runtime was declared dead, and other runtimes own its invocations now. */
  #abandon(): void {
    this.#quietIntervals = 0;
    const lostJobs = [...this.#runningJobs];
    this.#runningJobs.clear();
    this.#jobs.clear();
    for (const [tenant, jobs] of Map.groupBy(lostJobs, ({ job }) => job.tenant))
      this.#options.log.warn(
        {
          runtime: this.#options.lease.id,
          tenant,
          count: jobs.length,
          invocations: jobs.slice(0, MAX_LOGGED_IDS).map(({ job }) => job.id),
        },
        'this runtime has lost its lease and stops the invocations that it still ran; the record of the process that recovered them says how they ended',
      );
    for (const runningJob of lostJobs) {
      clearTimeout(runningJob.deadline);
      const message = 'This runtime was declared dead, because it did not renew its lease in time.';
      runningJob.stop.abort({ code: 'runtime-lost', message } satisfies StopReason);
    }
    this.#settleUnknown(this.#options.store.clock()).catch((error: unknown) => {
      this.#options.log.error({ error }, 'jobs of the lost lease could not be settled');
    });
    this.#pump();
  }

  #scheduleAudit(afterMs: number): void {
    clearTimeout(this.#auditTimer);
    this.#auditTimer = setTimeout(() => {
      this.#audit()
        .catch((error: unknown) => this.#options.log.error({ error }, 'the search for lost jobs failed'))
        .finally(() => {
          if (this.#state !== 'closed') this.#scheduleAudit(AUDIT_MS);
        });
    }, afterMs);
  }

  async #audit(): Promise<void> {
    if (this.#quietIntervals > 0) {
      this.#quietIntervals -= 1;
      return;
    }
    // Set this before the search, since a job that comes or goes during the search sets it to 0.
    this.#quietIntervals = QUIET_INTERVALS;
    let isQuiet = false;
    try {
      isQuiet = !(await this.#settleUnknown(this.#options.store.clock() - LOST_REPLY_MS));
    } finally {
      if (!isQuiet) this.#quietIntervals = 0;
    }
  }

  /**
   * Settles jobs that Redis assigns to this runtime and that the runtime does not know of. Either the fetch reply never arrived, or the
   * runtime was declared dead and came back before recovery took the job away. An attempt that the runtime had received counts as lost; any
   * other job goes back into the queue. Resolves to true when there are such jobs, even if all are too recent to settle.
   *
   * @param fetchedBefore only jobs fetched until this time are settled, milliseconds since the Unix epoch
   */
  async #settleUnknown(fetchedBefore: number): Promise<boolean> {
    const { active, lease } = this.#options;
    const isKnown = (id: string) => this.#jobs.has(id);
    const unknownJobs = await active.heldBy(lease.id, isKnown);
    for (const { id, fetchedAt, fetchToken } of unknownJobs) {
      if (fetchedAt > fetchedBefore || isKnown(id)) continue;
      // The present fetch may answer with this job.
      if (this.#fetching && fetchToken !== null && fetchToken === this.#fetcher.unanswered) continue;
      await active.lost(id, lease.id, fetchToken ?? '', UNKNOWN);
    }
    return unknownJobs.length > 0;
  }

  async #waitUntilSettled(deadlineMs: number): Promise<void> {
    if (this.#jobs.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onSettled = resolve;
    await waitAtMost(promise, deadlineMs);
    this.#onSettled = undefined;
  }
}

/** Waits for `end`, for `ms` at most. */
async function waitAtMost(end: Promise<void>, ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  await Promise.race([end, promise]).finally(() => clearTimeout(timer));
}

function checkedSlots(slots: number): number {
  if (!Number.isInteger(slots) || slots < 1) throw new RangeError('A runtime has at least one slot.');
  return slots;
}

const TAKE_JOBS = loadScript(new URL('./jobs.lua', import.meta.url), 'take-jobs');

/** Longest blocking wait for a job in a platform of few runtimes; also the longest delay after a lost wake-up. */
const BLOCK_SECONDS = 2;
/**
 * Number of runtimes up to which a wait lasts `BLOCK_SECONDS`. With more runtimes, waits grow in proportion, up to `MAX_BLOCK_SECONDS`, so that
 * all runtimes together fetch no more often. After a lost wake-up, jobs wait no longer: the next fetch of any runtime finds them.
 */
const MAX_RUNTIMES_AT_SHORTEST_WAIT = 8;
const MAX_BLOCK_SECONDS = 8;
/** A blocking wait that Redis has not answered this long after the wait's timeout counts as lost with its connection. */
const LOST_WAIT_MS = 2000;
/** A wait longer than `BLOCK_SECONDS` also counts as lost when Redis has answered no lease renewal for this many lease lengths. */
const LOST_LEASES = 1.5;
/** Number of checks for such a lost wait in one lease length. */
const CHECKS_PER_LEASE = 2;
/**
 * A fetch that Redis has not answered this long after the wait's timeout fails. The time is long because the late answer may hold jobs, which
 * no other runtime gets for seconds.
 */
const LOST_FETCH_MS = 10_000;
/** Time after which Redis forgets a request of `wake` to end a wait. */
const WAKE_MS = 4000;
/** Maximum jobs of one fetch. Redis needs a fraction of a millisecond for so many, and serves no other command meanwhile. */
const MAX_JOBS_PER_FETCH = 16;
/** Duration of BullMQ's own lock. Leases tell which runtimes live, so this lock only has to outlast every deadline. */
const LOCK_MS = 7 * 24 * 3_600_000;

/** A runtime gets jobs only while at least this fraction of its lease is left. A healthy one renews its lease whenever a quarter has passed. */
const MIN_LEASE_LEFT = 0.5;

/** A job that a runtime has fetched. */
export interface FetchedJob {
  readonly job: InvocationJob & Required<Pick<InvocationJob, 'fetchToken'>>;
  /** Outcome of the attempt that the fetch began; null when the runtime is to begin the attempt. */
  readonly begun: AttemptOutcome | null;
}

/** Limits of a fetch. */
export interface FetchBounds {
  readonly jobs: number;
  /** Maximum number of attempts that the fetch itself begins. */
  readonly begins: number;
}

export interface JobFetcherOptions {
  /** The lease of the runtime that takes the jobs. */
  readonly lease: Pick<RuntimeLease, 'id' | 'lengthMs' | 'answeredAt'>;
  /** True when the runtime itself, instead of the store, shows the events of begun attempts to the clients that follow them. */
  readonly showsOwnEvents: boolean;
  readonly log: Logger;
}

/**
 * Takes admitted jobs from BullMQ's lists for one runtime, several in one call, which may also begin their attempts. BullMQ's own worker
 * takes one job in a call, and looks into an empty list twice for each job that comes alone. The fetcher has a connection of its own, since the
 * connection blocks while no job waits. It sends the script of a fetch right behind the blocking command: Redis runs the script as soon as a
 * job comes, without another round trip.
 */
export class JobFetcher {
  /** On the fetcher's own connection. */
  readonly #store: Store;
  /** On the process's connection, which never blocks. */
  readonly #sharedStore: Store;
  readonly #jobsKey: string;
  readonly #lease: JobFetcherOptions['lease'];
  readonly #showsOwnEvents: boolean;
  readonly #log: Logger;
  /** True when the last fetch left jobs behind. */
  #hasMore = false;
  /** Length of the next wait. */
  #blockSeconds = BLOCK_SECONDS;
  #tokenCount = 0;
  #pendingToken: string | null = null;

  constructor(sharedStore: Store, connection: Redis, { lease, showsOwnEvents, log }: JobFetcherOptions) {
    const { keys, clock } = sharedStore;
    connection.on('error', () => undefined);
    // ioredis resolves automatically pipelined commands together, so those of `confirmReceived` would wait for the next blocking command.
    connection.options.enableAutoPipelining = false;
    this.#store = new Store(connection, { prefix: keys.prefix, clock });
    this.#sharedStore = sharedStore;
    this.#jobsKey = keys.jobs;
    this.#lease = lease;
    this.#showsOwnEvents = showsOwnEvents;
    this.#log = log;
  }

  /** Resolves once the connection is ready. @throws StoreError */
  async ready(): Promise<void> {
    await this.#store.ping();
  }

  /** Calls back whenever the connection is ready again; returns the function that stops it. */
  onReady(listener: () => void): () => void {
    const { redis } = this.#store;
    redis.on('ready', listener);
    return () => redis.off('ready', listener);
  }

  /** Token of the fetch that Redis has not answered yet; null for none. Redis may have handed over jobs under this token. */
  get unanswered(): string | null {
    return this.#pendingToken;
  }

  /**
   * Waits until there are jobs, or until the wait times out, and takes some of them. Resolves to an empty list when there are none, and to null
   * when the runtime is described as one that takes no jobs, is not registered, or is late to renew its lease. After a failure, the next call
   * repeats the fetch under the same token, since Redis may have carried it out.
   */
  async take({ jobs, begins }: FetchBounds): Promise<FetchedJob[] | null> {
    const { keys } = this.#store;
    const { id: runtimeId, lengthMs: leaseMs } = this.#lease;
    // A repeated fetch does not wait, since Redis may have handed over its jobs already.
    if (!this.#hasMore && this.#pendingToken === null) this.#wait();
    this.#hasMore = false;
    this.#pendingToken ??= `${runtimeId}:${this.#tokenCount++}`;
    const fetchToken = this.#pendingToken;
    const reply = await this.#store.script(
      TAKE_JOBS,
      [
        `${this.#jobsKey}:wait`,
        `${this.#jobsKey}:active`,
        this.#marker,
        keys.runtimes,
        keys.fetch(runtimeId),
        keys.alive(runtimeId),
      ],
      [
        keys.prefix,
        `${this.#jobsKey}:`,
        runtimeId,
        fetchToken,
        LOCK_MS,
        Math.min(jobs, MAX_JOBS_PER_FETCH),
        begins,
        this.#showsOwnEvents ? SHOWN_AHEAD : 0,
        keys.cancels(runtimeId),
        keys.cancelChannel(runtimeId),
        MIN_LEASE_LEFT * leaseMs,
      ],
      1000 * this.#blockSeconds + LOST_FETCH_MS,
    );
    this.#pendingToken = null;
    const [remainingJobCount, , runtimes, ...takenJobs] = tuple(reply);
    this.#hasMore = Number(remainingJobCount) > 0;
    const waitFactor = Math.max(1, Number(runtimes) / MAX_RUNTIMES_AT_SHORTEST_WAIT);
    this.#blockSeconds = Math.min(BLOCK_SECONDS * waitFactor, MAX_BLOCK_SECONDS);
    if (Number(remainingJobCount) < 0) return null;
    const fetchedJobs: FetchedJob[] = [];
    for (let i = 0; i < takenJobs.length; i += 2) {
      // Redis has lost the data of this job; `AdmissionWorker` settles it later with other jobs that the runtime does not know of.
      if (takenJobs[i] === '') continue;
      try {
        const job = { ...(JSON.parse(String(takenJobs[i])) as InvocationJob), fetchToken };
        fetchedJobs.push({
          job,
          begun: takenJobs[i + 1] === '' ? null : attemptOutcome(takenJobs[i + 1]),
        });
      } catch (error) {
        this.#log.error({ error }, 'a job cannot be read');
      }
    }
    return fetchedJobs;
  }

  /**
   * Tells Redis that this runtime has received the jobs of a fetch. Until then, recovery assumes that the attempts which the fetch began have
   * not run. So run none of them before the returned function has resolved to the ids of the jobs that this runtime still holds. When the
   * commands failed, the returned function sends them again over the shared connection; it throws `StoreError` when these fail, too.
   */
  confirmReceived(fetchedJobs: readonly FetchedJob[]): () => Promise<ReadonlySet<string>> {
    const jobs = fetchedJobs.flatMap(({ job, begun }) => (begun === null ? [] : [job]));
    const [firstJob] = jobs;
    if (firstJob === undefined) return async () => new Set();
    const fetchKey = this.#store.keys.fetch(this.#lease.id);
    const locks = jobs.map(({ id }) => `${this.#jobsKey}:${id}:lock`);
    const confirmTo = (store: Store) =>
      store.call(async (redis) => {
        // HDEL comes first. If recovery takes a job between the two commands, the attempt counts as received and lost, and MGET finds no lock.
        const [, tokens] = await Promise.all([redis.hdel(fetchKey, `jobs:${firstJob.fetchToken}`), redis.mget(locks)]);
        return new Set(jobs.flatMap(({ id, fetchToken }, i) => (tokens[i] === fetchToken ? [id] : [])));
      });
    // The socket holds these commands back until the end of this turn of the event loop, and then sends them in one
    // write with the next fetch.
    const { stream } = this.#store.redis;
    stream?.cork();
    process.nextTick(() => stream?.uncork());
    let confirmation = confirmTo(this.#store);
    // The first call of the returned function handles a failure.
    confirmation.catch(() => undefined);
    return () => {
      confirmation = confirmation.catch(() => confirmTo(this.#sharedStore));
      return confirmation;
    };
  }

  /** Ends the wait of the present fetch, over the shared connection, because the fetcher's own is blocked. */
  async wake(): Promise<void> {
    const marker = this.#ownMarker;
    await this.#sharedStore.call((redis) => Promise.all([redis.zadd(marker, 0, '0'), redis.pexpire(marker, WAKE_MS)]));
  }

  close(): void {
    this.#store.redis.disconnect();
  }

  /** Blocks the connection until a marker comes or the wait times out. Connects again when the wait is lost. */
  #wait(): void {
    const { redis } = this.#store;
    const seconds = this.#blockSeconds;
    const wait = () => redis.bzpopmin(this.#marker, this.#ownMarker, seconds);
    // The fetch waits behind the lost wait on the same connection, so it would get no answer either.
    const reconnect = () => {
      if (redis.status === 'ready') redis.disconnect(true);
    };
    const { lengthMs } = this.#lease;
    const check = () => {
      if (performance.now() - this.#lease.answeredAt > LOST_LEASES * lengthMs) reconnect();
    };
    const checkTimer = seconds > BLOCK_SECONDS ? setInterval(check, lengthMs / CHECKS_PER_LEASE) : undefined;
    this.#store
      .call(wait, 1000 * seconds + LOST_WAIT_MS)
      .catch((error) => {
        if (StoreError.from(error).code === 'store-unavailable') reconnect();
      })
      .finally(() => clearInterval(checkTimer));
  }

  get #marker(): string {
    return `${this.#jobsKey}:marker`;
  }

  get #ownMarker(): string {
    return `${this.#marker}:${this.#lease.id}`;
  }
}
