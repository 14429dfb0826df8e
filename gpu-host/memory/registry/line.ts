/** Runs tasks one at a time. Tenants take turns; a tenant's own tasks run in order. */
export class TenantLine {
  /** Starts of waiting tasks; the tenant whose turn comes next is first. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #isBusy = false;

  async run<T>(tenant: string, task: () => Promise<T>): Promise<T> {
    if (this.#isBusy) await new Promise<void>((start) => this.#add(tenant, start));
    this.#isBusy = true;
    try {
      return await task();
    } finally {
      this.#pass();
    }
  }

  #add(tenant: string, start: () => void): void {
    const starts = this.#waiting.get(tenant);
    if (starts) starts.push(start);
    else this.#waiting.set(tenant, [start]);
  }

  /** Starts the next task. The line stays busy meanwhile, so that no new task goes first. */
  #pass(): void {
    const [first] = this.#waiting;
    if (!first) {
      this.#isBusy = false;
      return;
    }
    const [tenant, starts] = first;
    this.#waiting.delete(tenant);
    const start = starts.shift() as () => void;
    if (starts.length > 0) this.#waiting.set(tenant, starts);
    start();
  }
}
