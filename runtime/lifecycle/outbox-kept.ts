import type { NewEvent } from '#scheduler/invocations/types.ts';

/** Approximate memory of an event besides its data. */
const EVENT_BYTES = 128;

/** Events that one call wrote. */
interface Batch {
  readonly firstSeq: number;
  readonly events: readonly NewEvent[];
  readonly bytes: number;
  readonly acknowledgedAt: number;
}

/**
 * Events that the store has acknowledged but may still lose: Redis answers before it writes to disk. An event is surely on disk when a call
 * that was sent at least `keepMs` after its acknowledgement finds it in the log. Time alone proves nothing: Redis may have died before it
 * wrote the event. Pure: callers pass the times, all from one clock, in milliseconds.
 */
export class KeptEvents {
  readonly #keepMs: number;
  readonly #maxBytes: number;
  /** In order and without gaps. */
  #batches: Batch[] = [];
  #bytes = 0;

  /**
   * @param keepMs must exceed the longest time by which Redis delays a write to disk
   * @param maxBytes approximate memory of the kept events; beyond it, the oldest are dropped
   */
  constructor(keepMs: number, maxBytes: number) {
    this.#keepMs = keepMs;
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Time at which the store acknowledged the newest event; null when none is kept. */
  get newestAt(): number | null {
    return this.#batches.at(-1)?.acknowledgedAt ?? null;
  }

  /** Keeps events; `firstSeq` must follow the last kept event. */
  add(firstSeq: number, events: readonly NewEvent[], acknowledgedAt: number): void {
    const bytes = bytesOf(events);
    this.#batches.push({ firstSeq, events, bytes, acknowledgedAt });
    this.#bytes += bytes;
    while (this.#bytes > this.#maxBytes) this.#dropOldest();
  }

  /** Drops the events that are surely on disk. @param sentAt send time of a call that found every event in the log */
  confirm(sentAt: number): void {
    for (let oldest = this.#batches[0]; oldest !== undefined; oldest = this.#batches[0]) {
      if (oldest.acknowledgedAt + this.#keepMs > sentAt) return;
      this.#dropOldest();
    }
  }

  /** Removes and returns the events after number `lastSeq`; removes none and returns null when one of them is not kept. */
  takeAfter(lastSeq: number): NewEvent[] | null {
    const oldest = this.#batches[0];
    if (oldest === undefined || oldest.firstSeq > lastSeq + 1) return null;
    const remainingBatches: Batch[] = [];
    const takenEvents: NewEvent[] = [];
    for (const batch of this.#batches) {
      const remainingCount = Math.min(Math.max(0, lastSeq + 1 - batch.firstSeq), batch.events.length);
      const events = batch.events.slice(0, remainingCount);
      if (remainingCount > 0) remainingBatches.push({ ...batch, events, bytes: bytesOf(events) });
      for (const event of batch.events.slice(remainingCount)) takenEvents.push(event);
    }
    this.#batches = remainingBatches;
    this.#bytes = remainingBatches.reduce((sum, { bytes }) => sum + bytes, 0);
    return takenEvents;
  }

  clear(): void {
    this.#batches = [];
    this.#bytes = 0;
  }

  #dropOldest(): void {
    this.#bytes -= this.#batches.shift()?.bytes ?? 0;
  }
}

function bytesOf(events: readonly NewEvent[]): number {
  let bytes = events.length * EVENT_BYTES;
  for (const { data } of events) bytes += data.length;
  return bytes;
}
