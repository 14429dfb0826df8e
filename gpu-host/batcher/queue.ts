import type { BatchCall } from './call.ts';
import type { Scoreboard } from './scoreboard.ts';
import type { LatencyTargets } from './targets.ts';

/** Maximum length of the array that an empty queue keeps, and minimum number of empty entries at the front that are worth removing. */
const KEPT_ROOM = 64;

/**
 * The calls of one queue of an inferlet, in order. A call *leaves* when a batch takes its last input, or when it begins
 * without a step.
 */
export class BatchQueue {
  readonly scoreboard: Scoreboard;
  /** `priority` is clamped to ±`maxPriority`. */
  readonly maxPriority: number;
  readonly tenant: string;
  /** Targets of the queue's calls; undefined for ordinary ones. */
  readonly targets: LatencyTargets | undefined;
  /** Rank of the queue's query (a root inferlet with its children) among its tenant's queries: the smaller, the earlier. */
  readonly query: number;
  priority = 0;
  /** Depth that the calls pushed from now on get; undefined outside workflows. */
  depth: number | undefined;
  /** Calls that left the queue and are not done. */
  outstanding = 0;
  /** Outstanding calls that were held, and go again when they are resumed. */
  readonly heldCalls = new Set<BatchCall>();
  /** Time at which results emptied the queue, so that its next call can be expected; undefined otherwise. */
  answeredMs: number | undefined;
  /** Usual time until the queue's next call, milliseconds; undefined until seen once. */
  responseMs: number | undefined;
  /** Calls at `#head` up to `#tail` (exclusive) have not left. The list keeps its capacity: most queues alternate between no call and one. */
  #calls: (BatchCall | undefined)[] = [];
  #head = 0;
  #tail = 0;

  constructor(scoreboard: Scoreboard, maxPriority: number, tenant: string, query: number, targets?: LatencyTargets) {
    this.scoreboard = scoreboard;
    this.maxPriority = maxPriority;
    this.tenant = tenant;
    this.query = query;
    this.targets = targets;
  }

  get front(): BatchCall | undefined {
    return this.#head < this.#tail ? this.#calls[this.#head] : undefined;
  }

  /** Calls that have not left. */
  get length(): number {
    return this.#tail - this.#head;
  }

  push(call: BatchCall): void {
    this.#calls[this.#tail++] = call;
  }

  shift(): void {
    this.#calls[this.#head++] = undefined;
    if (this.#head === this.#tail) {
      if (this.#calls.length > KEPT_ROOM) this.#calls = [];
      this.#head = 0;
      this.#tail = 0;
    } else if (this.#head >= KEPT_ROOM && this.#head * 2 > this.#tail) {
      this.#calls = this.#calls.slice(this.#head, this.#tail);
      this.#head = 0;
      this.#tail = this.#calls.length;
    }
  }

  /**
   * Removes and returns the held calls and then, in order, every call that has not left. Calls on the device remain, because they will be
   * finished.
   */
  clear(): BatchCall[] {
    const removedHeld = [...this.heldCalls].filter(({ state }) => state !== 'running');
    for (const call of removedHeld) this.heldCalls.delete(call);
    this.outstanding -= removedHeld.length;
    const calls = this.#calls.slice(this.#head, this.#tail) as BatchCall[];
    const runningCall = calls[0]?.state === 'running' ? calls.shift() : undefined;
    this.#calls = runningCall ? [runningCall] : [];
    this.#head = 0;
    this.#tail = this.#calls.length;
    return [...removedHeld, ...calls];
  }

  each(visit: (call: BatchCall) => void): void {
    for (const call of this.heldCalls) visit(call);
    for (let i = this.#head; i < this.#tail; i++) visit(this.#calls[i] as BatchCall);
  }

  /** Visits the calls ahead of `call`, the nearest first, while `visit` returns true. */
  eachAhead(call: BatchCall, visit: (ahead: BatchCall) => boolean): void {
    for (let i = this.#indexOf(call) - 1; i >= this.#head; i--) if (!visit(this.#calls[i] as BatchCall)) return;
  }

  /** Index of the call, or the index that it would have if it had not left: calls are in order of arrival. */
  #indexOf(call: BatchCall): number {
    let from = this.#head;
    let to = this.#tail;
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.#calls[middle] as BatchCall).arrival < call.arrival) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}
