/** Items in turns between tenants: one of each tenant that has any, in the tenant's own order. */
export class Rotation<T> {
  /** No line is empty. The tenant whose turn is next comes first. */
  readonly #lines = new Map<string, T[]>();

  get isEmpty(): boolean {
    return this.#lines.size === 0;
  }

  push(tenant: string, item: T): void {
    const line = this.#lines.get(tenant);
    if (line) line.push(item);
    else this.#lines.set(tenant, [item]);
  }

  /** True when a tenant that may go has an item. */
  isDue(mayGo: (tenant: string) => boolean): boolean {
    for (const tenant of this.#lines.keys()) if (mayGo(tenant)) return true;
    return false;
  }

  /** Removes and returns the next item of a tenant that may go, and moves its tenant behind the others. */
  shift(mayGo: (tenant: string) => boolean = always): T | undefined {
    for (const [tenant, line] of this.#lines) {
      if (!mayGo(tenant)) continue;
      const item = line.shift();
      this.#lines.delete(tenant);
      if (line.length > 0) this.#lines.set(tenant, line);
      return item;
    }
    return undefined;
  }

  remove(tenant: string, item: T): void {
    const line = this.#lines.get(tenant);
    const index = line?.indexOf(item) ?? -1;
    if (index < 0) return;
    line?.splice(index, 1);
    if (line?.length === 0) this.#lines.delete(tenant);
  }
}

const always = (): boolean => true;
