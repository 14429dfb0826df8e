import type { BatchCall } from './call.ts';

/**
 * Chooses the variant of the next batch of forwards: the model alone, or one of its adapters. If the most urgent call always chose, one
 * queue whose calls change adapters would hold up all other queues with batches of a single call. So the variants take turns: the model's
 * own calls never wait for more than one batch of others, and among adapters the one that has waited longest goes first.
 */
export class VariantTurns {
  /** Adapters that had a batch, the latest last. */
  readonly #served = new Set<string>();
  #lastWasModel = false;

  /** The variant of the next batch. `ready` is in order of urgency and must not be empty. */
  next(ready: readonly BatchCall[]): string | undefined {
    const waiting = new Set<string | undefined>();
    for (const { variant } of ready) waiting.add(variant);
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
    throw new Error('a turn was asked for without a ready call');
  }
}
