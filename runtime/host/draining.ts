import type { Drain } from '#scheduler/runtimes/types.ts';

/** Which GPU hosts take nothing new, by the clock of this runtime: it is what decides which one serves an invocation. */
export class Draining {
  readonly #drains = new Map<string, Drain>();

  /** Takes over the names of the hosts that are drained at `now`, milliseconds since the Unix epoch. */
  set(names: ReadonlySet<string>, now: number): void {
    for (const name of names) if (!this.isDrained(name)) this.#drains.set(name, { since: now });
    for (const [name, { since, until }] of this.#drains)
      if (until === undefined && !names.has(name)) this.#drains.set(name, { since, until: now });
  }

  /** When it was drained last. */
  of(name: string): Drain | undefined {
    return this.#drains.get(name);
  }

  isDrained(name: string): boolean {
    const drain = this.#drains.get(name);
    return drain !== undefined && drain.until === undefined;
  }
}
