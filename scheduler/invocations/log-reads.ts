import { TenantTurns } from '../policies/tenant-turns.ts';
import { StoreError } from '../store/errors.ts';

/**
 * Maximum reads under way. Redis makes one after another and takes some 15 ms for an event of 4 MiB: the commands of other tenants wait for at
 * most `tenant` such reads of one tenant.
 */
const LIMITS = { tenant: 4, all: 16 };

/** One read, for all callers that asked for it before it began. */
interface SharedRead<T> {
  readonly askedAtMs: number;
  readonly result: PromiseWithResolvers<T>;
  /** One function for each caller, true once the caller has left. */
  readonly callers: (() => boolean)[];
  /** Set when Redis has been away since before the first caller asked. */
  giveUpAtMs?: number;
  /** Takes the read out of the queue. */
  cancel?: () => void;
}

/**
 * Makes the reads of logs for followers, in turns of the tenants. Thousands may follow one invocation, so callers that ask for a read while the
 * same one waits share it. No caller joins a read that has begun: it may miss events that the caller knows of, and may be about to give up.
 */
export class LogReads<T> {
  readonly #outageMs: number;
  readonly #turns = new TenantTurns(LIMITS);
  /** Reads that wait for a turn, by tenant and name. */
  readonly #waiting = new Map<string, SharedRead<T>>();

  /** @param outageMs how long a read that has begun waits for Redis to come back */
  constructor(outageMs: number) {
    this.#outageMs = outageMs;
  }

  /**
   * Makes a read when the tenant's turn comes. A read that fails as `store-unavailable` has waited through an outage. The waiting reads that
   * were asked for before it began have waited as long, and fail with it.
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
    const waiting = this.#waiting.get(key);
    if (waiting) {
      waiting.callers.push(isOver);
      return waiting.result.promise;
    }
    const asked: SharedRead<T> = {
      askedAtMs: performance.now(),
      result: Promise.withResolvers<T>(),
      callers: [isOver],
    };
    this.#waiting.set(key, asked);
    // Begins the read at once if a turn is free.
    asked.cancel = this.#turns.request(tenant, () => {
      this.#waiting.delete(key);
      void this.#make(tenant, asked, read);
    });
    return asked.result.promise;
  }

  async #make(
    tenant: string,
    { result, callers, giveUpAtMs }: SharedRead<T>,
    read: (giveUpAtMs: number, isOver: () => boolean) => Promise<T>,
  ): Promise<void> {
    const begunAtMs = performance.now();
    const isOver = () => callers.every((hasLeft) => hasLeft());
    try {
      if (isOver()) throw new StoreError('store-unavailable', 'The callers of this read have left.', { unsent: true });
      result.resolve(await read(giveUpAtMs ?? begunAtMs + this.#outageMs, isOver));
    } catch (error) {
      result.reject(error);
      if (!isOver() && StoreError.from(error).code === 'store-unavailable') this.#shareOutage(begunAtMs, error);
    } finally {
      this.#turns.leave(tenant);
    }
  }

  /** Ends the waiting reads whose callers have waited since before an outage that made a read fail, and bounds the wait of the others. */
  #shareOutage(sinceMs: number, error: unknown): void {
    for (const [key, waiting] of this.#waiting) {
      if (waiting.askedAtMs > sinceMs) waiting.giveUpAtMs = waiting.askedAtMs + this.#outageMs;
      else {
        this.#waiting.delete(key);
        waiting.cancel?.();
        waiting.result.reject(error);
      }
    }
  }
}
