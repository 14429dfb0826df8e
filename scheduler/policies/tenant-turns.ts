/**
 * Bounds the work that runs at once, for one tenant and for all tenants. A turn is the right to run one piece of work. Without a free turn, work
 * waits in a queue of its tenant, and the tenants with waiting work get free turns in rotation.
 */
export class TenantTurns {
  readonly #limits: { readonly tenant: number; readonly all: number };
  /** Number of running pieces of work by tenant. */
  readonly #running = new Map<string, number>();
  /** Queues of waiting work by tenant, none of them empty. The tenant that gets the next turn comes first. */
  readonly #waiting = new Map<string, Set<() => void>>();
  /** Number of running pieces of work of all tenants. */
  #total = 0;

  /** @param limits maximum pieces of work that run at once, of one tenant and of all tenants */
  constructor(limits: { readonly tenant: number; readonly all: number }) {
    this.#limits = limits;
  }

  /** Number of pieces of work that run or wait. */
  get size(): number {
    let size = this.#total;
    for (const queue of this.#waiting.values()) size += queue.size;
    return size;
  }

  /**
   * Calls `begin` when the tenant gets a turn: during this call if a turn is free, else during a later `leave`. When the work has ended, the caller
   * must call `leave`, but not inside `begin`, because `leave` begins other work.
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
    // Each request needs a function object of its own, because two requests may have the same `begin`.
    const work = () => begin();
    if (queue) queue.add(work);
    else this.#waiting.set(tenant, new Set([work]));
    return () => {
      const waiting = this.#waiting.get(tenant);
      waiting?.delete(work);
      if (waiting?.size === 0) this.#waiting.delete(tenant);
    };
  }

  /** Runs work when the tenant gets a turn: at once if a turn is free. The turn ends with the work. */
  async run<T>(tenant: string, work: () => Promise<T>): Promise<T> {
    let hasBegun = false;
    const { promise: turn, resolve } = Promise.withResolvers<void>();
    this.request(tenant, () => {
      hasBegun = true;
      resolve();
    });
    if (!hasBegun) await turn;
    try {
      return await work();
    } finally {
      this.leave(tenant);
    }
  }

  /** Ends a turn of a tenant, and begins the work that may now run. */
  leave(tenant: string): void {
    this.#total--;
    const remaining = (this.#running.get(tenant) ?? 0) - 1;
    if (remaining > 0) this.#running.set(tenant, remaining);
    else this.#running.delete(tenant);
    // A tenant that gets a turn is reinserted behind the others. The iteration over the map then comes to it again.
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
