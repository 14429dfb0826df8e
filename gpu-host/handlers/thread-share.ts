/** Part of the thread's time that the long work of all tenants may take while other tenants wait. */
const SHARE = 1 / 16;
/** Maximum time that a tenant saves up, ms. */
const SAVED_MS = 2;
/** A tenant counts as at work for this long after its last call, ms: its guest may be between two calls. */
const PRESENT_MS = 50;

interface TenantCall {
  readonly tenant: string;
  readonly ms: number;
}

/**
 * Divides the host's thread, which all tenants share, for work that takes long and needs no step. A tenant does such work freely while it is
 * alone. While another is at work, all long work together takes a sixteenth of the time, and tenants have equal parts of that.
 */
export class ThreadShare {
  readonly #now: () => number;
  readonly #tenantSources: (() => Iterable<string>)[] = [];
  /** Time that each tenant may take, ms; negative after work that took longer. A tenant without an entry has saved up `SAVED_MS`. */
  readonly #balances = new Map<string, number>();
  /** Time of the last call of `#pay`. */
  #paidMs = 0;
  #latestCall: TenantCall | undefined;
  /** The latest call of another tenant than `#latestCall`. */
  #latestOtherCall: TenantCall | undefined;

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Adds a model. `tenants` returns the tenants whose calls wait for the device or use it, each once or more often. */
  join(tenants: () => Iterable<string>): void {
    this.#tenantSources.push(tenants);
  }

  /** Notes a call of the tenant. */
  noteCall(tenant: string, ms: number): void {
    if (this.#latestCall && this.#latestCall.tenant !== tenant) this.#latestOtherCall = this.#latestCall;
    this.#latestCall = { tenant, ms };
  }

  /** True when the tenant may do long work now. */
  mayWork(tenant: string): boolean {
    this.#pay();
    return (this.#balances.get(tenant) ?? SAVED_MS) > 0 || !this.#isBesideOthers(tenant);
  }

  /** Notes that the tenant's work took the thread for `ms`. */
  spend(tenant: string, ms: number): void {
    if (!this.#isBesideOthers(tenant)) return;
    this.#pay();
    this.#balances.set(tenant, (this.#balances.get(tenant) ?? SAVED_MS) - ms);
  }

  /** Divides `SHARE` of the time since the last payment equally among the tenants in `#balances`. */
  #pay(): void {
    if (this.#balances.size === 0) {
      this.#paidMs = this.#now();
      return;
    }
    const nowMs = this.#now();
    const partMs = ((nowMs - this.#paidMs) * SHARE) / this.#balances.size;
    this.#paidMs = nowMs;
    for (const [tenant, balanceMs] of this.#balances) {
      if (balanceMs + partMs >= SAVED_MS) this.#balances.delete(tenant);
      else this.#balances.set(tenant, balanceMs + partMs);
    }
  }

  #isBesideOthers(tenant: string): boolean {
    const otherCall = this.#latestCall?.tenant === tenant ? this.#latestOtherCall : this.#latestCall;
    if (otherCall && this.#now() - otherCall.ms < PRESENT_MS) return true;
    for (const tenants of this.#tenantSources) for (const name of tenants()) if (name !== tenant) return true;
    return false;
  }
}
