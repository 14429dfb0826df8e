/**
 * Bounds the work under way at once, of one tenant and of all tenants. While all turns are taken, work waits in one queue for each tenant, and
 * the tenants with waiting work get free turns one after another.
 */
export class TenantTurns {
  readonly #limits: { readonly tenant: number; readonly all: number };
  readonly #running = new Map<string, number>();
  /** Waiting work by tenant, no queue empty; the tenant that gets the next turn is first. */
  readonly #waiting = new Map<string, Set<() => void>>();
  #total = 0;

  constructor(limits: { readonly tenant: number; readonly all: number }) {
    this.#limits = limits;
  }

  /** Pieces of work that run or wait. */
  get size(): number {
    let size = this.#total;
    for (const { size: waiting } of this.#waiting.values()) size += waiting;
    return size;
  }

  /**
   * Calls `begin` when the tenant gets a turn: during this call if one is free, else during a later `leave`. The caller
   * calls `leave` when the work has ended, after `begin` has returned: `leave` begins other work.
   *
   * @returns a function that takes the work out of the queue; it does nothing once the work has begun
   */
  request(tenant: string, begin: () => void): () => void {
    const queue = this.#waiting.get(tenant);
    if (!queue && this.#mayRun(tenant)) {
      this.#enter(tenant);
      begin();
      return () => undefined;
    }
    // Makes a function of its own for each request, because two requests may have the same `begin`.
    const work = () => begin();
    if (queue) queue.add(work);
    else this.#waiting.set(tenant, new Set([work]));
    return () => {
      const waiting = this.#waiting.get(tenant);
      waiting?.delete(work);
      if (waiting?.size === 0) this.#waiting.delete(tenant);
    };
  }

  /** Ends a turn of a tenant, and begins the work that may now run. */
  leave(tenant: string): void {
    this.#total--;
    const remaining = (this.#running.get(tenant) ?? 0) - 1;
    if (remaining > 0) this.#running.set(tenant, remaining);
    else this.#running.delete(tenant);
    // A tenant that gets a turn goes behind the others, where this loop meets it again.
    for (const [nextTenant, waiting] of this.#waiting) {
      if (this.#total >= this.#limits.all) return;
      const [first] = waiting;
      if (!first || !this.#mayRun(nextTenant)) continue;
      this.#waiting.delete(nextTenant);
      waiting.delete(first);
      if (waiting.size > 0) this.#waiting.set(nextTenant, waiting);
      this.#enter(nextTenant);
      first();
    }
  }

  #mayRun(tenant: string): boolean {
    return this.#total < this.#limits.all && (this.#running.get(tenant) ?? 0) < this.#limits.tenant;
  }

  #enter(tenant: string): void {
    this.#total++;
    this.#running.set(tenant, (this.#running.get(tenant) ?? 0) + 1);
  }
}
