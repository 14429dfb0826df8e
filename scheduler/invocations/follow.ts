import { type InvocationEvent, isTerminal, type Position } from './types.ts';

/** Bounds on the live events held for a slow reader. Past either bound, the cursor drops all of them, and the caller reads them from the log. */
export interface WaitingBounds {
  /** Events; 1,024 by default. */
  readonly maxWaiting?: number;
  /** Characters of event data; 64 Ki by default. */
  readonly maxWaitingLength?: number;
}

/** Events of a log after a position. */
export interface LogRead {
  readonly events: readonly InvocationEvent[];
  /** True when the log held no more events. */
  readonly complete: boolean;
  /** Set when the store lost events that the reader has: `events` begin after number `after`, and live events before `epoch` are void. */
  readonly lost?: { readonly after: number; readonly epoch: number } | undefined;
}

/**
 * Merges events read from a log with live events into one sequence without duplicates, and with gaps only where the log has them. The
 * cursor holds no connection and never waits. While `isBehind` is true, the caller must read the log after `position`. The cursor keeps live
 * events that arrive during that read, because the log may not have had them yet.
 */
export class FollowCursor {
  /** Number of the last event handed out. */
  lastSeq: number;
  /** True when events may exist that only the log can supply. */
  isBehind: boolean;
  /** True once the terminal event was handed out. */
  isDone = false;
  readonly #afterSeq: number;
  readonly #maxWaiting: number;
  readonly #maxWaitingLength: number;
  #epoch: number | null;
  #waiting: InvocationEvent[] = [];
  /** Characters of data in `#waiting`. */
  #waitingLength = 0;
  /** Times that live events were dropped or may have been missed. */
  #interruptions = 0;
  /** The log has events up to this number, or is about to have them. */
  #knownSeq = 0;
  /** Like `#knownSeq`, for a later epoch that reuses numbers already handed out. A read then tells where that epoch begins. */
  #laterKnownSeq = 0;

  /** @param after position of the reader; null for a reader that gets every event live, from the first on */
  constructor(after: Position | null, { maxWaiting = 1024, maxWaitingLength = 64 << 10 }: WaitingBounds = {}) {
    this.isBehind = after !== null;
    this.lastSeq = after?.seq ?? 0;
    this.#epoch = after?.epoch ?? null;
    this.#afterSeq = this.lastSeq;
    this.#maxWaiting = maxWaiting;
    this.#maxWaitingLength = maxWaitingLength;
  }

  /** Position of the last event handed out. */
  get position(): Position {
    return { epoch: this.#epoch, seq: this.lastSeq };
  }

  /** True when `drain` may have events. */
  get hasWaiting(): boolean {
    return !this.isBehind && !this.isDone && this.#waiting.length > 0;
  }

  /** Takes events that arrived live, in order. */
  addLive(events: readonly InvocationEvent[]): void {
    if (this.isDone) return;
    for (const event of events) {
      this.#waiting.push(event);
      this.#waitingLength += event.data.length;
    }
    if (this.#waiting.length > this.#maxWaiting || this.#waitingLength > this.#maxWaitingLength) this.interrupted();
  }

  /** Call when live events may have been missed. */
  interrupted(): void {
    this.noteKnown(this.#waiting.at(-1)?.seq ?? 0);
    this.#drop();
    this.isBehind = true;
  }

  /** Call when the log has events up to `seq`, or is about to have them. `isBehind` then tells if the caller must read the log. */
  noteKnown(seq: number): void {
    this.#knownSeq = Math.max(this.#knownSeq, seq);
    if (this.lastSeq < this.#knownSeq && !this.#hasNext) this.isBehind = true;
  }

  /**
   * True when the cursor has not handed out all events that it knows of (`noteKnown`). If this is so right after the replay of a complete read,
   * the log does not have the missing events yet.
   */
  get awaitsAnnounced(): boolean {
    return this.isBehind && this.lastSeq < this.#knownSeq;
  }

  /** Call before reading the log after `position`, and pass the result to `replay`. */
  beginRead(): number {
    return this.#interruptions;
  }

  /** Hands out the events of a read. An event `gap` precedes them when the store lost events that were handed out. */
  replay(readMark: number, { events, complete, lost }: LogRead): InvocationEvent[] {
    const replayed: InvocationEvent[] = lost ? [this.#rewind(lost.after, lost.epoch)] : [];
    for (const event of events) if (event.seq > this.lastSeq) replayed.push(this.#handOut(event));
    // An interruption during the read may have lost newer events.
    const isWhole = complete && readMark === this.#interruptions;
    if (isWhole && (this.lastSeq >= this.#knownSeq || this.#hasNext)) this.isBehind = false;
    return replayed;
  }

  /** Hands out the waiting live events that continue the sequence. */
  drain(): InvocationEvent[] {
    const drained: InvocationEvent[] = [];
    let takenCount = 0;
    while (!this.isDone && !this.isBehind) {
      const next = this.#waiting[takenCount];
      if (next === undefined) {
        // All waiting events are handed out. The log may have more.
        this.noteKnown(this.#knownSeq);
        break;
      }
      if (next.seq > this.lastSeq + 1) {
        // Events before this one did not arrive live: `noteKnown` makes the cursor fall behind, so that the caller reads them.
        this.#forget(takenCount);
        takenCount = 0;
        this.noteKnown(next.seq - 1);
        continue;
      }
      takenCount += 1;
      if (next.seq === this.lastSeq + 1 && !this.#isStale(next)) drained.push(this.#handOut(next));
      else if (this.#isLater(next)) {
        // The event reuses a number already handed out, since the store lost events. A read of the log tells which ones.
        this.#laterKnownSeq = this.#waiting.at(-1)?.seq ?? 0;
        this.#drop();
        this.isBehind = true;
        return drained;
      } else if (isTerminal(next.event)) {
        // The terminal event has a number already handed out, since the log lost the event that had this number. The caller must read the log.
        this.interrupted();
        return drained;
      }
    }
    this.#forget(takenCount);
    return drained;
  }

  /**
   * Hands out the terminal event of an ended invocation whose log has no event after the reader's position. There are two cases:
   *
   * - The events before the terminal one are no longer kept. It keeps its number, which is larger than the reader's.
   * - The store lost events that were handed out, and the process that ended the invocation did not know them. The reader already has an
   *   event of the terminal event's number, and gets the terminal event under the next number.
   *
   * A reader that started at the number of the terminal event has seen that event, and gets nothing. A reader that started at a larger
   * number may have seen the terminal event under a number made here, or an event that the store lost. It gets the terminal event again:
   * better twice than never.
   */
  ended(terminal: InvocationEvent): InvocationEvent[] {
    if (terminal.seq === this.lastSeq && this.lastSeq === this.#afterSeq) return [];
    return [this.#handOut({ ...terminal, seq: Math.max(terminal.seq, this.lastSeq + 1) })];
  }

  /** True when the next event is in `#waiting`. */
  get #hasNext(): boolean {
    return this.#waiting.find(({ seq }) => seq > this.lastSeq)?.seq === this.lastSeq + 1;
  }

  /** Goes back to number `after`, and drops waiting events of epochs before `epoch`. Returns the `gap` event for the reader. */
  #rewind(after: number, epoch: number): InvocationEvent {
    this.lastSeq = after;
    this.#epoch = epoch;
    this.#knownSeq = this.#laterKnownSeq;
    this.#laterKnownSeq = 0;
    this.#waiting = this.#waiting.filter((event) => event.epoch >= epoch);
    this.#waitingLength = this.#waiting.reduce((sum, { data }) => sum + data.length, 0);
    return { seq: after, epoch, event: 'gap', data: JSON.stringify({ after }) };
  }

  #isLater({ epoch }: InvocationEvent): boolean {
    return this.#epoch !== null && epoch > this.#epoch;
  }

  /**
   * True for an event of an earlier attempt, whose runtime may go on when the store lost the attempt's beginning and another attempt began.
   */
  #isStale({ epoch, event }: InvocationEvent): boolean {
    return this.#epoch !== null && epoch < this.#epoch && !isTerminal(event);
  }

  #handOut(event: InvocationEvent): InvocationEvent {
    this.lastSeq = event.seq;
    this.#epoch = event.epoch;
    if (isTerminal(event.event)) this.isDone = true;
    return event;
  }

  /** Removes the first `count` waiting events. */
  #forget(count: number): void {
    if (count === 0) return;
    const removedEvents = this.#waiting.splice(0, count);
    this.#waitingLength = this.#waiting.length === 0 ? 0 : this.#waitingLength - lengthOf(removedEvents);
  }

  #drop(): void {
    this.#waiting = [];
    this.#waitingLength = 0;
    this.#interruptions += 1;
  }
}

function lengthOf(events: readonly InvocationEvent[]): number {
  return events.reduce((sum, { data }) => sum + data.length, 0);
}
