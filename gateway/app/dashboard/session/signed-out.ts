/** Maximum sessions remembered; beyond that the one that ends first is forgotten. */
const MAX_REMEMBERED = 10_000;

/** Sessions that signed out before their expiry. This gateway refuses copies of their cookies. */
export class SignedOut {
  /** Expiry of each session, ms since the Unix epoch; oldest sign-out first. */
  readonly #until = new Map<string, number>();
  readonly #most: number;

  constructor(most = MAX_REMEMBERED) {
    this.#most = most;
  }

  add(id: string, expiresAt: number, now: number): void {
    this.#until.set(id, expiresAt);
    if (this.#until.size <= this.#most) return;
    for (const [old, until] of this.#until) if (until <= now) this.#until.delete(old);
    if (this.#until.size <= this.#most) return;
    const [first] = [...this.#until].sort(([, a], [, b]) => a - b);
    if (first !== undefined) this.#until.delete(first[0]);
  }

  has(id: string): boolean {
    return this.#until.has(id);
  }
}
