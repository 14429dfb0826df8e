import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '../policies/logger.ts';
import type { Submitted } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import type { CancelOutcome } from './control.ts';
import type { Submission } from './submission.ts';

/** Pause before another cancel of the same invocation. */
const PAUSE_MS = 1000;
/**
 * Maximum invocations that are being withdrawn, and maximum remembered single-use keys: idempotency keys that an edge gateway makes for one
 * request.
 */
const MAX_WITHDRAWN = 4096;
/** Time for which a withdrawn invocation's key is remembered: an edge gateway waits 60 s for an answer, then repeats its request for 5 s. */
const SPENT_MS = 90_000;
const REASON = 'Redis did not answer the submission in time, and its client was told to send it again.';

/**
 * Cancels invocations whose submission failed because Redis did not answer. Redis may still run the submission's script, and the client knows no
 * id with which it could cancel the invocation. The cancel follows the submission on the same connection.
 */
export class Withdrawals {
  readonly #submit: (submission: Submission) => Promise<Submitted>;
  readonly #cancel: (id: string, reason: string) => Promise<CancelOutcome>;
  readonly #log: Logger;
  readonly #ids = new Set<string>();
  /** Submissions under way, and failed submissions of withdrawn invocations, by tenant, idempotency key and fingerprint. */
  readonly #submissionsByKey = new Map<string, Promise<Submitted>>();
  readonly #stopped = new AbortController();

  /** @param cancel throws `store-unavailable` when Redis did not answer. */
  constructor(
    submit: (submission: Submission) => Promise<Submitted>,
    cancel: (id: string, reason: string) => Promise<CancelOutcome>,
    log: Logger,
  ) {
    this.#submit = submit;
    this.#cancel = cancel;
    this.#log = log;
  }

  /** Number of invocations that are being withdrawn: Redis has not answered their cancels yet. */
  get size(): number {
    return this.#ids.size;
  }

  /**
   * Submits an invocation for a request without an idempotency key, or with a single-use one: the client of such a request cannot find the
   * invocation after an error. When Redis does not answer, cancels the invocation in the background: now, and again until Redis has answered.
   * An edge gateway may repeat a request with its single-use key. A repeated request shares the submission while that is under way, and then its
   * error for `SPENT_MS`: in Redis, the key would lead to the cancelled invocation.
   */
  async submit(submission: Submission): Promise<Submitted> {
    const { tenant, idempotencyKey, fingerprint } = submission;
    if (idempotencyKey === undefined) return this.#submitOrWithdraw(submission);
    const name = JSON.stringify([tenant, idempotencyKey, fingerprint]);
    const earlier = this.#submissionsByKey.get(name);
    if (earlier !== undefined) return { ...(await earlier), created: false };
    const submitted = this.#submitOrWithdraw(submission);
    this.#submissionsByKey.set(name, submitted);
    const forget = () => void this.#submissionsByKey.delete(name);
    await submitted.then(forget, (error: unknown) => {
      if (!mayBeStored(error) || this.#submissionsByKey.size > MAX_WITHDRAWN) forget();
      else void sleep(SPENT_MS, undefined, { ref: false, signal: this.#stopped.signal }).then(forget, forget);
    });
    return submitted;
  }

  async #submitOrWithdraw(submission: Submission): Promise<Submitted> {
    try {
      return await this.#submit(submission);
    } catch (error) {
      if (mayBeStored(error)) this.#withdraw(submission.id);
      throw error;
    }
  }

  #withdraw(id: string): void {
    // Invocations past this bound are not cancelled.
    if (this.#ids.size >= MAX_WITHDRAWN) return;
    this.#ids.add(id);
    void this.#untilCertain(id)
      .catch((error: unknown) => this.#log.error({ error, invocation: id }, 'an invocation could not be withdrawn'))
      .finally(() => this.#ids.delete(id));
  }

  /** Stops repeating the cancels. */
  stop(): void {
    this.#stopped.abort();
  }

  async #untilCertain(id: string): Promise<void> {
    const { signal } = this.#stopped;
    let unknownCount = 0;
    while (!signal.aborted) {
      const outcome = await this.#tryCancel(id);
      // A restarted Redis lacks the submission's script, so the store sends the submission again, and the first cancel may overtake it. Only a
      // second `unknown` is therefore certain.
      if (outcome === 'unknown') unknownCount += 1;
      if (outcome !== null && (outcome !== 'unknown' || unknownCount === 2)) return;
      await sleep(PAUSE_MS, undefined, { ref: false, signal }).catch(() => undefined);
    }
  }

  /** Null when Redis did not answer. */
  async #tryCancel(id: string): Promise<CancelOutcome | null> {
    try {
      return await this.#cancel(id, REASON);
    } catch (error) {
      if (isUnanswered(error)) return null;
      throw error;
    }
  }
}

/**
 * True when Redis may store the submission although it failed. A Redis without free memory (`full`) or disk (`diskFault`) has refused to store
 * it, and Redis knows nothing of a submission that the store did not send (`unsent`).
 */
function mayBeStored(error: unknown): boolean {
  return isUnanswered(error) && !error.full && error.diskFault === undefined && !error.unsent;
}

function isUnanswered(error: unknown): error is StoreError {
  return error instanceof StoreError && error.code === 'store-unavailable';
}
