/** A model or an encoder on a GPU host. */
interface Placed {
  readonly connection: { readonly name: string };
}

/** Counts the invocations that each GPU host serves now, by host name. */
export class Served {
  readonly #counts = new Map<string, number>();

  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  /** Counts an invocation at each host of its models and encoders until the result is disposed of. */
  enter(...granted: readonly ReadonlyMap<string, Placed>[]): Disposable {
    const hosts = new Set(granted.flatMap((each) => [...each.values()].map(({ connection }) => connection.name)));
    for (const host of hosts) this.#add(host, 1);
    return {
      [Symbol.dispose]: () => {
        for (const host of hosts) this.#add(host, -1);
      },
    };
  }

  #add(host: string, change: 1 | -1): void {
    const count = (this.#counts.get(host) ?? 0) + change;
    if (count > 0) this.#counts.set(host, count);
    else this.#counts.delete(host);
  }
}
