/** A model or an encoder, and the connection to its GPU host. */
interface Placed {
  readonly connection: { readonly name: string };
}

/** Counts the invocations that each GPU host serves: those that may use a model or an encoder on it. */
export class Served {
  readonly #counts = new Map<string, number>();

  /** Number of invocations by the GPU host's name. */
  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  /** Counts an invocation at each GPU host of its models and encoders until the result is disposed of. */
  enter(...grantedMaps: readonly ReadonlyMap<string, Placed>[]): Disposable {
    const placed = grantedMaps.flatMap((granted) => [...granted.values()]);
    const hosts = new Set(placed.map(({ connection }) => connection.name));
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
