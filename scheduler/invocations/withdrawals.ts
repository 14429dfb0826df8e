import { setTimeout as sleep } from 'node:timers/promises';
import { StoreError } from '../store/errors.ts';
import type { CancelOutcome } from './control.ts';

/** Pause before another cancel of the same invocation. */
const PAUSE_MS = 1000;
/** Maximum invocations that are being withdrawn. */
const MAX_WITHDRAWN = 4096;
const REASON = 'Redis did not answer the submission in time, and its client was told to send it again.';

/**
 * Cancels invocations whose submission failed because Redis did not answer. Their scripts may be on their way still, and their clients know
 * no ids. The cancels go over the connection of the submissions, behind them.
 */
export class Withdrawals {
  readonly #cancel: (id: string, reason: string) => Promise<CancelOutcome>;
  readonly #onError: ((error: unknown) => void) | undefined;
  readonly #ids = new Set<string>();
  readonly #stopped = new AbortController();

  /** @param cancel throws `store-unavailable` when Redis did not answer. */
  constructor(
    cancel: (id: string, reason: string) => Promise<CancelOutcome>,
    onError: ((error: unknown) => void) | undefined,
  ) {
    this.#cancel = cancel;
    this.#onError = onError;
  }

  /** Number of invocations that are being withdrawn: Redis has not answered their cancels yet. */
  get size(): number {
    return this.#ids.size;
  }

  /**
   * Cancels an invocation whose submission failed, in the background: now, and again until Redis has answered. Does nothing for an error after
   * which Redis stores nothing.
   */
  failed(id: string, error: unknown): void {
    if (!isUnanswered(error) || error.full) return;
    // An outage begins with the submissions that were on their way. Later ones wait for the connection, and Redis never gets them.
    if (this.#ids.size >= MAX_WITHDRAWN) return;
    this.#ids.add(id);
    void this.#untilCertain(id)
      .catch((caught: unknown) => this.#onError?.(caught))
      .finally(() => this.#ids.delete(id));
  }

  /** Ends all attempts. */
  stop(): void {
    this.#stopped.abort();
  }

  async #untilCertain(id: string): Promise<void> {
    const { signal } = this.#stopped;
    let unknown = 0;
    while (!signal.aborted) {
      const outcome = await this.#attempt(id);
      // A restarted Redis does not know the script of the submission, which the store then sends again: a first cancel may overtake it.
      if (outcome === 'unknown') unknown += 1;
      if (outcome !== null && (outcome !== 'unknown' || unknown === 2)) return;
      await sleep(PAUSE_MS, undefined, { ref: false, signal }).catch(() => undefined);
    }
  }

  /** Null when Redis did not answer. */
  async #attempt(id: string): Promise<CancelOutcome | null> {
    try {
      return await this.#cancel(id, REASON);
    } catch (error) {
      if (isUnanswered(error)) return null;
      throw error;
    }
  }
}

function isUnanswered(error: unknown): error is StoreError {
  return error instanceof StoreError && error.code === 'store-unavailable';
}
