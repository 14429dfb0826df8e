/** Part of the thread's time that the long work of all tenants together may take while more than one tenant is at work. */
const SHARE = 1 / 16;
/** Maximum balance of a tenant, ms. */
const MAX_BALANCE_MS = 2;
/** A tenant counts as at work for this time after its last call, ms, because its guest may soon make the next call. */
const PRESENT_MS = 50;

interface TenantCall {
  readonly tenant: string;
  /** Time of the call, by the clock `#now`. */
  readonly ms: number;
}

/**
 * Divides the time of the host's thread, which all tenants share, among tenants that do *long work*: work that takes long and needs no device step. A
 * tenant that is alone at work does long work without a limit. While several tenants are at work, all long work together gets the part `SHARE` of the
 * time, which is divided equally among the tenants that do long work.
 */
export class ThreadShare {
  readonly #now: () => number;
  readonly #tenantSources: (() => Iterable<string>)[] = [];
  /** Time that each tenant may still take, ms; negative after work that took longer. A tenant without an entry has the maximum balance. */
  readonly #balances = new Map<string, number>();
  /** Time of the last payment, by the clock `#now`. */
  #lastPaymentMs = 0;
  #latestCall: TenantCall | undefined;
  /** The latest call of another tenant than `#latestCall`. */
  #latestOtherCall: TenantCall | undefined;

  /** @param now milliseconds of a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Adds a model. `tenants` returns the tenants that have calls which wait for the device or use it; a tenant may be returned more than once. */
  join(tenants: () => Iterable<string>): void {
    this.#tenantSources.push(tenants);
  }

  /** Notes that the tenant made a call at the time `ms`. */
  noteCall(tenant: string, ms: number): void {
    if (this.#latestCall && this.#latestCall.tenant !== tenant) this.#latestOtherCall = this.#latestCall;
    this.#latestCall = { tenant, ms };
  }

  /** True when the tenant may do long work now. */
  mayWork(tenant: string): boolean {
    this.#pay();
    return this.#balanceOf(tenant) > 0 || !this.#isBesideOthers(tenant);
  }

  /** Charges the tenant for long work that took the thread for `ms`. The work of a tenant that is alone is free. */
  spend(tenant: string, ms: number): void {
    if (!this.#isBesideOthers(tenant)) return;
    this.#pay();
    this.#balances.set(tenant, this.#balanceOf(tenant) - ms);
  }

  #balanceOf(tenant: string): number {
    return this.#balances.get(tenant) ?? MAX_BALANCE_MS;
  }

  /** Adds `SHARE` of the time since the last payment to `#balances`, in equal parts. Removes the balances that reach the maximum. */
  #pay(): void {
    const nowMs = this.#now();
    const elapsedMs = nowMs - this.#lastPaymentMs;
    this.#lastPaymentMs = nowMs;
    if (this.#balances.size === 0) return;
    const partMs = (elapsedMs * SHARE) / this.#balances.size;
    for (const [tenant, balanceMs] of this.#balances) {
      if (balanceMs + partMs >= MAX_BALANCE_MS) this.#balances.delete(tenant);
      else this.#balances.set(tenant, balanceMs + partMs);
    }
  }

  /** True when another tenant is at work: it has made a call within `PRESENT_MS`, or has calls that wait for the device or use it. */
  #isBesideOthers(tenant: string): boolean {
    const otherCall = this.#latestCall?.tenant === tenant ? this.#latestOtherCall : this.#latestCall;
    if (otherCall && this.#now() - otherCall.ms < PRESENT_MS) return true;
    for (const tenants of this.#tenantSources) {
      for (const name of tenants()) if (name !== tenant) return true;
    }
    return false;
  }
}
