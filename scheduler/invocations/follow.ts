import { type InvocationEvent, isTerminal } from './types.ts';

/** Live events held for a slow reader; past either bound they are dropped and read from the log. */
export interface WaitingEvents {
  /** 1,024 by default. */
  readonly maxWaiting?: number;
  /** Characters of their data; 64 Ki by default. */
  readonly maxWaitingLength?: number;
}

/**
 * Merges what is read from a log with what arrives live into one sequence without duplicate, and without gap but where the log has one. Pure: it
 * holds no connection and never waits. While `behind`, the log must be read after `last`; events that arrive meanwhile are kept, since that
 * read may be older, or the log not have them yet.
 */
export class FollowCursor {
  /** Number of the last event handed out. */
  last: number;
  /** True when events may exist that only the log can supply. */
  behind = true;
  /** True once the terminal event was handed out. */
  done = false;
  readonly #afterSeq: number;
  readonly #maxWaiting: number;
  readonly #maxWaitingLength: number;
  #waiting: InvocationEvent[] = [];
  /** Characters of their data. */
  #waitingLength = 0;
  #interruptions = 0;
  /** The log has events up to this number, or is about to. */
  #known = 0;

  constructor(afterSeq: number, { maxWaiting = 1024, maxWaitingLength = 64 << 10 }: WaitingEvents = {}) {
    this.last = afterSeq;
    this.#afterSeq = afterSeq;
    this.#maxWaiting = maxWaiting;
    this.#maxWaitingLength = maxWaitingLength;
  }

  /** Events that arrived live, in order. */
  live(events: readonly InvocationEvent[]): void {
    if (this.done) return;
    for (const event of events) {
      this.#waiting.push(event);
      this.#waitingLength += event.data.length;
    }
    if (this.#waiting.length > this.#maxWaiting || this.#waitingLength > this.#maxWaitingLength) this.interrupted();
  }

  /** Live events may have been missed. */
  interrupted(): void {
    this.known(this.#waiting.at(-1)?.seq ?? 0);
    this.#waiting = [];
    this.#waitingLength = 0;
    this.behind = true;
    this.#interruptions += 1;
  }

  /** The log has events up to a number, or is about to: those that have not come live must be read. */
  known(seq: number): void {
    this.#known = Math.max(this.#known, seq);
    if (this.last < this.#known && !this.#goesOn) this.behind = true;
  }

  /** Whether the log was found to lack events that it is about to have. */
  get isEarly(): boolean {
    return this.behind && this.last < this.#known;
  }

  /** Call before reading the log; `replay` wants the answer. */
  beginRead(): number {
    return this.#interruptions;
  }

  /** Events read from the log after `last`; `complete` when it held no more. They are taken out of the list as they are handed out. */
  *replay(read: number, events: InvocationEvent[], complete: boolean): Generator<InvocationEvent> {
    for (const event of emptying(events)) if (event.seq > this.last) yield this.#handOut(event);
    // An interruption during the read may have lost events that are younger than it.
    if (!complete || read !== this.#interruptions) return;
    if (this.last >= this.#known || this.#goesOn) this.behind = false;
  }

  /** The waiting live events that follow on, one by one. */
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
      // The log lost what was handed out under that number, and has ended: a read tells.
      else if (isTerminal(next.event)) this.interrupted();
    }
  }

  /**
   * The log has ended, with a number that the reader knows: the store lost events that were handed out, and whoever ended the invocation
   * knew of none. The reader still gets a terminal event, under the number that it expects. One that came with just the number of the log's
   * end may have got that event before, and gets nothing. One that came with a larger number may have got its terminal event too, under a
   * number made here; that cannot be told from an event that the store lost, so it gets the terminal event again: rather twice than never.
   */
  *ended(terminal: InvocationEvent): Generator<InvocationEvent> {
    if (terminal.seq === this.last && this.last === this.#afterSeq) return;
    // A larger number of its own: the events between are forgotten.
    yield this.#handOut({ ...terminal, seq: Math.max(terminal.seq, this.last + 1) });
  }

  /** Whether the next event waits here. */
  get #goesOn(): boolean {
    return this.#waiting.find(({ seq }) => seq > this.last)?.seq === this.last + 1;
  }

  #handOut(event: InvocationEvent): InvocationEvent {
    this.last = event.seq;
    if (isTerminal(event.event)) this.done = true;
    return event;
  }
}

/** Each of a list, which lets go of it: whoever stands still in between holds only what is to come. */
function* emptying(events: InvocationEvent[]): Generator<InvocationEvent> {
  events.reverse();
  for (let event = events.pop(); event !== undefined; event = events.pop()) yield event;
}
