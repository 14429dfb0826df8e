interface Line {
  running: number;
  readonly waiting: (() => void)[];
}

/**
 * Runs a bounded number of calls of each tenant at once; the tenant's other calls wait, first come, first served. So a flood of one tenant
 * puts only a few scripts into Redis at a time, and the calls of other tenants and of runtimes do not wait behind it.
 */
export class Abreast {
  readonly #most: number;
  readonly #lines = new Map<string, Line>();

  /** @param most concurrent calls of one tenant. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Number of tenants with running calls. */
  get size(): number {
    return this.#lines.size;
  }

  async run<T>(tenant: string, call: () => Promise<T>): Promise<T> {
    const line = this.#lines.get(tenant) ?? { running: 0, waiting: [] };
    this.#lines.set(tenant, line);
    // A call that ends hands its place to the next one.
    if (line.running >= this.#most) await new Promise<void>((resolve) => line.waiting.push(resolve));
    else line.running += 1;
    try {
      return await call();
    } finally {
      const next = line.waiting.shift();
      if (next) next();
      else line.running -= 1;
      if (line.running === 0) this.#lines.delete(tenant);
    }
  }
}
