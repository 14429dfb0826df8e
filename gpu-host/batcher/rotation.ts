import type { BatchCall } from './call.ts';

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

/**
 * Chooses the variant of the next batch of forwards: the model alone, or the model with one of its adapters. A batch has calls of one variant
 * only. If the most urgent call always chose, a queue whose calls change from adapter to adapter would fill batch after batch with a single
 * call each, and hold up all other queues. So the variants take turns: the model's own calls wait for at most one batch of an adapter, and among
 * adapters the one that has waited longest goes first. When a call would miss its latency target, the batcher serves its variant outside these turns.
 */
export class VariantTurns {
  /** Adapters that had a batch, the latest last. */
  readonly #served = new Set<string>();
  #lastWasModel = false;

  /** The variant of the next batch. `ready` is in order of urgency and must not be empty. */
  next(ready: readonly BatchCall[]): string | undefined {
    const waiting = new Set<string | undefined>();
    for (const { variant } of ready) waiting.add(variant);
    // After a batch of the model alone, an adapter goes next if one waits.
    this.#lastWasModel = waiting.has(undefined) && !(this.#lastWasModel && waiting.size > 1);
    if (this.#lastWasModel) return undefined;
    waiting.delete(undefined);
    const chosen = this.#longestWaiting(waiting as ReadonlySet<string>);
    this.#served.delete(chosen);
    this.#served.add(chosen);
    return chosen;
  }

  #longestWaiting(waiting: ReadonlySet<string>): string {
    for (const variant of waiting) if (!this.#served.has(variant)) return variant;
    for (const variant of this.#served) if (waiting.has(variant)) return variant;
    throw new Error('no call is ready, so no variant can have a turn');
  }
}
