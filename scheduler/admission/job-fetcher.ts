import type { Redis } from 'ioredis';
import { SHOWN_AHEAD } from '../invocations/appends.ts';
import { attemptOutcome } from '../invocations/begins.ts';
import { tuple } from '../invocations/replies.ts';
import type { AttemptOutcome } from '../invocations/types.ts';
import type { Logger } from '../policies/logger.ts';
import type { RuntimeLease } from '../runtimes/lease.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { Store } from '../store/store.ts';
import type { InvocationJob } from './job.ts';

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
