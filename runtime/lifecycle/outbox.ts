import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { MAX_EVENTS, SHOWN_AHEAD } from '#scheduler/invocations/log.ts';
import type { AppendOutcome, NewEvent, Usage } from '#scheduler/invocations/types.ts';
import type { Showing, Unlogged } from '#scheduler/live/server.ts';
import { type Pace, Paces } from '#scheduler/policies/paces.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import { SequenceGap, StoreError } from '#scheduler/store/errors.ts';
import type { EventSink } from '../host/session/session-state.ts';
import { untilAnswered } from './stored.ts';
import type { Reporting } from './usage.ts';

/** The outbox writes at once when the log lacks this many bytes of events. Fewer shown events wait for the next tick of `WriteTicks`. */
const WRITE_NOW_BYTES = 64 << 10;
/** Maximum characters of shown events that are not in the log. Followers read the events beyond this bound from the log. */
const MAX_SHOWN_LENGTH = 64 << 10;
/** No event is shown while an older one has been missing from the log for this long: this bounds what a dying runtime loses. */
const MAX_UNLOGGED_MS = 250;
/** The outbox waits for its pace in steps of at most this length. Between steps it checks if it must still wait. */
const MAX_PAUSE_STEP_MS = 50;
/** Maximum events that the terminal event's write takes along. */
const MAX_LAST_EVENTS = 32;
/** Maximum bytes of these events. */
const MAX_LAST_BYTES = 16 << 10;
/** Default of `OutboxOptions.keepMs`. */
const KEEP_MS = 5000;
/** Default of `OutboxOptions.keepBytes`. */
const KEEP_BYTES = 2 << 20;

/**
 * Writes the events of one attempt to the event log: in order, numbered, in batches, one call at a time. Followers see events in the same
 * turn of the event loop, up to `SHOWN_AHEAD` events and 250 ms before the log has them. The outbox repeats a call that cannot reach the
 * store: the events' numbers make it idempotent. It keeps acknowledged events until they are on disk. If the store loses some, the outbox
 * writes them again, with their numbers, before any other event.
 */
export class Outbox implements EventSink, Reporting {
  readonly #log: AttemptLog;
  readonly #onEnd: OutboxOptions['onEnd'];
  readonly #usage: MarkedUsage | undefined;
  readonly #pace: OutboxOptions['pace'];
  readonly #isAbandoned: () => boolean;
  readonly #keepMs: number;
  readonly #keptEvents: KeptEvents;
  readonly #queue: OutboxQueue;
  /** Resolve the promises that wait for the end of a write. */
  #onWritten: (() => void)[] = [];
  readonly #shows: Shows | undefined;
  readonly #showing: Showing | undefined;
  /** Number of the last event that followers were shown or that the log has. */
  #lastShown: number;
  /** Largest number that a shown event may have. */
  #maxShown: number;
  readonly #onTick = () => this.#start();
  #lastCallAt = performance.now();
  #reportedUsage: Usage | null = null;
  #writing: Promise<void> | null = null;
  #pausing: Promise<void> | null = null;
  /** True once writes ignore the pace. */
  #hurried = false;
  /** Number of events at the end of the queue that are not shown, because followers get them with the terminal event. */
  #unshownLastCount = 0;
  /** Shows and schedules the events of this turn of the event loop, at the turn's end. */
  #turnEnd: NodeJS.Immediate | null = null;
  /** Shows and schedules events that wait a little for more. */
  #lingerTimer: NodeJS.Timeout | null = null;
  #checkTimer: NodeJS.Timeout | null = null;
  #end: OutboxEnd | null = null;
  #cause: unknown;
  #closed = false;

  constructor(nextSeq: number, log: AttemptLog, options: OutboxOptions) {
    this.#queue = new OutboxQueue(nextSeq);
    this.#log = log;
    this.#lastShown = nextSeq - 1;
    this.#maxShown = this.#lastShown + SHOWN_AHEAD;
    this.#shows = options.shows;
    this.#showing = options.shows?.begin(() => this.#unlogged());
    this.#onEnd = options.onEnd;
    this.#usage = options.usage;
    this.#pace = options.pace;
    this.#isAbandoned = options.isAbandoned ?? (() => false);
    this.#keepMs = options.keepMs ?? KEEP_MS;
    this.#keptEvents = new KeptEvents(this.#keepMs, options.keepBytes ?? KEEP_BYTES);
  }

  get pendingBytes(): number {
    return this.#queue.bytes;
  }

  get lastCallAt(): number {
    return this.#lastCallAt;
  }

  get reported(): Usage | null {
    return this.#reportedUsage;
  }

  /** Number of the event after the log's last one. */
  get nextSeq(): number {
    return this.#queue.nextSeq;
  }

  /** The reason that the log takes no more events, or null. */
  get end(): OutboxEnd | null {
    return this.#end;
  }

  /** The error that ended the outbox, if one did. */
  get cause(): unknown {
    return this.#cause;
  }

  /** Queues an event. @param withinMs longest wait for more events to share the write; by default, only those of the same turn share it */
  add(event: NewEvent['event'], data: string, withinMs = 0): void {
    if (!this.#push(event, data)) return;
    // The write under way starts the next one when it ends. Until then, a callback is needed only to show events.
    if (this.#turnEnd || (this.#writing && !this.#showing)) return;
    if (withinMs > 0) {
      this.#lingerTimer ??= setTimeout(() => this.#showAndSchedule(), withinMs);
      return;
    }
    this.#turnEnd = setImmediate(() => {
      this.#turnEnd = null;
      this.#showAndSchedule();
    });
  }

  /** Queues the last event before `finish`. Followers get it with the terminal event if one write can take both. */
  addLast(event: NewEvent['event'], data: string): void {
    if (this.#push(event, data)) this.#unshownLastCount = 1;
  }

  report(usage: Usage): boolean {
    if (this.#writing || this.#turnEnd || this.#end || this.#closed) return false;
    // A report may go out while events wait for their pace: the answer says how much the quotas still allow.
    if (this.#queue.events.length > 0 && !this.#pausing) return false;
    this.#writing = this.#report(usage);
    return true;
  }

  /** Reports the usage that was reported last, for the sake of the answer. Never throws: a failed call is not repeated. */
  async reportAgain(): Promise<void> {
    if (this.#end || this.#closed || this.#isAbandoned()) return;
    try {
      await this.#log.report(this.#reportedUsage ?? {});
    } catch (error) {
      if (StoreError.from(error).code !== 'store-unavailable') this.#stop('broken', error);
    }
  }

  /** See `EventSink.flushed`. */
  async flushed(atOnce = true): Promise<boolean> {
    if (!atOnce) {
      const targetSeq = this.#queue.endSeq;
      while (!this.#end && !this.#closed && this.nextSeq < targetSeq) {
        await new Promise<void>((resolve) => this.#onWritten.push(resolve));
      }
      return this.nextSeq >= targetSeq;
    }
    this.#show();
    while (!this.#end && (this.#queue.events.length > 0 || this.#writing)) {
      if (!this.#writing) this.#start();
      await (this.#writing ?? this.#pausing);
    }
    return this.#end === null;
  }

  /** Like `flushed`, but leaves events in the queue that `finish` can write along with the terminal event. */
  async almostFlushed(): Promise<boolean> {
    this.#show();
    await this.#writing;
    if (this.#lastEventsFit) return this.#end === null;
    this.#unshownLastCount = 0;
    return this.flushed();
  }

  /** Makes all later writes ignore the pace; called when the inferlet has ended. */
  hurry(): void {
    this.#hurried = true;
  }

  /**
   * Writes the remaining events and then the terminal event, with `write`; takes no more events. When `finish` throws, another call may still
   * end the log.
   *
   * @param write gets the terminal event's number (`seq`), that of the log's last event (`lastSeq`), the remaining events that it must write in
   *   the same step (`lastEvents`, empty without `unwritten`), and the number of the last event that followers were shown (`lastShownSeq`)
   * @param unwritten when given, `write` may get remaining events, if they are few; it answers `unwritten` when the store refuses them
   * @returns the answer of `write`, or null when `isAbandoned` returned true first. `unwritten` when events before the end could not be
   *   written; `end` then tells why.
   * @throws StoreError that `write` throws; `store-corrupt` when events before the end could not be written, for instance because the store
   *   lost events that the outbox no longer keeps. `SequenceGap` when the log refused shown events and `write` accepts only the number after
   *   `lastSeq`: `seq` must skip the numbers of the shown events.
   */
  async finish<T>(
    write: (seq: number, lastSeq: number, lastEvents: readonly NewEvent[], lastShownSeq: number) => Promise<T>,
    unwritten?: T,
  ): Promise<T | null> {
    const endBefore = this.#end;
    /** True while `write` may take the remaining events along. */
    let together = unwritten !== undefined;
    if (!together || !this.#lastEventsFit) this.#unshownLastCount = 0;
    this.#show();
    this.close();
    for (;;) {
      while (this.#writing || (this.#queue.events.length > 0 && !(together && this.#lastEventsFit))) {
        this.#start();
        await this.#writing;
      }
      // After `lost`, `write` is called all the same: the store's answer tells what has become of the invocation.
      if (this.#end !== endBefore && this.#end !== 'lost') {
        if (unwritten !== undefined) return unwritten;
        const message = `The last events could not be written (${this.#end}).`;
        throw new StoreError('store-corrupt', message, { cause: this.#cause });
      }
      try {
        const lastSeq = this.nextSeq - 1;
        const { events } = this.#queue;
        if (events.length > 0) this.#pace?.spend(costOfEvents(events.length, this.#queue.bytes));
        const seq = Math.max(lastSeq + events.length, this.#lastShown) + 1;
        const answer = await untilAnswered(this.#isAbandoned, () => write(seq, lastSeq, events, this.#lastShown));
        if (events.length === 0 || answer !== unwritten) return answer;
        together = false;
      } catch (error) {
        if (!(error instanceof SequenceGap)) throw error;
        if (error.lastSeq < this.nextSeq - 1) this.#rewindOrStop(error.lastSeq);
        else if (this.#queue.events.length === 0) {
          // Another call would send the same numbers, and fail in the same way.
          if (error.lastSeq === this.nextSeq - 1) throw error;
          // The log has more events than this outbox knows of: an earlier call wrote them and then failed. No other writer has this epoch.
          this.#queue.nextSeq = error.lastSeq + 1;
        }
        // Write the remaining events separately: the log may have some of them by now, and an append skips events that the log has.
        together = false;
      }
    }
  }

  /** Takes no more events. Only `finish` writes the remaining ones. */
  close(): void {
    this.#closed = true;
    this.#tellWritten();
    this.#showing?.end();
    this.#shows?.ticks.delete(this.#onTick);
    if (this.#turnEnd) clearImmediate(this.#turnEnd);
    if (this.#lingerTimer) clearTimeout(this.#lingerTimer);
    if (this.#checkTimer) clearTimeout(this.#checkTimer);
    this.#turnEnd = null;
    this.#lingerTimer = null;
    this.#checkTimer = null;
  }

  /** True when the terminal event's write can take the remaining events along: they are few, and followers are shown them. */
  get #lastEventsFit(): boolean {
    const areFew = this.#queue.events.length <= MAX_LAST_EVENTS && this.#queue.bytes <= MAX_LAST_BYTES;
    return areFew && this.#showing !== undefined && this.#end === null && this.#writing === null;
  }

  /** Shows and schedules the events that were added in this turn of the event loop. */
  #showAndSchedule(): void {
    if (this.#lingerTimer) clearTimeout(this.#lingerTimer);
    this.#lingerTimer = null;
    this.#show();
    if (!this.#shows || this.#queue.bytes >= WRITE_NOW_BYTES) this.#start();
    else if (this.#queue.events.length > 0) this.#shows.ticks.add(this.#onTick);
  }

  /** Shows followers as many new events as the bounds allow. */
  #show(): void {
    if (!this.#showing || this.#end || this.#closed) return;
    const logged = this.nextSeq - 1;
    if (this.#lastShown < logged) {
      // These events reached the log without being shown: tell followers to read them there.
      this.#lastShown = logged;
      this.#showing.logged(logged);
    }
    const { oldestAt, endSeq } = this.#queue;
    if (oldestAt === undefined || performance.now() - oldestAt > MAX_UNLOGGED_MS) return;
    let freeLength = MAX_SHOWN_LENGTH - lengthOf(this.#queue.between(logged, this.#lastShown));
    const events = this.#queue.between(this.#lastShown, Math.min(this.#maxShown, endSeq - 1 - this.#unshownLastCount));
    const firstExcess = events.findIndex(({ data }) => {
      freeLength -= data.length;
      return freeLength < 0;
    });
    const shownEvents = firstExcess < 0 ? events : events.slice(0, firstExcess);
    if (shownEvents.length === 0) return;
    this.#showing.show(this.#lastShown + 1, shownEvents);
    this.#lastShown += shownEvents.length;
  }

  /** Queues an event; false when the log takes no more. */
  #push(event: NewEvent['event'], data: string): boolean {
    if (this.#end || this.#closed) return false;
    this.#unshownLastCount = 0;
    this.#queue.push({ event, data });
    this.#usage?.mark();
    return true;
  }

  #unlogged(): Unlogged {
    const logged = this.nextSeq - 1;
    return { logged, events: this.#queue.between(logged, this.#lastShown) };
  }

  /** Starts a write or, if the pace requires it, a pause; without effect during a write. @param check true to check the log for losses first */
  #start(check = false): void {
    if (this.#lingerTimer) clearTimeout(this.#lingerTimer);
    this.#lingerTimer = null;
    if (this.#writing || (this.#queue.events.length === 0 && !check)) return;
    if (!check && this.#pauseMs() > 0) this.#pausing ??= this.#pause();
    // `#write` clears `#writing` only after this assignment, because it first awaits a call.
    else this.#writing = this.#write(check);
  }

  async #write(check: boolean): Promise<void> {
    try {
      if (check) await this.#check();
      while (this.#queue.events.length > 0 && this.#pauseMs() === 0) {
        await this.#writeBatch();
        // A few shown events wait for the next tick.
        if (this.#shows && this.#queue.bytes < WRITE_NOW_BYTES) break;
      }
    } catch (cause) {
      this.#stop(cause instanceof QuotaExceeded ? 'over-quota' : 'broken', cause);
    } finally {
      // No event can arrive between the loop's last check of the queue and this line, so none that relies on this write (see `add`) is forgotten.
      this.#writing = null;
      this.#tellWritten();
      this.#showAndSchedule();
      this.#scheduleCheck();
    }
  }

  #tellWritten(): void {
    for (const tell of this.#onWritten.splice(0)) tell();
  }

  /** Milliseconds that the pace makes the next write wait; 0 when the write ignores the pace. */
  #pauseMs(): number {
    if (this.#hurried || this.#closed || this.#end || this.#isAbandoned()) return 0;
    return this.#pace?.pauseMs() ?? 0;
  }

  /** Waits until the pace allows a write, and starts it. */
  async #pause(): Promise<void> {
    for (let ms = this.#pauseMs(); ms > 0; ms = this.#pauseMs()) await sleep(Math.min(ms, MAX_PAUSE_STEP_MS));
    this.#pausing = null;
    if (!this.#closed) this.#start();
  }

  /** Reports usage. A failed call is not repeated: the next report supersedes it. */
  async #report(usage: Usage): Promise<void> {
    try {
      this.#lastCallAt = performance.now();
      const outcome = await this.#log.report(usage);
      if (outcome === 'ok') this.#reportedUsage = usage;
      else this.#stop('lost');
    } catch (error) {
      if (StoreError.from(error).code !== 'store-unavailable') this.#stop('broken', error);
    } finally {
      this.#writing = null;
      this.#start();
      this.#scheduleCheck();
    }
  }

  async #writeBatch(): Promise<void> {
    const { firstSeq, events, bytes } = this.#queue.take();
    this.#pace?.spend(costOfEvents(events.length, bytes));
    // This usage also covers the events that stay queued.
    const usage = this.#usage?.marked();
    const sentAt = performance.now();
    let outcome: AppendOutcome | null;
    try {
      outcome = await untilAnswered(this.#isAbandoned, () => this.#log.append(firstSeq, events, usage));
    } catch (error) {
      if (!(error instanceof SequenceGap)) throw error;
      this.#queue.requeue();
      if (error.lastSeq < firstSeq - 1) this.#rewind(error.lastSeq);
      return;
    }
    this.#queue.landed(outcome === 'ok');
    if (outcome === 'ok') {
      this.#maxShown = Math.max(this.#maxShown, this.nextSeq - 1 + SHOWN_AHEAD);
      this.#lastCallAt = performance.now();
      this.#reportedUsage = usage ?? this.#reportedUsage;
      this.#keptEvents.confirm(sentAt);
      this.#keptEvents.add(firstSeq, events, performance.now());
    } else this.#stop(outcome === 'full' ? 'full' : 'lost');
  }

  /** Requeues the events that the log lost after `lastSeq`, before the queued events. Throws when one of them is not kept. */
  #rewind(lastSeq: number): void {
    const lostUpTo = this.nextSeq - 1;
    // Set this even when the next step throws: the terminal event gets this number.
    this.#queue.nextSeq = lastSeq + 1;
    const lostEvents = this.#keptEvents.takeAfter(lastSeq);
    if (lostEvents === null) {
      this.#keptEvents.clear();
      const loss = `The store has lost the events ${lastSeq + 1} to ${lostUpTo}, which it had acknowledged`;
      throw new StoreError('store-corrupt', `${loss}, and the first of them are not kept any more.`);
    }
    this.#queue.unshift(lostEvents);
  }

  /**
   * Like `#rewind`, but stops the outbox when `#rewind` throws. This drops the queued events: they would get the numbers of lost events, which
   * followers have seen.
   */
  #rewindOrStop(lastSeq: number): void {
    try {
      this.#rewind(lastSeq);
    } catch (error) {
      this.#stop('broken', error);
      throw error;
    }
  }

  /** Checks that the log has every acknowledged event, and requeues lost ones: without writes, nothing else detects a loss. */
  async #check(): Promise<void> {
    const sentAt = performance.now();
    let lastSeq: number | null;
    try {
      lastSeq = await this.#log.lastSeq();
    } catch (error) {
      if (StoreError.from(error).code !== 'store-unavailable') throw error;
      return;
    }
    if (lastSeq === null) this.#stop('lost');
    else if (lastSeq < this.nextSeq - 1) this.#rewind(lastSeq);
    else this.#keptEvents.confirm(sentAt);
  }

  /** While events are kept, schedules a check of the log. It runs when the last write is one to two times `keepMs` old. */
  #scheduleCheck(): void {
    if (this.#checkTimer || this.#closed || this.#end || this.#keptEvents.newestAt === null) return;
    this.#checkTimer = setTimeout(() => {
      this.#checkTimer = null;
      const idleMs = performance.now() - (this.#keptEvents.newestAt ?? 0);
      // A write within `keepMs` has itself shown that the log has the earlier events.
      if (idleMs >= this.#keepMs) this.#start(true);
      else this.#scheduleCheck();
    }, this.#keepMs).unref();
  }

  #stop(end: OutboxEnd, cause?: unknown): void {
    this.#queue.clear();
    this.#tellWritten();
    // A full log still gets its terminal event, whose write may reveal that the store lost events. The outbox then writes the kept events again.
    if (end !== 'full' && end !== 'over-quota') this.#keptEvents.clear();
    if (this.#end) return;
    this.#end = end;
    this.#cause = cause;
    this.#onEnd(end, cause);
  }
}

/** The log of one attempt, as its outbox uses it. */
export interface AttemptLog {
  /** `Invocations.write` for the attempt. @param usage what `MarkedUsage.marked` returned just before the call */
  append(firstSeq: number, events: readonly NewEvent[], usage: Usage | undefined): Promise<AppendOutcome>;
  /** `Invocations.report` for the attempt. */
  report(usage: Usage): Promise<AppendOutcome>;
  /** Number of the log's last event; null when this attempt no longer owns the invocation. */
  lastSeq(): Promise<number | null>;
}

/**
 * The reason that no more events can be written. `lost`: another attempt owns the invocation, or the invocation has ended. `full`: its log is full.
 * `over-quota`: its tenant's storage quota is used up; `onEnd` gets the `QuotaExceeded` as the cause. `broken`: the store refused the call.
 */
export type OutboxEnd = 'lost' | 'full' | 'over-quota' | 'broken';

/** An attempt's usage, which the outbox writes along with events. */
export interface MarkedUsage {
  /** Copies the present token counts. The outbox calls it whenever it has queued an event, so that a write reports no tokens of later events. */
  mark(): void;
  /** Usage up to now, but with the token counts of the last `mark`. The outbox calls it for each write. Undefined while there is none to report. */
  marked(): Usage | undefined;
}

/** Shows an attempt's events to the readers that follow its log, before the events are written. */
export interface Shows {
  /** Begins to show events. @param unlogged returns the events that are shown and not yet in the log */
  begin(unlogged: () => Unlogged): Showing;
  /** Triggers the writes of shown events. */
  readonly ticks: Pick<WriteTicks, 'add' | 'delete'>;
}

export interface OutboxOptions {
  /** By default no events are shown early, and each event is written as soon as possible. */
  readonly shows?: Shows | undefined;
  /** The attempt's usage; none by default. */
  readonly usage?: MarkedUsage;
  /** Limits the rate of writes; unlimited by default. The terminal event does not wait for the pace. */
  readonly pace?: Pick<Pace, 'pauseMs' | 'spend'>;
  /** Called once when no more events can be written. */
  readonly onEnd: (end: OutboxEnd, cause?: unknown) => void;
  /** True when the outbox may give up calls that the store does not answer; never by default. */
  readonly isAbandoned?: () => boolean;
  /**
   * Longest time that the store needs to write an acknowledged event to disk; 5 s by default, as Redis takes less than 3 s. Until then the
   * store may lose the event, so the outbox keeps it, to write it again.
   */
  readonly keepMs?: number;
  /** Maximum bytes of kept events; 2 MiB by default, more than the largest binary message takes. The outbox drops older events beyond it. */
  readonly keepBytes?: number;
}

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

/**
 * Events that one tenant may log per second, for each core of the machine, while other tenants run. An event costs the runtime, Redis and a
 * gateway about 10 µs each, so a flood takes a small part of the machine. For comparison: a stream of tokens has 40 events per second.
 */
const EVENTS_PER_CORE = 2000;
/** Bytes of event data that cost about as much as an event (30 µs): Redis takes 60 ms per megabyte, including its append-only file. */
const BYTES_OF_AN_EVENT = 512;

/** The paces at which tenants may log events; their unit is an event. */
export const eventPaces = (): Paces => new Paces(EVENTS_PER_CORE * availableParallelism());

/** Cost of a batch of events for its tenant's pace, in events. @param bytes size of the events' data */
export const costOfEvents = (events: number, bytes: number): number => events + bytes / BYTES_OF_AN_EVENT;

/**
 * Longest time that shown events wait for a write shared with other attempts. A dying runtime may lose 250 ms of shown events (`outbox.ts`):
 * 150 ms of waiting here, and 100 ms for a slow Redis.
 */
const WRITE_MS = 150;

/** Makes all attempts of a process write their shown events in the same turn of the event loop, so that one store call carries them. */
export class WriteTicks {
  readonly #pendingWrites = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** Calls `write` once, at the next tick, unless `delete` removes it before. */
  add(write: () => void): void {
    this.#pendingWrites.add(write);
    this.#timer ??= setTimeout(() => this.#tick(), WRITE_MS);
  }

  delete(write: () => void): void {
    this.#pendingWrites.delete(write);
  }

  #tick(): void {
    this.#timer = undefined;
    const writes = [...this.#pendingWrites];
    this.#pendingWrites.clear();
    for (const write of writes) write();
  }
}
