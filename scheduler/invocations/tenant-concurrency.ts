interface TenantQueue {
  running: number;
  readonly waiting: (() => void)[];
}

/**
 * Runs a bounded number of calls of each tenant at once; the tenant's other calls wait, first come, first served. One tenant's flood of calls
 * then puts only a few scripts into Redis at a time, and the calls of other tenants and of runtimes do not wait behind it.
 */
export class TenantConcurrency {
  readonly #maxRunning: number;
  readonly #queues = new Map<string, TenantQueue>();

  /** @param maxRunning concurrent calls of one tenant. */
  constructor(maxRunning: number) {
    this.#maxRunning = maxRunning;
  }

  /** Number of tenants with running calls. */
  get size(): number {
    return this.#queues.size;
  }

  async run<T>(tenant: string, call: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(tenant) ?? { running: 0, waiting: [] };
    this.#queues.set(tenant, queue);
    // A call that ends hands its place to the next one.
    if (queue.running >= this.#maxRunning) await new Promise<void>((resolve) => queue.waiting.push(resolve));
    else queue.running += 1;
    try {
      return await call();
    } finally {
      const next = queue.waiting.shift();
      if (next) next();
      else queue.running -= 1;
      if (queue.running === 0) this.#queues.delete(tenant);
    }
  }
}
