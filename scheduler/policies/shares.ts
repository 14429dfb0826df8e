/** Part of the pool that a tenant may hold whenever the pool has room. */
const OWN_SHARE = 1 / 4;
/** Part of the pool that must stay free when a tenant takes more than {@link OWN_SHARE}. */
const LEFT_FREE = 1 / 2;

/**
 * Shares a bounded resource of a process, such as connections or bytes, between tenants. Beyond a quarter of the pool, a tenant may take more only
 * while half of the pool stays free. A tenant alone therefore gets at most half of the pool, and each of two tenants can always get a quarter. Three
 * or more tenants together can fill the pool.
 */
export class Shares {
  readonly #poolSize: number;
  readonly #heldByTenant = new Map<string, number>();
  #total = 0;

  constructor(poolSize: number) {
    this.#poolSize = poolSize;
  }

  /** The amount that all tenants hold. */
  get total(): number {
    return this.#total;
  }

  /** Number of tenants that hold something. */
  get tenants(): number {
    return this.#heldByTenant.size;
  }

  /** The amount that a tenant holds. */
  heldBy(tenant: string): number {
    return this.#heldByTenant.get(tenant) ?? 0;
  }

  /** True when a tenant that takes `amount` more holds at most the part that it may hold whenever the pool has room. */
  isOwn(tenant: string, amount: number): boolean {
    return this.heldBy(tenant) + amount <= this.#poolSize * OWN_SHARE;
  }

  /** True when a tenant may take `amount` more. */
  fits(tenant: string, amount = 1): boolean {
    const total = this.#total + amount;
    if (total > this.#poolSize) return false;
    return this.isOwn(tenant, amount) || total <= this.#poolSize * (1 - LEFT_FREE);
  }

  /** Gives a tenant `amount` more, and returns true. Returns false when it does not fit. After true, the caller must call `leave`. */
  enter(tenant: string, amount = 1): boolean {
    if (!this.fits(tenant, amount)) return false;
    this.add(tenant, amount);
    return true;
  }

  /** Counts an amount that a tenant has taken already, even when it does not fit. The caller must call `leave`. */
  add(tenant: string, amount: number): void {
    this.#heldByTenant.set(tenant, (this.#heldByTenant.get(tenant) ?? 0) + amount);
    this.#total += amount;
  }

  /** Returns an amount of a tenant to the pool. */
  leave(tenant: string, amount = 1): void {
    const ownAmount = (this.#heldByTenant.get(tenant) ?? 0) - amount;
    if (ownAmount > 0) this.#heldByTenant.set(tenant, ownAmount);
    else this.#heldByTenant.delete(tenant);
    this.#total -= amount;
  }
}

/** The part of its tenant's share that one inferlet holds. */
export class InferletShare {
  readonly #shares: Shares;
  readonly #tenant: string;
  readonly #guaranteedAmount: number;
  #heldAmount = 0;
  #isClosed = false;

  /** @param guaranteedAmount amount that always fits, whatever the tenant's other inferlets take */
  constructor(shares: Shares, tenant: string, guaranteedAmount = 0) {
    this.#shares = shares;
    this.#tenant = tenant;
    this.#guaranteedAmount = guaranteedAmount;
  }

  /** True when the inferlet may take `amount` more. */
  fits(amount: number): boolean {
    return this.#heldAmount + amount <= this.#guaranteedAmount || this.#shares.fits(this.#tenant, amount);
  }

  /** Counts an amount, even when it does not fit; a negative amount returns to the pool. Does nothing after `close`. */
  add(amount: number): void {
    if (this.#isClosed || amount === 0) return;
    this.#heldAmount += amount;
    if (amount > 0) this.#shares.add(this.#tenant, amount);
    else this.#shares.leave(this.#tenant, -amount);
  }

  close(): void {
    this.add(-this.#heldAmount);
    this.#isClosed = true;
  }
}
