import { type InvocationEvent, isTerminal } from './types.ts';

/** Bounds on the live events held for a slow reader; past either bound the cursor drops them and the log supplies them. */
export interface WaitingEvents {
  /** 1,024 by default. */
  readonly maxWaiting?: number;
  /** Characters of event data; 64 Ki by default. */
  readonly maxWaitingLength?: number;
}

/**
 * Merges events read from a log with live events into one sequence without duplicates, and with gaps only where the log has them. The
 * cursor holds no connection and never waits. While `behind` is true, the caller must read the log after `last`. The cursor keeps live
 * events that arrive meanwhile, since that read may be older than they are or the log may not have them yet.
 */
export class FollowCursor {
  /** Number of the last event yielded. */
  last: number;
  /** True when events may exist that only the log can supply. */
  behind = true;
  /** True once the terminal event was yielded. */
  done = false;
  readonly #afterSeq: number;
  readonly #maxWaiting: number;
  readonly #maxWaitingLength: number;
  #waiting: InvocationEvent[] = [];
  /** Characters of data in `#waiting`. */
  #waitingLength = 0;
  #interruptions = 0;
  /** Number up to which the log has events, or is about to have them. */
  #known = 0;

  constructor(afterSeq: number, { maxWaiting = 1024, maxWaitingLength = 64 << 10 }: WaitingEvents = {}) {
    this.last = afterSeq;
    this.#afterSeq = afterSeq;
    this.#maxWaiting = maxWaiting;
    this.#maxWaitingLength = maxWaitingLength;
  }

  /** Takes events that arrived live, in order. */
  live(events: readonly InvocationEvent[]): void {
    if (this.done) return;
    for (const event of events) {
      this.#waiting.push(event);
      this.#waitingLength += event.data.length;
    }
    if (this.#waiting.length > this.#maxWaiting || this.#waitingLength > this.#maxWaitingLength) this.interrupted();
  }

  /** Call when live events may have been missed. */
  interrupted(): void {
    this.known(this.#waiting.at(-1)?.seq ?? 0);
    this.#waiting = [];
    this.#waitingLength = 0;
    this.behind = true;
    this.#interruptions += 1;
  }

  /** The log has events up to `seq`, or is about to; the caller must read those that did not arrive live. */
  known(seq: number): void {
    this.#known = Math.max(this.#known, seq);
    if (this.last < this.#known && !this.#goesOn) this.behind = true;
  }

  /** True when the log lacks events that are about to be written. */
  get isEarly(): boolean {
    return this.behind && this.last < this.#known;
  }

  /** Call before reading the log, and pass the result to `replay`. */
  beginRead(): number {
    return this.#interruptions;
  }

  /** Yields events read from the log after `last`, and removes them from the list; `complete` when the log held no more. */
  *replay(read: number, events: InvocationEvent[], complete: boolean): Generator<InvocationEvent> {
    for (const event of emptying(events)) if (event.seq > this.last) yield this.#handOut(event);
    // An interruption during the read may have lost newer events.
    if (!complete || read !== this.#interruptions) return;
    if (this.last >= this.#known || this.#goesOn) this.behind = false;
  }

  /** Yields the waiting live events that continue the sequence. */
  *drain(): Generator<InvocationEvent> {
    while (!this.done && !this.behind) {
      const next = this.#waiting.shift();
      if (next === undefined) {
        this.known(this.#known);
        return;
      }
      this.#waitingLength -= next.data.length;
      if (next.seq > this.last + 1) {
        this.#waiting.unshift(next);
        this.#waitingLength += next.data.length;
        this.known(next.seq - 1);
      } else if (next.seq === this.last + 1) yield this.#handOut(next);
      // The log lost the event already yielded under that number, and has ended; a read finds out.
      else if (isTerminal(next.event)) this.interrupted();
    }
  }

  /**
   * Ends a sequence whose log ended at a number that the reader already has: the store lost events that were yielded, and the process that
   * ended the invocation did not know them. The reader still gets a terminal event, under the number that it expects. A reader that started
   * at the number of the terminal event has seen that event, and gets nothing. A reader that started at a larger number may have seen the
   * terminal event under a number made here, or an event that the store lost. It gets the terminal event again: better twice than never.
   */
  *ended(terminal: InvocationEvent): Generator<InvocationEvent> {
    if (terminal.seq === this.last && this.last === this.#afterSeq) return;
    // A larger number stays as it is: the events in between are gone.
    yield this.#handOut({ ...terminal, seq: Math.max(terminal.seq, this.last + 1) });
  }

  /** True when the next event is in `#waiting`. */
  get #goesOn(): boolean {
    return this.#waiting.find(({ seq }) => seq > this.last)?.seq === this.last + 1;
  }

  #handOut(event: InvocationEvent): InvocationEvent {
    this.last = event.seq;
    if (isTerminal(event.event)) this.done = true;
    return event;
  }
}

/** Yields and removes each event of a list, so that a stalled reader holds only the events still to come. */
function* emptying(events: InvocationEvent[]): Generator<InvocationEvent> {
  events.reverse();
  for (let event = events.pop(); event !== undefined; event = events.pop()) yield event;
}
