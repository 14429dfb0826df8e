interface Line {
  running: number;
  readonly waiting: (() => void)[];
}

/**
 * Lets so many calls of each tenant run at once; its others wait, first come, first served. What Redis has before it of one tenant's flood is
 * then a few scripts and no more, so that everybody else's calls, and the runtimes', do not wait behind all of it.
 */
export class Abreast {
  readonly #most: number;
  readonly #lines = new Map<string, Line>();

  /** @param most calls of one tenant at once. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Tenants of which calls run. */
  get size(): number {
    return this.#lines.size;
  }

  async run<T>(tenant: string, call: () => Promise<T>): Promise<T> {
    const line = this.#lines.get(tenant) ?? { running: 0, waiting: [] };
    this.#lines.set(tenant, line);
    // Who ends hands its place over.
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
