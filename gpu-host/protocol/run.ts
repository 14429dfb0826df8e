import type { FinishReason, RunChunk } from './calls.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from './errors.ts';
import type { Pending } from './link.ts';
import type { DecodedResult } from './results.ts';
import { RUN_WINDOW_TOKENS } from './wire.ts';

/** A run: tokens that the device decodes ahead of the inferlet. */
export interface RunHandle {
  /** Resolves with the tokens since the last `next`: at least one, unless the run has finished. Only one `next` may be pending. */
  next(): Promise<Outcome<RunChunk>>;
  /** Asks the host to stop the run. `next` still hands over the tokens decoded before. */
  stop(): void;
  /** Asks the host to hand over tokens in even slices, for a client that reads the text while the run decodes. */
  piped(): void;
  /** Number of received tokens that `next` has not handed over. */
  readonly unread: number;
  /** Discards the received tokens that `next` has not handed over. Returns their number. */
  discard(): number;
}

/** Bounds the tokens that the host decodes in a run, besides its window. */
export interface RunCredit {
  /** For a run whose call may be held: called when it is sent, and returns the request's maximum tokens; 0 to send no call. */
  readonly whenSent?: (() => number) | undefined;
  /** Called with the total number of consumed tokens. Calls `report` with as many as the host may know of, now or later. */
  consumed(tokens: number, report: (tokens: number) => void): void;
}

interface RunWire {
  /** Called when the run has ended: its last result has come, or it failed (the inferlet was closed or terminated, or the connection lost). */
  over(): void;
  /** Tells the host the total number of tokens handed to the inferlet, so that the host decodes further tokens. */
  reportConsumed(tokens: number): void;
  stop(): void;
  piped(): void;
}

/**
 * The client's side of a run: buffers tokens until `next`. The host pauses a run that is `RUN_WINDOW_TOKENS` ahead of the consumed tokens.
 */
export class RemoteRun implements RunHandle, Pending {
  #wire: RunWire;
  #tokens: number[] = [];
  #finishReason: FinishReason | undefined;
  #error: HandlerError | undefined;
  #waiter: ((outcome: Outcome<RunChunk>) => void) | undefined;
  #consumedTokens = 0;
  #reportedTokens = 0;
  #isStopped = false;

  constructor(wire: RunWire) {
    this.#wire = wire;
  }

  next(): Promise<Outcome<RunChunk>> {
    if (this.#waiter) {
      return Promise.resolve(
        err(handlerError('invalid-argument', 'the last next of this run has not been answered yet')),
      );
    }
    const outcome = this.#take();
    if (outcome) return Promise.resolve(outcome);
    return new Promise((resolve) => {
      this.#waiter = resolve;
    });
  }

  stop(): void {
    if (this.#isStopped || this.#finishReason || this.#error) return;
    this.#isStopped = true;
    this.#wire.stop();
  }

  piped(): void {
    if (!this.#isStopped && !this.#finishReason && !this.#error) this.#wire.piped();
  }

  get unread(): number {
    return this.#tokens.length;
  }

  discard(): number {
    const { length } = this.#tokens;
    this.#tokens = [];
    return length;
  }

  settle(result: DecodedResult): boolean {
    if (result.kind === 'run') {
      for (const token of result.value.tokens) this.#tokens.push(token);
      this.#finishReason = result.value.finished;
    } else if (result.kind === 'error') this.#error = result.error;
    else this.#error = handlerError('internal', `the GPU host answered a run with a result of kind ${result.kind}`);
    const isOver = this.#finishReason !== undefined || this.#error !== undefined;
    if (isOver) this.#wire.over();
    this.#wake();
    return isOver;
  }

  fail(error: HandlerError): void {
    this.#error = error;
    this.#wire.over();
    this.#wake();
  }

  #wake(): void {
    if (!this.#waiter) return;
    const outcome = this.#take();
    if (!outcome) return;
    const resolve = this.#waiter;
    this.#waiter = undefined;
    resolve(outcome);
  }

  /** Returns the buffered tokens, else the end of the run (again at every later call), else undefined. */
  #take(): Outcome<RunChunk> | undefined {
    if (this.#tokens.length === 0) {
      if (this.#error) return err(this.#error);
      return this.#finishReason ? ok({ tokens: new Uint32Array(0), finished: this.#finishReason }) : undefined;
    }
    const tokens = Uint32Array.from(this.#tokens);
    this.#tokens = [];
    this.#consumedTokens += tokens.length;
    const isOver = this.#finishReason !== undefined || this.#error !== undefined;
    if (!isOver && this.#consumedTokens - this.#reportedTokens >= RUN_WINDOW_TOKENS / 4) {
      this.#reportedTokens = this.#consumedTokens;
      this.#wire.reportConsumed(this.#consumedTokens);
    }
    return ok({ tokens, finished: this.#error ? undefined : this.#finishReason });
  }
}

/** A run that never started. */
export function failedRun(error: HandlerError): RunHandle {
  return { next: () => Promise.resolve(err(error)), stop: () => {}, piped: () => {}, unread: 0, discard: () => 0 };
}
