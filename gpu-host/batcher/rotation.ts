/**
 * Hands out the items of tenants in turns: one item of each tenant, then the next item of each. Each tenant's items
 * keep their order.
 */
export class Rotation<T> {
  /** The waiting items by tenant, never an empty list. The tenant whose turn is next comes first. */
  readonly #queues = new Map<string, T[]>();

  get isEmpty(): boolean {
    return this.#queues.size === 0;
  }

  push(tenant: string, item: T): void {
    const queue = this.#queues.get(tenant);
    if (queue) queue.push(item);
    else this.#queues.set(tenant, [item]);
  }

  /** True when a tenant that may go has an item. */
  isDue(mayGo: (tenant: string) => boolean): boolean {
    for (const tenant of this.#queues.keys()) if (mayGo(tenant)) return true;
    return false;
  }

  /** Removes and returns the first item of the first tenant that `mayGo` accepts, and moves this tenant behind the others. */
  shift(mayGo: (tenant: string, first: T) => boolean = always): T | undefined {
    for (const [tenant, queue] of this.#queues) {
      if (!mayGo(tenant, queue[0] as T)) continue;
      const item = queue.shift();
      this.#queues.delete(tenant);
      if (queue.length > 0) this.#queues.set(tenant, queue);
      return item;
    }
    return undefined;
  }

  remove(tenant: string, item: T): void {
    const queue = this.#queues.get(tenant);
    const index = queue?.indexOf(item) ?? -1;
    if (index < 0) return;
    queue?.splice(index, 1);
    if (queue?.length === 0) this.#queues.delete(tenant);
  }
}

const always = (): boolean => true;
