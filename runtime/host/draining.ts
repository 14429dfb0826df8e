import type { Drain } from '#scheduler/runtimes/types.ts';

/** The GPU hosts that take no new invocations, with times by this runtime's clock: this runtime chooses the host of each invocation. */
export class Draining {
  readonly #drains = new Map<string, Drain>();

  /** Sets the names of the hosts that are drained at `now`, milliseconds since the Unix epoch. */
  set(names: ReadonlySet<string>, now: number): void {
    for (const name of names) if (!this.isDrained(name)) this.#drains.set(name, { since: now });
    for (const [name, { since, until }] of this.#drains)
      if (until === undefined && !names.has(name)) this.#drains.set(name, { since, until: now });
  }

  /** The host's last drain. */
  of(name: string): Drain | undefined {
    return this.#drains.get(name);
  }

  isDrained(name: string): boolean {
    const drain = this.#drains.get(name);
    return drain !== undefined && drain.until === undefined;
  }
}
