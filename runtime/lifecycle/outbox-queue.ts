import type { NewEvent } from '#scheduler/invocations/types.ts';

/** Maximum bytes of one call to the store: other calls wait for it. */
const MAX_BATCH_BYTES = 128 << 10;
/** Maximum events of one call: the store takes no more in one step, in which it also stores the usage at the last event. */
const MAX_BATCH_EVENTS = 1000;

/** A batch of events in a call to the store. */
export interface OutboxBatch {
  readonly firstSeq: number;
  readonly events: readonly NewEvent[];
  readonly bytes: number;
}

/** The events of an attempt that its log lacks, in order and without gaps: those of the call in flight, then the queue. */
export class OutboxQueue {
  /** Number of the event after the last one in the log. */
  nextSeq: number;
  #events: NewEvent[] = [];
  /** Times at which the queued events were added. */
  #addedAt: number[] = [];
  #flying: OutboxBatch | null = null;
  /** Time at which the oldest event in flight was added. */
  #flyingSince = 0;
  #bytes = 0;

  constructor(nextSeq: number) {
    this.nextSeq = nextSeq;
  }

  /** Events that are not in flight. */
  get events(): readonly NewEvent[] {
    return this.#events;
  }

  /** Bytes of all events that the log lacks. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of the event after the last one of the queue. */
  get endSeq(): number {
    return this.nextSeq + this.#inFlight.length + this.#events.length;
  }

  /** Time at which the oldest event was added; undefined when the log lacks none. */
  get oldestAt(): number | undefined {
    return this.#flying ? this.#flyingSince : this.#addedAt[0];
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
      if (count === MAX_BATCH_EVENTS || (count > 0 && bytes + data.length > MAX_BATCH_BYTES)) break;
      bytes += data.length;
      count++;
    }
    this.#flyingSince = this.#addedAt.splice(0, count)[0] ?? performance.now();
    this.#flying = { firstSeq: this.nextSeq, events: this.#events.splice(0, count), bytes };
    return this.#flying;
  }

  /** The call has been answered: its events wait no longer. @param logged true when they are in the log */
  landed(logged: boolean): void {
    this.#bytes -= this.#flying?.bytes ?? 0;
    if (logged) this.nextSeq += this.#inFlight.length;
    this.#flying = null;
  }

  /** Puts the events of the call in flight back at the front of the queue. */
  requeue(): void {
    this.#putBack(this.#inFlight);
    this.#flying = null;
  }

  /** Puts events that the log has lost before those of the queue. `nextSeq` is the number of the first one. */
  unshift(lost: readonly NewEvent[]): void {
    this.#bytes += lengthOf(lost);
    this.#putBack(lost);
  }

  /** Events with numbers above `seq` and up to `upTo`. */
  between(seq: number, upTo: number): readonly NewEvent[] {
    const from = Math.max(0, seq + 1 - this.nextSeq);
    const to = Math.max(0, upTo + 1 - this.nextSeq);
    const flying = this.#inFlight.length;
    const queued = this.#events.slice(Math.max(0, from - flying), Math.max(0, to - flying));
    return from < flying ? [...this.#inFlight.slice(from, to), ...queued] : queued;
  }

  clear(): void {
    this.#events = [];
    this.#addedAt = [];
    this.#flying = null;
    this.#bytes = 0;
  }

  get #inFlight(): readonly NewEvent[] {
    return this.#flying?.events ?? [];
  }

  #putBack(events: readonly NewEvent[]): void {
    const now = performance.now();
    this.#events = events.concat(this.#events);
    this.#addedAt = events.map(() => now).concat(this.#addedAt);
  }
}

/** Characters of the events' data. */
export const lengthOf = (events: readonly NewEvent[]): number => events.reduce((sum, { data }) => sum + data.length, 0);
