import type { BatchCall } from './call.ts';
import type { BatchLimits } from './select.ts';

/** Calls of one kind that go into the batch under construction: as many as fit, and at least one. */
export class BatchRoom {
  readonly calls: BatchCall[] = [];
  readonly #maxCalls: number;
  readonly #sizeOf: (call: BatchCall) => number;
  #remainingSize: number;

  /** @param maxSize sum of all calls' sizes; only a single call may exceed it */
  constructor(maxCalls: number, maxSize: number, sizeOf: (call: BatchCall) => number) {
    this.#maxCalls = maxCalls;
    this.#remainingSize = maxSize;
    this.#sizeOf = sizeOf;
  }

  /** Takes the call, or returns false when it does not fit. */
  take(call: BatchCall): boolean {
    const size = this.#sizeOf(call);
    if (this.calls.length > 0 && (this.calls.length >= this.#maxCalls || size > this.#remainingSize)) return false;
    this.#remainingSize -= size;
    this.calls.push(call);
    return true;
  }
}

/** Room for images, counted in inputs. An image cannot be cut, so one that exceeds the limit goes alone. */
export function roomForEncodings({ maxCalls, maxTokens }: BatchLimits): BatchRoom {
  return new BatchRoom(maxCalls, maxTokens, ({ tokens }) => tokens);
}

export function roomForProjections({ maxCalls, maxScores }: BatchLimits): BatchRoom {
  return new BatchRoom(maxCalls, maxScores, ({ scores }) => scores);
}
