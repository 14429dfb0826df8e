import type { BatchQueue } from './queue.ts';

/** Queues that were answered and have nothing pending, of which each is usually back within `maxMs`. */
export class AwaitedQueues {
  #maxMs: number;
  #queues = new Set<BatchQueue>();

  constructor(maxMs: number) {
    this.#maxMs = maxMs;
  }

  get size(): number {
    return this.#queues.size;
  }

  /** The queue has got its results. */
  answered(queue: BatchQueue, nowMs: number): void {
    queue.answeredMs = nowMs;
    if (queue.responseMs === undefined || queue.responseMs <= this.#maxMs) this.#queues.add(queue);
  }

  /** A call of the queue came. */
  came(queue: BatchQueue, nowMs: number): void {
    if (queue.answeredMs === undefined) return;
    queue.responseMs = learnResponse(queue.responseMs, Math.min(nowMs - queue.answeredMs, this.#maxMs * 4));
    queue.answeredMs = undefined;
    this.#queues.delete(queue);
  }

  /** How many of them are usually back within that time. */
  within(ms: number): number {
    let count = 0;
    for (const { responseMs } of this.#queues) if (responseMs === undefined || responseMs <= ms) count++;
    return count;
  }

  /** Whether one of them may still be back in time. */
  expects(nowMs: number): boolean {
    for (const { answeredMs } of this.#queues)
      if (answeredMs !== undefined && nowMs - answeredMs < this.#maxMs) return true;
    return false;
  }

  forget(queue: BatchQueue): void {
    this.#queues.delete(queue);
  }

  /** Whoever has not come by now is not waited for again until it has shown that it is quick. */
  expire(): void {
    for (const queue of this.#queues) queue.responseMs = learnResponse(queue.responseMs, this.#maxMs * 2);
    this.#queues.clear();
  }
}

/** How a queue's usual response time learns from the latest one: half of the difference, so that two slow answers take it out. */
export function learnResponse(usualMs: number | undefined, latestMs: number): number {
  return usualMs === undefined ? latestMs : usualMs + (latestMs - usualMs) / 2;
}
