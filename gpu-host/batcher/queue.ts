import type { BatchCall } from './call.ts';
import type { Scoreboard } from './scoreboard.ts';

/** Places for calls that an empty queue keeps. */
const KEPT_ROOM = 64;

/** The order of one inferlet's queue: calls leave from the front. */
export class BatchQueue {
  readonly scoreboard: Scoreboard;
  /** `priority` is within ± this. */
  readonly maxPriority: number;
  priority = 0;
  /** Calls that left and are not done. */
  outstanding = 0;
  /** When results were last handed to it with nothing left pending, so that its next call can be expected; undefined otherwise. */
  answeredMs: number | undefined;
  /** How long it usually takes to come back with its next call, milliseconds; undefined until seen once. */
  responseMs: number | undefined;
  /** Calls that have not left are at #head to #tail; the list keeps its room, since most queues go between none and one. */
  #calls: (BatchCall | undefined)[] = [];
  #head = 0;
  #tail = 0;

  constructor(scoreboard: Scoreboard, maxPriority: number) {
    this.scoreboard = scoreboard;
    this.maxPriority = maxPriority;
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

  /** Takes out every call that has not left, in order, but for one on the device. */
  clear(): BatchCall[] {
    const calls = this.#calls.slice(this.#head, this.#tail) as BatchCall[];
    const running = calls[0]?.state === 'running' ? calls.shift() : undefined;
    this.#calls = running ? [running] : [];
    this.#head = 0;
    this.#tail = this.#calls.length;
    return calls;
  }

  each(visit: (call: BatchCall) => void): void {
    for (let i = this.#head; i < this.#tail; i++) visit(this.#calls[i] as BatchCall);
  }

  /** Calls ahead of `call`, the nearest first, for as long as `visit` wants more. */
  eachAhead(call: BatchCall, visit: (ahead: BatchCall) => boolean): void {
    for (let i = this.#indexOf(call) - 1; i >= this.#head; i--) if (!visit(this.#calls[i] as BatchCall)) return;
  }

  /** Where the call is, or would be if it has left: calls are in order of arrival. */
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
