export interface AttemptsOptions {
  /** Attempts at once. */
  readonly burst: number;
  /** Until one more is allowed. */
  readonly refillMs: number;
  /** Addresses remembered; the one that was seen longest ago is forgotten first. */
  readonly maxAddresses: number;
}

export const SIGN_IN_ATTEMPTS: AttemptsOptions = { burst: 10, refillMs: 3000, maxAddresses: 10_000 };

interface Bucket {
  tokens: number;
  at: number;
}

/** A token bucket for each address: how often somebody may try a key that is not known. */
export class Attempts {
  readonly #options: AttemptsOptions;
  /** By when they were used last, oldest first. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(options: AttemptsOptions = SIGN_IN_ATTEMPTS) {
    this.#options = options;
  }

  /** Takes one attempt. 0 when it is allowed, else the milliseconds until one is. */
  take(address: string, now: number): number {
    const { burst, refillMs, maxAddresses } = this.#options;
    const old = this.#buckets.get(address);
    const tokens = old === undefined ? burst : Math.min(burst, old.tokens + (now - old.at) / refillMs);
    const allowed = tokens >= 1;
    this.#buckets.delete(address);
    this.#buckets.set(address, { tokens: allowed ? tokens - 1 : tokens, at: now });
    if (this.#buckets.size > maxAddresses) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
    return allowed ? 0 : Math.ceil((1 - tokens) * refillMs);
  }
}
