import type { NewEvent } from '#scheduler/invocations/types.ts';

/** Memory of an event besides its data. */
const EVENT_BYTES = 128;

interface Batch {
  readonly firstSeq: number;
  readonly events: readonly NewEvent[];
  readonly bytes: number;
  readonly acknowledgedAt: number;
}

/**
 * Events that the store has acknowledged but may still lose: Redis answers before it writes to disk. An event is on disk when a call
 * sent `keepMs` after its acknowledgement finds it in place; time alone proves nothing, as Redis may have died. Pure: callers pass the times.
 */
export class KeptEvents {
  readonly #keepMs: number;
  readonly #maxBytes: number;
  /** In order and without gaps. */
  #batches: Batch[] = [];
  #bytes = 0;

  /**
   * @param keepMs must exceed the longest time that Redis puts off a write to disk.
   * @param maxBytes the oldest events are dropped beyond this size.
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

  /** Drops the events that are on disk: a call sent at `sentAt` found every event in place. */
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
    const stored: Batch[] = [];
    const lost: NewEvent[] = [];
    for (const batch of this.#batches) {
      const count = Math.min(Math.max(0, lastSeq + 1 - batch.firstSeq), batch.events.length);
      const events = batch.events.slice(0, count);
      if (count > 0) stored.push(count === batch.events.length ? batch : { ...batch, events, bytes: bytesOf(events) });
      for (const event of batch.events.slice(count)) lost.push(event);
    }
    this.#batches = stored;
    this.#bytes = stored.reduce((sum, { bytes }) => sum + bytes, 0);
    return lost;
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
