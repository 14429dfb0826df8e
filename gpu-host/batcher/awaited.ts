import type { BatchQueue } from './queue.ts';

/** Queues that were answered and have nothing pending, each usually back within `maxMs`. */
export class AwaitedQueues {
  #maxMs: number;
  #queues = new Set<BatchQueue>();

  constructor(maxMs: number) {
    this.#maxMs = maxMs;
  }

  get size(): number {
    return this.#queues.size;
  }

  /** Call when the queue has got its results. */
  answered(queue: BatchQueue, nowMs: number): void {
    queue.answeredMs = nowMs;
    if (queue.responseMs === undefined || queue.responseMs <= this.#maxMs) this.#queues.add(queue);
  }

  /** Call when a call of the queue arrives. */
  came(queue: BatchQueue, nowMs: number): void {
    if (queue.answeredMs === undefined) return;
    queue.responseMs = learnResponse(queue.responseMs, Math.min(nowMs - queue.answeredMs, this.#maxMs * 4));
    queue.answeredMs = undefined;
    this.#queues.delete(queue);
  }

  /** Number of these queues that are usually back within `ms`. */
  within(ms: number): number {
    let count = 0;
    for (const { responseMs } of this.#queues) if (responseMs === undefined || responseMs <= ms) count++;
    return count;
  }

  /** True when one of the queues was answered less than `ms` ago. */
  expects(nowMs: number, ms: number): boolean {
    for (const { answeredMs } of this.#queues) if (answeredMs !== undefined && nowMs - answeredMs < ms) return true;
    return false;
  }

  forget(queue: BatchQueue): void {
    this.#queues.delete(queue);
  }

  /** Stops waiting for the queues that have not come, until each has shown again that it is quick. */
  expire(): void {
    for (const queue of this.#queues) queue.responseMs = learnResponse(queue.responseMs, this.#maxMs * 2);
    this.#queues.clear();
  }
}

/** Updates a queue's usual response time by half of the difference to the latest one, so that a few slow answers drop the queue. */
export function learnResponse(usualMs: number | undefined, latestMs: number): number {
  return usualMs === undefined ? latestMs : usualMs + (latestMs - usualMs) / 2;
}
