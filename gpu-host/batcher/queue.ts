import type { BatchCall } from './call.ts';
import type { Scoreboard } from './scoreboard.ts';

/** The order of one inferlet's queue: calls leave from the front. */
export class BatchQueue {
  readonly scoreboard: Scoreboard;
  priority = 0;
  /** Calls that left and are not done. */
  outstanding = 0;
  /** When results were last handed to it with nothing left pending, so that its next call can be expected; undefined otherwise. */
  answeredMs: number | undefined;
  /** How long it usually takes to come back with its next call, milliseconds; undefined until seen once. */
  responseMs: number | undefined;
  #calls: BatchCall[] = [];
  #head = 0;

  constructor(scoreboard: Scoreboard) {
    this.scoreboard = scoreboard;
  }

  get front(): BatchCall | undefined {
    return this.#calls[this.#head];
  }

  /** Calls that have not left. */
  get length(): number {
    return this.#calls.length - this.#head;
  }

  push(call: BatchCall): void {
    this.#calls.push(call);
  }

  shift(): void {
    this.#head++;
    if (this.#head === this.#calls.length) {
      this.#calls.length = 0;
      this.#head = 0;
    } else if (this.#head >= 64 && this.#head * 2 > this.#calls.length) {
      this.#calls = this.#calls.slice(this.#head);
      this.#head = 0;
    }
  }

  /** Takes out every call that has not left, in order. */
  clear(): BatchCall[] {
    const calls = this.#calls.slice(this.#head);
    this.#calls.length = 0;
    this.#head = 0;
    return calls;
  }
}
