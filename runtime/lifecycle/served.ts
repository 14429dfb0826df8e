import type { GrantedModel } from '../host/inferlet.ts';

/** How many invocations each GPU host serves now, by its name. */
export class Served {
  readonly #counts = new Map<string, number>();

  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  /** Counts one until it is disposed of, at each host that has some of its models. */
  enter(models: ReadonlyMap<string, Pick<GrantedModel, 'connection'>>): Disposable {
    const hosts = new Set([...models.values()].map(({ connection }) => connection.name));
    for (const host of hosts) this.#add(host, 1);
    return {
      [Symbol.dispose]: () => {
        for (const host of hosts) this.#add(host, -1);
      },
    };
  }

  #add(host: string, more: 1 | -1): void {
    const count = (this.#counts.get(host) ?? 0) + more;
    if (count > 0) this.#counts.set(host, count);
    else this.#counts.delete(host);
  }
}
