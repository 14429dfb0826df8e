export interface SignInLimits {
  /** Attempts that an address may make at once. */
  readonly burst: number;
  /** Time until one more attempt is allowed. */
  readonly refillMs: number;
  /** Maximum remembered addresses. Beyond it, the address whose last attempt is the oldest is forgotten. */
  readonly maxAddresses: number;
}

const DEFAULT_LIMITS: SignInLimits = { burst: 10, refillMs: 3000, maxAddresses: 10_000 };

interface Bucket {
  /** Attempts that were left at `updatedAt`; not a whole number while one is being refilled. */
  tokens: number;
  updatedAt: number;
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
    const tokens = old === undefined ? burst : Math.min(burst, old.tokens + (now - old.updatedAt) / refillMs);
    const isAllowed = tokens >= 1;
    this.#buckets.delete(address);
    this.#buckets.set(address, { tokens: isAllowed ? tokens - 1 : tokens, updatedAt: now });
    if (this.#buckets.size > maxAddresses) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
    return isAllowed ? 0 : Math.ceil((1 - tokens) * refillMs);
  }
}
