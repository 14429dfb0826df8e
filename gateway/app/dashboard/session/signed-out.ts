/** Maximum remembered sessions. Beyond it, the session that expires first is forgotten. */
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
    for (const [other, expiry] of this.#expiries) if (expiry <= now) this.#expiries.delete(other);
    if (this.#expiries.size <= this.#maxRemembered) return;
    const [[firstToExpire] = []] = [...this.#expiries].sort(([, a], [, b]) => a - b);
    if (firstToExpire !== undefined) this.#expiries.delete(firstToExpire);
  }

  has(id: string): boolean {
    return this.#expiries.has(id);
  }
}
