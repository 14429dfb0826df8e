import type { Redis } from 'ioredis';
import { tuple } from '../invocations/replies.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import { Store } from '../store/store.ts';
import type { InvocationJob } from './job.ts';

const TAKE_JOBS = loadScript(new URL('./scripts/take-jobs.lua', import.meta.url));

/** Longest blocking wait for a job; also the longest delay after a lost wake-up. */
const BLOCK_SECONDS = 2;
/** Time after which a blocking wait without an answer counts as lost with its connection. */
const LOST_WAIT_MS = 1000 * BLOCK_SECONDS + 2000;
/** Time after which a fetch without an answer counts as lost. A late answer is worth waiting for: no other runtime gets its jobs for seconds. */
const LOST_FETCH_MS = 10_000;
/** Most jobs of one fetch: a fraction of a millisecond of Redis. */
const MAX_TAKEN = 16;
/** Duration of BullMQ's own lock. Leases tell which runtimes live, so this lock only has to outlast every deadline. */
const LOCK_MS = 7 * 24 * 3_600_000;

export type FetchedJob = InvocationJob & Required<Pick<InvocationJob, 'fetchToken'>>;

/**
 * Takes admitted jobs from BullMQ's lists for one runtime, several in one call. BullMQ's own worker takes one job in a call, and looks into
 * an empty list twice for each job that comes alone. The connection is the fetcher's own: it blocks while no job waits.
 */
export class JobFetcher {
  readonly #store: Store;
  readonly #jobs: string;
  readonly #runtimeId: string;
  /** True when the last fetch left jobs behind. */
  #more = false;
  #tokens = 0;

  constructor({ keys, clock }: Store, connection: Redis, runtimeId: string) {
    connection.on('error', () => undefined);
    this.#store = new Store(connection, { prefix: keys.prefix, clock });
    this.#jobs = keys.jobs;
    this.#runtimeId = runtimeId;
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

  /** Waits until a fetch is due: jobs wait, or the last look is some time ago. @throws StoreError */
  async due(): Promise<void> {
    if (this.#more) return;
    const { redis } = this.#store;
    try {
      await this.#store.call(() => redis.bzpopmin(this.#marker, BLOCK_SECONDS), LOST_WAIT_MS);
    } catch (error) {
      // A command that the connection still holds would block the next fetch.
      if (redis.status === 'ready' && StoreError.from(error).code === 'store-unavailable') redis.disconnect(true);
      throw error;
    }
  }

  /** Passes a wake-up on to another runtime. */
  async wakeAnother(): Promise<void> {
    await this.#store.call((redis) => redis.zadd(this.#marker, 0, '0'));
  }

  /** Takes up to `most` jobs, none when no job waits. */
  async take(most: number): Promise<FetchedJob[]> {
    this.#more = false;
    this.#tokens += 1;
    const { keys, clock } = this.#store;
    const fetchToken = `${this.#runtimeId}:${this.#tokens}`;
    const reply = await this.#store.script(
      TAKE_JOBS,
      [`${this.#jobs}:wait`, `${this.#jobs}:active`, this.#marker, keys.runtimes],
      [`${this.#jobs}:`, this.#runtimeId, fetchToken, clock(), LOCK_MS, Math.min(most, MAX_TAKEN)],
      LOST_FETCH_MS,
    );
    const [left, ...taken] = tuple(reply);
    this.#more = Number(left) > 0;
    return taken
      .filter((data) => data !== '')
      .map((data) => ({ ...(JSON.parse(String(data)) as InvocationJob), fetchToken }));
  }

  close(): void {
    this.#store.redis.disconnect();
  }

  get #marker(): string {
    return `${this.#jobs}:marker`;
  }
}
