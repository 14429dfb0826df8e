import type { GrantedModel } from '../host/inferlet.ts';

/** Counts the invocations that each GPU host serves now, by host name. */
export class Served {
  readonly #counts = new Map<string, number>();

  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  /** Counts an invocation at each host of its models until the result is disposed of. */
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
