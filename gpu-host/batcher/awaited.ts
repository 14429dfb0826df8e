import type { BatchQueue } from './queue.ts';

/** A queue is late after twice its usual response time and this much more: it has probably turned to something else. */
const SLACK_MS = 0.5;

/** Queues that were answered and have nothing pending. Each is usually *back* within `maxMs`: by then its inferlet sends the next call. */
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
    // The bound lets a few quick calls make up for one long pause.
    queue.responseMs = learnResponse(queue.responseMs, Math.min(nowMs - queue.answeredMs, this.#maxMs * 4));
    queue.answeredMs = undefined;
    this.#queues.delete(queue);
  }

  /**
   * The number of these queues that are usually back within `ms` and not late yet, and the milliseconds until all of them are late. A queue that
   * was never back yet counts as one that takes `ms`.
   */
  within(ms: number, nowMs: number): { readonly count: number; readonly leftMs: number } {
    let count = 0;
    let lastMs = 0;
    for (const queue of this.#queues) {
      const leftMs = msUntilLate(queue, ms, nowMs);
      if (leftMs <= 0) continue;
      count++;
      lastMs = Math.max(lastMs, leftMs);
    }
    return { count, leftMs: lastMs };
  }

  /** True when `within` counts this queue. */
  hasWithin(queue: BatchQueue, ms: number, nowMs: number): boolean {
    return this.#queues.has(queue) && msUntilLate(queue, ms, nowMs) > 0;
  }

  forget(queue: BatchQueue): void {
    this.#queues.delete(queue);
  }

  /** Stops waiting for the queues that were answered `ms` ago or longer, until each has shown again that it is quick. */
  expire(ms: number, nowMs: number): void {
    for (const queue of this.#queues) {
      if (nowMs - (queue.answeredMs ?? 0) < ms) continue;
      // From any usual time, half the way to twice `maxMs` is more than `maxMs`, so the queue counts as slow.
      queue.responseMs = learnResponse(queue.responseMs, this.#maxMs * 2);
      this.#queues.delete(queue);
    }
  }
}

/** Milliseconds until a queue that was answered is late; 0 or less for a queue that is late, or not usually back within `ms`. */
function msUntilLate(queue: BatchQueue, ms: number, nowMs: number): number {
  const { responseMs = ms, answeredMs = 0 } = queue;
  return responseMs > ms ? 0 : answeredMs + Math.min(ms, 2 * responseMs + SLACK_MS) - nowMs;
}

/** Updates a queue's usual response time by half of the difference to the latest one, so that a few slow ones end the waits for it. */
export function learnResponse(usualMs: number | undefined, latestMs: number): number {
  return usualMs === undefined ? latestMs : usualMs + (latestMs - usualMs) / 2;
}
