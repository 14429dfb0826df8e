/** Maximum sessions remembered; beyond that the one that ends first is forgotten. */
const MAX_REMEMBERED = 10_000;

/** Sessions that signed out before their expiry. This gateway refuses copies of their cookies. */
export class SignedOut {
  /** Expiry of each session, ms since the Unix epoch; oldest sign-out first. */
  readonly #expiries = new Map<string, number>();
  readonly #maxRemembered: number;

  constructor(maxRemembered = MAX_REMEMBERED) {
    this.#maxRemembered = maxRemembered;
  }

  add(id: string, expiresAt: number, now: number): void {
    this.#expiries.set(id, expiresAt);
    if (this.#expiries.size <= this.#maxRemembered) return;
    for (const [old, until] of this.#expiries) if (until <= now) this.#expiries.delete(old);
    if (this.#expiries.size <= this.#maxRemembered) return;
    const [first] = [...this.#expiries].sort(([, a], [, b]) => a - b);
    if (first !== undefined) this.#expiries.delete(first[0]);
  }

  has(id: string): boolean {
    return this.#expiries.has(id);
  }
}
