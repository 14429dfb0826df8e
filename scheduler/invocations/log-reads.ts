import { TenantTurns } from '../policies/tenant-turns.ts';
import { StoreError } from '../store/errors.ts';

/**
 * Maximum reads under way, of one tenant and in all. Redis runs them one after another, some 15 ms for an event of 4 MiB, so the commands of other
 * tenants wait for at most `tenant` such reads of one tenant. With smaller limits, thousands of idle followers would wait for each other when each
 * answer of Redis takes 10 ms.
 */
const LIMITS = { tenant: 16, all: 64 };
/**
 * Other callers may join a waiting read for this time after its first caller. In an outage, the read fails once the first caller has waited
 * `outageMs`; a caller that has joined then fails at most this much earlier than it would alone.
 */
const JOIN_MS = 500;
/** A read that begins while Redis is away has at least this long for an answer: Redis may be back, but slow. */
const LEAST_MS = 500;

/** One read, for all callers that asked for it before it began. */
interface SharedRead<T> {
  readonly key: string;
  readonly askedAtMs: number;
  readonly result: PromiseWithResolvers<T>;
  /** One function for each caller, true once the caller has left. */
  readonly callers: (() => boolean)[];
  /** Takes the read out of the queue. */
  leaveQueue?: () => void;
}

/**
 * Makes the reads of logs for followers, in turns of the tenants. Thousands may follow one invocation, so callers that ask for a read while the
 * same one waits share it. No caller joins a read that has begun: it may miss events that the caller knows of, and may be about to give up.
 */
export class LogReads<T> {
  readonly #outageMs: number;
  readonly #turns = new TenantTurns(LIMITS);
  /** Reads that wait for a turn. */
  readonly #waiting = new Set<SharedRead<T>>();
  /** The last waiting read of each tenant and name. */
  readonly #joinable = new Map<string, SharedRead<T>>();
  /** True once an outage has made a read fail, until Redis answers a read. */
  #isAway = false;

  /** @param outageMs how long a read waits for Redis to come back */
  constructor(outageMs: number) {
    this.#outageMs = outageMs;
  }

  /**
   * Makes a read when the tenant's turn comes. The wait for the turn does not count towards `outageMs`, unless Redis is away: then a read fails
   * as `store-unavailable` once its caller has waited `outageMs`, with a turn or without.
   *
   * @param name equal for reads with equal results
   * @param isOver true once the caller has left
   * @param read makes the read; gets the time (`performance.now()`) at which to give up, and a function that is true once all callers have left
   * @throws StoreError what `read` throws; `store-unavailable` when all callers left before the turn came
   */
  read(
    tenant: string,
    name: string,
    isOver: () => boolean,
    read: (giveUpAtMs: number, isOver: () => boolean) => Promise<T>,
  ): Promise<T> {
    const key = `${tenant} ${name}`;
    const nowMs = performance.now();
    const joined = this.#joinable.get(key);
    if (joined && nowMs < joined.askedAtMs + JOIN_MS) {
      joined.callers.push(isOver);
      return joined.result.promise;
    }
    const asked: SharedRead<T> = { key, askedAtMs: nowMs, result: Promise.withResolvers<T>(), callers: [isOver] };
    this.#waiting.add(asked);
    this.#joinable.set(key, asked);
    // Begins the read at once if a turn is free.
    asked.leaveQueue = this.#turns.request(tenant, () => {
      this.#forget(asked);
      void this.#make(tenant, asked, read);
    });
    return asked.result.promise;
  }

  async #make(
    tenant: string,
    { askedAtMs, result, callers }: SharedRead<T>,
    read: (giveUpAtMs: number, isOver: () => boolean) => Promise<T>,
  ): Promise<void> {
    const nowMs = performance.now();
    const giveUpAtMs = this.#isAway ? Math.max(askedAtMs + this.#outageMs, nowMs + LEAST_MS) : nowMs + this.#outageMs;
    const isOver = () => callers.every((hasLeft) => hasLeft());
    try {
      if (isOver()) {
        // The end of this turn begins the next read. Without the `await`, thousands of reads whose callers have left would nest in one call stack.
        await null;
        throw new StoreError('store-unavailable', 'The callers of this read have left.', { unsent: true });
      }
      result.resolve(await read(giveUpAtMs, isOver));
      this.#isAway = false;
    } catch (error) {
      result.reject(error);
      if (StoreError.from(error).code !== 'store-unavailable') this.#isAway = false;
      else if (!isOver()) this.#failWaiting(giveUpAtMs - this.#outageMs, error);
    } finally {
      this.#turns.leave(tenant);
    }
  }

  /** Called when an outage has made a read fail. Fails the waiting reads that were asked for before the outage, or at least `outageMs` ago. */
  #failWaiting(awaySinceMs: number, error: unknown): void {
    this.#isAway = true;
    const lastMs = Math.max(awaySinceMs, performance.now() - this.#outageMs);
    for (const waiting of this.#waiting) {
      if (waiting.askedAtMs > lastMs) continue;
      this.#forget(waiting);
      waiting.leaveQueue?.();
      waiting.result.reject(error);
    }
  }

  #forget(read: SharedRead<T>): void {
    this.#waiting.delete(read);
    if (this.#joinable.get(read.key) === read) this.#joinable.delete(read.key);
  }
}
