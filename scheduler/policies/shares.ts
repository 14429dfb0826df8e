/** Every tenant may have so much of a pool; whoever wants more leaves a half of it free. */
const OWN_SHARE = 1 / 4;
const LEFT_FREE = 1 / 2;

/**
 * How tenants share something of which a process has only so much: places, or bytes. A quarter is there for each, come what may of one other;
 * beyond its quarter a tenant grows only while half of the pool stays free. One that is alone has a half.
 */
export class Shares {
  readonly #most: number;
  readonly #held = new Map<string, number>();
  #total = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** What all tenants have. */
  get total(): number {
    return this.#total;
  }

  /** Gives a tenant so much more, or refuses. Whoever is let in leaves. */
  enter(tenant: string, amount = 1): boolean {
    const own = (this.#held.get(tenant) ?? 0) + amount;
    const total = this.#total + amount;
    if (total > this.#most) return false;
    if (own > this.#most * OWN_SHARE && total > this.#most * (1 - LEFT_FREE)) return false;
    this.#held.set(tenant, own);
    this.#total = total;
    return true;
  }

  leave(tenant: string, amount = 1): void {
    const own = (this.#held.get(tenant) ?? 0) - amount;
    if (own > 0) this.#held.set(tenant, own);
    else this.#held.delete(tenant);
    this.#total -= amount;
  }
}
