/** Items in turns between tenants: one of each tenant that has any, in the tenant's own order. */
export class Rotation<T> {
  /** No queue is empty. The tenant whose turn is next comes first. */
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
