import type { BatchCall } from './call.ts';

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
