import { MAX_EVENTS } from '#scheduler/invocations/log.ts';
import type { NewEvent } from '#scheduler/invocations/types.ts';

/** Maximum bytes of one call to the store, unless a single event has more. Other calls of the process wait for each call, so calls are short. */
const MAX_BATCH_BYTES = 128 << 10;

/** A batch of events in a call to the store. */
export interface OutboxBatch {
  /** Number of the first event. */
  readonly firstSeq: number;
  readonly events: readonly NewEvent[];
  readonly bytes: number;
}

/**
 * The events of an attempt that its log lacks, in order and without gaps: first the batch in flight, whose call has no answer yet, then the
 * queued events. Bytes are those of the events' data, with one byte for each UTF-16 unit.
 */
export class OutboxQueue {
  /** Number of the event after the last one in the log. */
  nextSeq: number;
  #events: NewEvent[] = [];
  /** Times at which the queued events were added, by `performance.now`. */
  #addedAt: number[] = [];
  #batchInFlight: OutboxBatch | null = null;
  /** Time at which the oldest event in flight was added. */
  #batchAddedAt = 0;
  #bytes = 0;

  constructor(nextSeq: number) {
    this.nextSeq = nextSeq;
  }

  /** The queued events, without those in flight. */
  get events(): readonly NewEvent[] {
    return this.#events;
  }

  /** Bytes of all events that the log lacks, in flight or queued. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number that the next pushed event gets. */
  get endSeq(): number {
    return this.nextSeq + this.#eventsInFlight.length + this.#events.length;
  }

  /** Time at which the oldest event was added, by `performance.now`; undefined when the log lacks none. */
  get oldestAt(): number | undefined {
    return this.#batchInFlight ? this.#batchAddedAt : this.#addedAt[0];
  }

  push(event: NewEvent): void {
    this.#events.push(event);
    this.#addedAt.push(performance.now());
    this.#bytes += event.data.length;
  }

  /** Takes the events of the next call from the front of the queue. They are in flight until `landed` or `requeue`. */
  take(): OutboxBatch {
    let bytes = 0;
    let count = 0;
    for (const { data } of this.#events) {
      if (count === MAX_EVENTS || (count > 0 && bytes + data.length > MAX_BATCH_BYTES)) break;
      bytes += data.length;
      count++;
    }
    this.#batchAddedAt = this.#addedAt.splice(0, count)[0] ?? performance.now();
    this.#batchInFlight = { firstSeq: this.nextSeq, events: this.#events.splice(0, count), bytes };
    return this.#batchInFlight;
  }

  /** Removes the batch in flight after the answer to its call. @param logged true when its events are in the log */
  landed(logged: boolean): void {
    this.#bytes -= this.#batchInFlight?.bytes ?? 0;
    if (logged) this.nextSeq += this.#eventsInFlight.length;
    this.#batchInFlight = null;
  }

  /** Puts the events in flight back at the front of the queue. */
  requeue(): void {
    this.#putBack(this.#eventsInFlight);
    this.#batchInFlight = null;
  }

  /** Puts events that the log has lost at the front of the queue. The caller has set `nextSeq` to the number of the first one. */
  unshift(lost: readonly NewEvent[]): void {
    this.#bytes += lengthOf(lost);
    this.#putBack(lost);
  }

  /** Events with numbers above `seq` and up to `upTo`. */
  between(seq: number, upTo: number): readonly NewEvent[] {
    const from = Math.max(0, seq + 1 - this.nextSeq);
    const to = Math.max(0, upTo + 1 - this.nextSeq);
    const countInFlight = this.#eventsInFlight.length;
    const queued = this.#events.slice(Math.max(0, from - countInFlight), Math.max(0, to - countInFlight));
    return from < countInFlight ? [...this.#eventsInFlight.slice(from, to), ...queued] : queued;
  }

  clear(): void {
    this.#events = [];
    this.#addedAt = [];
    this.#batchInFlight = null;
    this.#bytes = 0;
  }

  get #eventsInFlight(): readonly NewEvent[] {
    return this.#batchInFlight?.events ?? [];
  }

  #putBack(events: readonly NewEvent[]): void {
    const now = performance.now();
    this.#events = events.concat(this.#events);
    this.#addedAt = events.map(() => now).concat(this.#addedAt);
  }
}

/** UTF-16 units of the events' data. */
export const lengthOf = (events: readonly NewEvent[]): number => events.reduce((sum, { data }) => sum + data.length, 0);
