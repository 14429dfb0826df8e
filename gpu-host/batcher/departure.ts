import { DEFAULT_GRACE, type GracePolicy, graceMs, longestGraceMs } from './adaptive.ts';
import type { BatchCall, BatchQueue } from './call.ts';

/** Calls that are ready for the device, by kind. */
export interface WaitingCalls {
  readonly forwards: readonly BatchCall[];
  readonly projections: readonly BatchCall[];
  readonly encodings: readonly BatchCall[];
  /** Time since which the device has been free and calls ready. */
  readonly sinceMs: number;
}

/**
 * The policy for when a batch leaves: as soon as the device is free, after at most a short wait for queues whose calls were just answered. Keeps the
 * data about arrivals, answers and steps. The bench compares it with the policies of `testing/policies.ts`.
 */
export class Departure {
  /** Makes the policy of a new batcher that is given none. The bench puts another policy in its place. */
  static ofBatcher = (grace?: GracePolicy): Departure => new Departure(grace);
  /** True when every call leaves alone, in order of arrival. */
  readonly sendsAlone: boolean = false;
  readonly #grace: GracePolicy;
  readonly #awaited: AwaitedQueues;
  #lastEndMs = Number.NEGATIVE_INFINITY;
  #lastStepMs = 0;
  /** Time at which the last call came from a queue for which a batch could wait. */
  #lastCameMs = Number.NEGATIVE_INFINITY;

  constructor(grace: GracePolicy = DEFAULT_GRACE) {
    this.#grace = grace;
    this.#awaited = new AwaitedQueues(grace.maxMs);
  }

  came(call: BatchCall, nowMs: number): void {
    if (this.#awaited.hasWithin(call.queue, this.#longestMs, nowMs)) this.#lastCameMs = nowMs;
    this.#awaited.came(call.queue, nowMs);
  }

  answered(queue: BatchQueue, nowMs: number): void {
    this.#awaited.answered(queue, nowMs);
  }

  forget(queue: BatchQueue): void {
    this.#awaited.forget(queue);
  }

  /** Call when the device is free again, after a step of `stepMs`. */
  ended(nowMs: number, stepMs: number): void {
    this.#lastEndMs = nowMs;
    this.#lastStepMs = stepMs;
  }

  /** True when the last step ended less than `ms` ago and a queue that was just answered is likely to send its next call. */
  expectsWithin(ms: number, nowMs: number): boolean {
    return this.#awaited.size > 0 && nowMs - this.#lastEndMs < ms;
  }

  /** True when the policy may let the next batch wait for calls that are not there yet. */
  gathers(nowMs: number): boolean {
    return this.#awaited.within(this.#longestMs, nowMs).count > 0;
  }

  /** Milliseconds that the policy wants to wait for more calls. */
  waitMs({ forwards, projections, encodings }: WaitingCalls, nowMs: number): number {
    if (this.#awaited.size === 0) return 0;
    const sinceEndMs = nowMs - this.#lastEndMs;
    const longestMs = this.#longestMs;
    if (sinceEndMs >= longestMs) this.#awaited.expire(longestMs, nowMs);
    const { count: awaited, leftMs } = this.#awaited.within(longestMs, nowMs);
    if (awaited === 0) return 0;
    const ready = forwards.length + projections.length + encodings.length;
    // A slow queue sends its next call only after the longest wait. If a ready call of a slow queue left now, the awaited calls would get the next
    // step, and the slow queue's next call would come too late for that step. The two groups would miss each other's steps for ever.
    const slow = forwards.filter(({ queue: { responseMs } }) => responseMs !== undefined && responseMs > longestMs);
    // The grace begins anew when an awaited call comes, because the wait for the next one must pay by itself.
    const quietMs = nowMs - Math.max(this.#lastEndMs, this.#lastCameMs);
    const graceLeftMs = graceMs(this.#grace, ready, awaited + slow.length, this.#lastStepMs) - quietMs;
    return Math.max(0, Math.min(longestMs - sinceEndMs, graceLeftMs, leftMs));
  }

  /** The longest wait from the end of the last step: `maxMs` until the first step has ended, because no duration is known before. */
  get #longestMs(): number {
    return this.#lastStepMs > 0 ? longestGraceMs(this.#grace, this.#lastStepMs) : this.#grace.maxMs;
  }
}

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
