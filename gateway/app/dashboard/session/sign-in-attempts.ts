export interface SignInLimits {
  /** Attempts that an address may make at once. */
  readonly burst: number;
  /** Time until one more attempt is allowed. */
  readonly refillMs: number;
  /** Maximum addresses remembered; the one used longest ago is forgotten first. */
  readonly maxAddresses: number;
}

const DEFAULT_LIMITS: SignInLimits = { burst: 10, refillMs: 3000, maxAddresses: 10_000 };

interface Bucket {
  tokens: number;
  at: number;
}

/** A token bucket per address: bounds sign-in attempts with unknown keys. */
export class SignInAttempts {
  readonly #options: SignInLimits;
  /** In order of last use, oldest first. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(options: SignInLimits = DEFAULT_LIMITS) {
    this.#options = options;
  }

  /**
   * Takes one attempt at `now`, milliseconds of a clock that never steps back. Returns 0 when the attempt is allowed, else the milliseconds until
   * the next allowed one.
   */
  take(address: string, now: number): number {
    const { burst, refillMs, maxAddresses } = this.#options;
    const old = this.#buckets.get(address);
    const tokens = old === undefined ? burst : Math.min(burst, old.tokens + (now - old.at) / refillMs);
    const isAllowed = tokens >= 1;
    this.#buckets.delete(address);
    this.#buckets.set(address, { tokens: isAllowed ? tokens - 1 : tokens, at: now });
    if (this.#buckets.size > maxAddresses) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
    return isAllowed ? 0 : Math.ceil((1 - tokens) * refillMs);
  }
}
