import type { Drain } from '#scheduler/runtimes/types.ts';

/** A moment by two clocks of this process. */
export interface Moment {
  /** Milliseconds since the Unix epoch. The clock may step. */
  readonly at: number;
  /** Milliseconds by `performance.now`, which never steps. */
  readonly steadyMs: number;
}

interface Drained {
  readonly since: Moment;
  readonly until?: Moment;
}

/** The last drain of each GPU host, timed by this runtime's clocks, because this runtime chooses the host of each invocation. */
export class Draining {
  readonly #drains = new Map<string, Drained>();

  /** Sets the names of the hosts that are drained now. */
  set(names: ReadonlySet<string>, now: Moment = { at: Date.now(), steadyMs: performance.now() }): void {
    for (const name of names) if (!this.isDrained(name)) this.#drains.set(name, { since: now });
    for (const [name, { since, until }] of this.#drains)
      if (until === undefined && !names.has(name)) this.#drains.set(name, { since, until: now });
  }

  /** The host's last drain, for readers in other processes: milliseconds since the Unix epoch. */
  of(name: string): Drain | undefined {
    return this.#by('at', name);
  }

  /** The host's last drain, by `performance.now`. */
  steadyOf(name: string): Drain | undefined {
    return this.#by('steadyMs', name);
  }

  isDrained(name: string): boolean {
    const drain = this.#drains.get(name);
    return drain !== undefined && drain.until === undefined;
  }

  #by(clock: keyof Moment, name: string): Drain | undefined {
    const drain = this.#drains.get(name);
    if (!drain) return undefined;
    const { since, until } = drain;
    return { since: since[clock], ...(until && { until: until[clock] }) };
  }
}
