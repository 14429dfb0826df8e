/** Runs tasks: a tenant's own one after the other, of several tenants some at a time. Waiting tenants take turns. */
export class TenantLines {
  readonly #most: number;
  readonly #running = new Set<string>();
  /** Starts of waiting tasks; the tenant whose turn comes next is first. */
  readonly #waiting = new Map<string, (() => void)[]>();

  /** @param most tenants whose tasks run at once */
  constructor(most: number) {
    this.#most = most;
  }

  async run<T>(tenant: string, task: () => Promise<T>): Promise<T> {
    if (this.#running.has(tenant) || this.#running.size >= this.#most)
      await new Promise<void>((start) => this.#add(tenant, start));
    else this.#running.add(tenant);
    try {
      return await task();
    } finally {
      this.#running.delete(tenant);
      this.#startNext();
    }
  }

  #add(tenant: string, start: () => void): void {
    const starts = this.#waiting.get(tenant);
    if (starts) starts.push(start);
    else this.#waiting.set(tenant, [start]);
  }

  /** Starts the next task in the place of one that has ended, so that no new task goes first. */
  #startNext(): void {
    for (const [tenant, starts] of this.#waiting) {
      if (this.#running.has(tenant)) continue;
      this.#waiting.delete(tenant);
      const start = starts.shift() as () => void;
      if (starts.length > 0) this.#waiting.set(tenant, starts);
      this.#running.add(tenant);
      start();
      return;
    }
  }
}
