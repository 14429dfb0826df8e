import type { AppendOutcome, NewEvent } from '#scheduler/invocations/types.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { EventSink } from '../host/session-state.ts';

/** How an outbox writes: `Invocations.append` of one attempt. */
export type Append = (firstSeq: number, events: readonly NewEvent[]) => Promise<AppendOutcome>;

/** Why nothing more can be written: another epoch owns the invocation or it has ended (`lost`), its log is full, or the store refused the call. */
export type OutboxEnd = 'lost' | 'full' | 'broken';

const RETRY_MS = [20, 50, 100, 200, 400] as const;
/** Bytes of one call to the store. */
const MAX_BATCH_BYTES = 512 << 10;

/**
 * The events of one attempt on their way to the event log: in order, numbered, the events of one turn of the event loop in one call, one call
 * at a time. When the store cannot be reached the call is repeated until it can; numbers make that idempotent.
 */
export class Outbox implements EventSink {
  readonly #append: Append;
  readonly #onEnd: (end: OutboxEnd, cause?: unknown) => void;
  #nextSeq: number;
  #queue: NewEvent[] = [];
  #pendingBytes = 0;
  #writing: Promise<void> | null = null;
  #scheduled: NodeJS.Immediate | null = null;
  #end: OutboxEnd | null = null;
  #closed = false;

  constructor(nextSeq: number, append: Append, onEnd: (end: OutboxEnd, cause?: unknown) => void) {
    this.#nextSeq = nextSeq;
    this.#append = append;
    this.#onEnd = onEnd;
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** Number of the event after the last one written; after `flushed`, that of the terminal event. */
  get nextSeq(): number {
    return this.#nextSeq;
  }

  /** Why the log takes nothing more, or null. */
  get end(): OutboxEnd | null {
    return this.#end;
  }

  add(event: NewEvent['event'], data: string): void {
    if (this.#end || this.#closed) return;
    this.#queue.push({ event, data });
    this.#pendingBytes += data.length;
    if (this.#writing || this.#scheduled) return;
    this.#scheduled = setImmediate(() => {
      this.#scheduled = null;
      this.#start();
    });
  }

  /** Resolves when everything added so far is in the log; false when it can never be. */
  async flushed(): Promise<boolean> {
    while (!this.#end && (this.#queue.length > 0 || this.#writing)) {
      if (!this.#writing) this.#start();
      await this.#writing;
    }
    return this.#end === null;
  }

  /** Takes nothing more, and stops repeating calls that the store does not answer. */
  close(): void {
    this.#closed = true;
    if (this.#scheduled) clearImmediate(this.#scheduled);
    this.#scheduled = null;
  }

  #start(): void {
    // What a write begins with is there: it never ends before it has been noted down.
    if (this.#writing || this.#end || this.#queue.length === 0) return;
    this.#writing = this.#write();
  }

  async #write(): Promise<void> {
    try {
      while (this.#queue.length > 0 && !this.#end) {
        const { batch, bytes } = this.#takeBatch();
        try {
          const outcome = await this.#persist(batch);
          this.#pendingBytes -= bytes;
          if (outcome === 'ok') this.#nextSeq += batch.length;
          else this.#stop(outcome === 'full' ? 'full' : 'lost');
        } catch (cause) {
          this.#stop('broken', cause);
        }
      }
    } finally {
      // In the same step as the last look at the queue: an event added between the two would count on this write, and stay behind.
      this.#writing = null;
    }
  }

  #takeBatch(): { batch: NewEvent[]; bytes: number } {
    let bytes = 0;
    let count = 0;
    for (const { data } of this.#queue) {
      if (count > 0 && bytes + data.length > MAX_BATCH_BYTES) break;
      bytes += data.length;
      count++;
    }
    return { batch: this.#queue.splice(0, count), bytes };
  }

  async #persist(batch: readonly NewEvent[]): Promise<AppendOutcome> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#append(this.#nextSeq, batch);
      } catch (error) {
        if (StoreError.from(error).code !== 'store-unavailable') throw error;
        if (this.#closed) return 'stale';
        const pauseMs = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] ?? 400;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
  }

  #stop(end: OutboxEnd, cause?: unknown): void {
    this.#end = end;
    this.#queue = [];
    this.#pendingBytes = 0;
    this.#onEnd(end, cause);
  }
}
