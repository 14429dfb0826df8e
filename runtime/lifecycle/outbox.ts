import { setTimeout as sleep } from 'node:timers/promises';
import { SHOWN_AHEAD } from '#scheduler/invocations/appends.ts';
import type { AppendOutcome, NewEvent, Usage } from '#scheduler/invocations/types.ts';
import type { Showing, Unlogged } from '#scheduler/live/server.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import { SequenceGap, StoreError } from '#scheduler/store/errors.ts';
import type { EventSink } from '../host/session-state.ts';
import { costOfEvents } from './event-pace.ts';
import { KeptEvents } from './outbox-kept.ts';
import type { AttemptLog, MarkedUsage, OutboxEnd, OutboxOptions, Shows } from './outbox-options.ts';
import { lengthOf, OutboxQueue } from './outbox-queue.ts';
import { untilAnswered } from './stored.ts';
import type { Reporting } from './usage-reports.ts';

/** Queued events do not wait for their tick once they have this many bytes. */
const WRITE_NOW_BYTES = 64 << 10;
/** Maximum characters of shown events that are not in the log: followers read the rest, and any longer event, from the log. */
const MAX_SHOWN_LENGTH = 64 << 10;
/** No event is shown while an older one has been missing from the log for this long: this bounds what a dying runtime loses. */
const MAX_UNLOGGED_MS = 250;
/** Longest pause before the outbox checks again whether it may write or is closed. */
const LONGEST_PAUSE_MS = 50;
/** Maximum events, and maximum bytes of them, that the terminal event's write takes along. */
const MAX_LAST_EVENTS = 32;
const MAX_LAST_BYTES = 16 << 10;
const KEEP_MS = 5000;
const KEEP_BYTES = 2 << 20;

/**
 * Writes the events of one attempt to the event log: in order, numbered, in batches, one call at a time. Followers see events in the same
 * turn of the event loop, up to `SHOWN_AHEAD` events and 250 ms before the log has them. A call that cannot reach the store is repeated:
 * numbers make it idempotent. Acknowledged events are kept until they are on disk; lost ones are written again first, with their numbers.
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
  /** Callbacks for the end of the next write. */
  #onWritten: (() => void)[] = [];
  readonly #shows: Shows | undefined;
  readonly #showing: Showing | undefined;
  /** Numbers of the last shown event, and of the last event that may be shown. */
  #lastShown: number;
  #maxShown: number;
  readonly #onTick = () => this.#start();
  #lastCallAt = performance.now();
  #reportedUsage: Usage | null = null;
  #writing: Promise<void> | null = null;
  #pausing: Promise<void> | null = null;
  #hurried = false;
  /** Events at the end of the queue that followers get with the terminal event. */
  #heldCount = 0;
  #scheduled: NodeJS.Immediate | null = null;
  #lingering: NodeJS.Timeout | null = null;
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

  /** Number of the event after the last one written. */
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

  /** @param withinMs longest wait for more events to share the write; 0 by default */
  add(event: NewEvent['event'], data: string, withinMs = 0): void {
    if (!this.#push(event, data)) return;
    if (this.#scheduled || (this.#writing && !this.#showing)) return;
    if (withinMs > 0) {
      this.#lingering ??= setTimeout(() => this.#showAndSchedule(), withinMs);
      return;
    }
    this.#scheduled = setImmediate(() => {
      this.#scheduled = null;
      this.#showAndSchedule();
    });
  }

  /** Adds the last event before `finish`. Followers get it with the terminal event if one write can take both. */
  addLast(event: NewEvent['event'], data: string): void {
    if (this.#push(event, data)) this.#heldCount = 1;
  }

  report(usage: Usage): boolean {
    if (this.#writing || this.#scheduled || this.#end || this.#closed) return false;
    // Report also while events wait for their pace: the answer says what the quotas still allow.
    if (this.#queue.events.length > 0 && !this.#pausing) return false;
    this.#writing = this.#report(usage);
    return true;
  }

  /** Resolves with true when all events added so far are in the log, with false when they cannot get there. */
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

  /** Like `flushed`, but does not wait for last events that `finish` can write along with the terminal event. */
  async almostFlushed(): Promise<boolean> {
    this.#show();
    await this.#writing;
    if (this.#lastEventsFit) return this.#end === null;
    this.#heldCount = 0;
    return this.flushed();
  }

  /** Makes all later writes ignore the pace: the inferlet has ended. */
  hurry(): void {
    this.#hurried = true;
  }

  /**
   * Writes the remaining events and then the terminal event; takes no more events. `write` gets the terminal event's number and that of the
   * log's last event. When `finish` throws, another call may still end the log.
   *
   * @param unwritten with it, `write` also gets the remaining events when they are few, and the number of the last event that followers
   *   were shown. It writes these events in the same step; it answers `unwritten` when the store refuses them.
   * @returns the answer of `write`, or null when `isAbandoned` returned true first. `unwritten` when events before the end could not be
   *   written; `end` then tells why.
   * @throws StoreError that `write` throws; `store-corrupt` when events before the end could not be written, for instance because the store
   *   lost events that the outbox no longer keeps. `SequenceGap` when the log has refused shown events and `write` takes no number after theirs.
   */
  async finish<T>(
    write: (seq: number, after: number, events: readonly NewEvent[], shown: number) => Promise<T>,
    unwritten?: T,
  ): Promise<T | null> {
    const endBefore = this.#end;
    let together = unwritten !== undefined;
    if (!together || !this.#lastEventsFit) this.#heldCount = 0;
    this.#show();
    this.close();
    for (;;) {
      while (this.#writing || (this.#queue.events.length > 0 && !(together && this.#lastEventsFit))) {
        this.#start();
        await this.#writing;
      }
      if (this.#end !== endBefore && this.#end !== 'lost') {
        if (unwritten !== undefined) return unwritten;
        throw new StoreError('store-corrupt', `The last events could not be written (${this.#end}).`, {
          cause: this.#cause,
        });
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
        // Extra events came from a call that the store refused midway: no other writer has this epoch.
        if (error.lastSeq < this.nextSeq - 1) this.#rewindOrStop(error.lastSeq);
        else if (this.#queue.events.length === 0) {
          // The next call would get the same numbers.
          if (error.lastSeq === this.nextSeq - 1) throw error;
          this.#queue.nextSeq = error.lastSeq + 1;
        }
        // The extra events may be among the remaining events: a separate write skips those that the log has.
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
    if (this.#scheduled) clearImmediate(this.#scheduled);
    if (this.#lingering) clearTimeout(this.#lingering);
    if (this.#checkTimer) clearTimeout(this.#checkTimer);
    this.#scheduled = null;
    this.#lingering = null;
    this.#checkTimer = null;
  }

  /** True when the terminal event's write can take the remaining events along: they are few, and followers are shown them. */
  get #lastEventsFit(): boolean {
    const areFew = this.#queue.events.length <= MAX_LAST_EVENTS && this.#queue.bytes <= MAX_LAST_BYTES;
    return areFew && this.#showing !== undefined && this.#end === null && this.#writing === null;
  }

  /** Shows and schedules the events that were added in this turn of the event loop. */
  #showAndSchedule(): void {
    if (this.#lingering) clearTimeout(this.#lingering);
    this.#lingering = null;
    this.#show();
    if (!this.#shows || this.#queue.bytes >= WRITE_NOW_BYTES) this.#start();
    else if (this.#queue.events.length > 0) this.#shows.ticks.add(this.#onTick);
  }

  /** Shows as many new events as the bounds allow. */
  #show(): void {
    if (!this.#showing || this.#end || this.#closed) return;
    const logged = this.nextSeq - 1;
    if (this.#lastShown < logged) {
      // Followers read logged events that were never shown from the log.
      this.#lastShown = logged;
      this.#showing.logged(logged);
    }
    const { oldestAt, endSeq } = this.#queue;
    if (oldestAt === undefined || performance.now() - oldestAt > MAX_UNLOGGED_MS) return;
    let remainingLength = MAX_SHOWN_LENGTH - lengthOf(this.#queue.between(logged, this.#lastShown));
    const events = this.#queue.between(this.#lastShown, Math.min(this.#maxShown, endSeq - 1 - this.#heldCount));
    const firstExcess = events.findIndex(({ data }) => {
      remainingLength -= data.length;
      return remainingLength < 0;
    });
    const shownEvents = firstExcess < 0 ? events : events.slice(0, firstExcess);
    if (shownEvents.length === 0) return;
    this.#showing.show(this.#lastShown + 1, shownEvents);
    this.#lastShown += shownEvents.length;
  }

  /** Queues an event; false when the log takes no more. */
  #push(event: NewEvent['event'], data: string): boolean {
    if (this.#end || this.#closed) return false;
    this.#heldCount = 0;
    this.#queue.push({ event, data });
    this.#usage?.mark();
    return true;
  }

  #unlogged(): Unlogged {
    const logged = this.nextSeq - 1;
    return { logged, events: this.#queue.between(logged, this.#lastShown) };
  }

  #start(check = false): void {
    if (this.#lingering) clearTimeout(this.#lingering);
    this.#lingering = null;
    // `#write` never ends before the assignment to `#writing`: it has work, so it awaits first.
    if (this.#writing || (this.#queue.events.length === 0 && !check)) return;
    if (!check && this.#pauseMs() > 0) this.#pausing ??= this.#pause();
    else this.#writing = this.#write(check);
  }

  async #write(check: boolean): Promise<void> {
    try {
      if (check) await this.#check();
      do {
        if (this.#queue.events.length > 0 && this.#pauseMs() === 0) await this.#writeBatch();
        else break;
      } while (!this.#shows || this.#queue.bytes >= WRITE_NOW_BYTES);
    } catch (cause) {
      this.#stop(cause instanceof QuotaExceeded ? 'over-quota' : 'broken', cause);
    } finally {
      // Clear `#writing` in the same step as the last check of the queue: an event added in between would rely on this write and stay queued.
      this.#writing = null;
      this.#tellWritten();
      this.#showAndSchedule();
      this.#scheduleCheck();
    }
  }

  #tellWritten(): void {
    for (const tell of this.#onWritten.splice(0)) tell();
  }

  /** Time for which the outbox must wait before its next write, by the pace. */
  #pauseMs(): number {
    if (this.#hurried || this.#closed || this.#end || this.#isAbandoned()) return 0;
    return this.#pace?.pauseMs() ?? 0;
  }

  /** Waits until the pace allows a write, and starts it. */
  async #pause(): Promise<void> {
    for (let ms = this.#pauseMs(); ms > 0; ms = this.#pauseMs()) await sleep(Math.min(ms, LONGEST_PAUSE_MS));
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
    // Usage covers the events that stay queued, too.
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
      const what = `The store has lost the events ${lastSeq + 1} to ${lostUpTo}, which it had acknowledged`;
      throw new StoreError('store-corrupt', `${what}, and the first of them are not kept any more.`);
    }
    this.#queue.unshift(lostEvents);
  }

  /** Like `#rewind`. When it throws, drops the queued events: followers have seen lost events under the numbers that the queued ones would get. */
  #rewindOrStop(lastSeq: number): void {
    try {
      this.#rewind(lastSeq);
    } catch (error) {
      this.#stop('broken', error);
      throw error;
    }
  }

  /** Checks that the log has every acknowledged event: without writes, nothing else detects a loss, and readers would wait forever. */
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

  /** Schedules a check for when the last write is `keepMs` old, while events are kept. */
  #scheduleCheck(): void {
    if (this.#checkTimer || this.#closed || this.#end || this.#keptEvents.newestAt === null) return;
    this.#checkTimer = setTimeout(() => {
      this.#checkTimer = null;
      const idleMs = performance.now() - (this.#keptEvents.newestAt ?? 0);
      // A later write has checked the log already.
      if (idleMs >= this.#keepMs) this.#start(true);
      else this.#scheduleCheck();
    }, this.#keepMs).unref();
  }

  #stop(end: OutboxEnd, cause?: unknown): void {
    this.#queue.clear();
    this.#tellWritten();
    // Keep the acknowledged events for a full log: writing its terminal event may reveal that the store lost events.
    if (end !== 'full' && end !== 'over-quota') this.#keptEvents.clear();
    if (this.#end) return;
    this.#end = end;
    this.#cause = cause;
    this.#onEnd(end, cause);
  }
}
