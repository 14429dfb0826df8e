import type { ShortQuota, TokenGrant } from '#scheduler/quotas/exceeded.ts';
import type { TokenAsk } from '#scheduler/quotas/grants.ts';
import type { Tokens } from '../host/tokens.ts';

/** Interval between two asks of an attempt that waits for tokens of other attempts. */
const RETRY_MS = 50;
/** Waits of `RETRY_MS` without room after which an attempt gives up: a second. Counting waits leaves out time in which this process stood still. */
const MAX_WAITS = 20;

/** Calls back all attempts that wait for tokens in the same turn of the event loop, so that one store call carries their asks. */
export class GrantRetries {
  readonly #waiting = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  add(retry: () => void): void {
    this.#waiting.add(retry);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      const retries = [...this.#waiting];
      this.#waiting.clear();
      for (const each of retries) each();
    }, RETRY_MS);
  }

  delete(retry: () => void): void {
    this.#waiting.delete(retry);
  }
}

export interface AttemptGrantsOptions {
  readonly tokens: Pick<Tokens, 'isShort' | 'ask' | 'grant'>;
  readonly retries: GrantRetries;
  /** Reports the attempt's usage with an `ask`, whose answer comes with `answered`. Must not throw. */
  readonly report: () => Promise<void>;
  /** Called once when no quota has room for the tokens that the inferlet needs: the invocation must end. */
  readonly refused: (quota: ShortQuota) => void;
}

/**
 * Asks the store for the tokens that one attempt needs. Every report of usage carries an ask, so that an attempt that writes events seldom makes
 * a call of its own; one that cannot go on makes it at once. At most one ask is under way.
 */
export class AttemptGrants {
  readonly #options: AttemptGrantsOptions;
  #isAsking = false;
  #isOver = false;
  #turnEnd: NodeJS.Immediate | null = null;
  /** Waits for tokens of other attempts. The answers to other reports, which may come at any rate, do not count. */
  #waits = 0;
  #hasWaited = false;
  readonly #retry = () => {
    this.#hasWaited = true;
    this.request();
  };

  constructor(options: AttemptGrantsOptions) {
    this.#options = options;
  }

  /** Asks at the end of this turn of the event loop, unless an ask is under way. */
  request(): void {
    if (this.#isOver || this.#isAsking || this.#turnEnd) return;
    this.#turnEnd = setImmediate(() => {
      this.#turnEnd = null;
      // A report in this turn may have asked already.
      if (!this.#isOver && !this.#isAsking) void this.#options.report();
    });
  }

  /** The ask for a report of usage; null while another one is under way. The caller then calls `answered`. */
  ask(): TokenAsk | null {
    if (this.#isOver || this.#isAsking) return null;
    this.#isAsking = true;
    return this.#options.tokens.ask();
  }

  /** Takes the answer to the ask; null when there is none: the call failed, or the store refused it. */
  answered(grant: TokenGrant | null): void {
    this.#isAsking = false;
    if (this.#isOver) return;
    const { tokens, retries, refused } = this.#options;
    const hasWaited = this.#hasWaited;
    this.#hasWaited = false;
    if (grant) tokens.grant(grant.ceiling);
    if (!tokens.isShort) {
      this.#waits = 0;
      return;
    }
    // The inferlet needs more since the ask.
    if (grant && !grant.short) {
      this.request();
      return;
    }
    if (grant?.short && hasWaited) this.#waits++;
    if (grant?.short && (grant.short.isHopeless || this.#waits >= MAX_WAITS)) {
      this.end();
      refused(grant.short);
      return;
    }
    retries.add(this.#retry);
  }

  /** Asks no more: the inferlet has ended. */
  end(): void {
    this.#isOver = true;
    this.#options.retries.delete(this.#retry);
    if (this.#turnEnd) clearImmediate(this.#turnEnd);
  }
}
