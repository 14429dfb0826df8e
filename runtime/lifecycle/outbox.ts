import { setTimeout as sleep } from 'node:timers/promises';
import { SHOWN_AHEAD } from '#scheduler/invocations/appends.ts';
import type { AppendOutcome, InvocationEvent, NewEvent, Usage } from '#scheduler/invocations/types.ts';
import type { Showing, Unlogged } from '#scheduler/live/server.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import { SequenceGap, StoreError } from '#scheduler/store/errors.ts';
import type { EventSink } from '../host/session-state.ts';
import { costOfEvents } from './event-pace.ts';
import { KeptEvents } from './outbox-kept.ts';
import type { AttemptLog, MarkedUsage, OutboxEnd, OutboxOptions, Shows } from './outbox-options.ts';
import type { Reporting } from './usage-reports.ts';

const RETRY_MS = [20, 50, 100, 200, 400] as const;
/** Bytes of one call to the store, which others wait for. */
const MAX_BATCH_BYTES = 128 << 10;
/** Events of one call: the store takes so many in one step, with the usage of the last. */
const MAX_BATCH_EVENTS = 1000;
/** What waits for its tick is written at once when it has so many bytes. */
const WRITE_NOW_BYTES = 64 << 10;
/** Characters of shown events that are not in the log: more is read from there, and so is an event that alone has more. */
const MAX_SHOWN_LENGTH = 64 << 10;
/** Nothing more is shown while the oldest event that is not in the log is older: a runtime that dies takes no more with it. */
const MAX_UNLOGGED_MS = 250;
/** Longest pause before it looks again whether it may write, or is closed. */
const LONGEST_PAUSE_MS = 50;
const KEEP_MS = 5000;
const KEEP_BYTES = 2 << 20;

/**
 * The events of one attempt on their way to the event log: in order, numbered, those of some time in one call, one call at a time. Followers are
 * shown them in the same turn of the event loop, up to `SHOWN_AHEAD` events and 250 ms before the log has them. When the store cannot be reached the call is repeated until it can; numbers make that idempotent. Acknowledged events are kept
 * until they are on disk: when the log turns out to have lost some, it gets them again, under their numbers, before anything else.
 */
export class Outbox implements EventSink, Reporting {
  readonly #log: AttemptLog;
  readonly #onEnd: OutboxOptions['onEnd'];
  readonly #usage: MarkedUsage | undefined;
  readonly #pace: OutboxOptions['pace'];
  readonly #abandoned: () => boolean;
  readonly #keepMs: number;
  readonly #kept: KeptEvents;
  #nextSeq: number;
  #queue: NewEvent[] = [];
  /** Events of the call that is on its way, which come before the queue's. */
  #flying: readonly NewEvent[] = [];
  /** When each event of the queue was added, and the oldest of those that are on their way. */
  #queuedAt: number[] = [];
  #flyingSince = 0;
  /** Called when a write has ended. */
  #onWritten: (() => void)[] = [];
  readonly #shows: Shows | undefined;
  readonly #showing: Showing | undefined;
  /** Numbers of the last event that was shown, and of the last one that may be. */
  #shown: number;
  #mayShow: number;
  readonly #onTick = () => this.#start();
  #spokeAt = performance.now();
  #told: Usage | null = null;
  #pendingBytes = 0;
  #writing: Promise<void> | null = null;
  #pausing: Promise<void> | null = null;
  #hurried = false;
  #scheduled: NodeJS.Immediate | null = null;
  #lingering: NodeJS.Timeout | null = null;
  #checkTimer: NodeJS.Timeout | null = null;
  #end: OutboxEnd | null = null;
  #cause: unknown;
  #closed = false;

  constructor(nextSeq: number, log: AttemptLog, options: OutboxOptions) {
    this.#nextSeq = nextSeq;
    this.#log = log;
    this.#shown = nextSeq - 1;
    this.#mayShow = this.#shown + SHOWN_AHEAD;
    this.#shows = options.shows;
    this.#showing = options.shows?.begin(() => this.#unlogged());
    this.#onEnd = options.onEnd;
    this.#usage = options.usage;
    this.#pace = options.pace;
    this.#abandoned = options.abandoned ?? (() => false);
    this.#keepMs = options.keepMs ?? KEEP_MS;
    this.#kept = new KeptEvents(this.#keepMs, options.keepBytes ?? KEEP_BYTES);
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  get spokeAt(): number {
    return this.#spokeAt;
  }

  get told(): Usage | null {
    return this.#told;
  }

  /** Number of the event after the last one written. */
  get nextSeq(): number {
    return this.#nextSeq;
  }

  /** Why the log takes nothing more, or null. */
  get end(): OutboxEnd | null {
    return this.#end;
  }

  /** The error that ended it, if one did. */
  get cause(): unknown {
    return this.#cause;
  }

  /** @param withinMs it may wait so long for others to be written with; not at all by default */
  add(event: NewEvent['event'], data: string, withinMs = 0): void {
    if (this.#end || this.#closed) return;
    this.#queue.push({ event, data });
    this.#queuedAt.push(performance.now());
    this.#usage?.mark();
    this.#pendingBytes += data.length;
    if (this.#scheduled || (this.#writing && !this.#showing)) return;
    if (withinMs > 0) {
      this.#lingering ??= setTimeout(() => this.#turn(), withinMs);
      return;
    }
    this.#scheduled = setImmediate(() => {
      this.#scheduled = null;
      this.#turn();
    });
  }

  report(usage: Usage): boolean {
    if (this.#writing || this.#scheduled || this.#end || this.#closed) return false;
    // What quotas have room for must be known also while events wait for their pace.
    if (this.#queue.length > 0 && !this.#pausing) return false;
    this.#writing = this.#report(usage);
    return true;
  }

  /** Resolves when everything added so far is in the log; false when it can never be. */
  async flushed(atOnce = true): Promise<boolean> {
    if (!atOnce) {
      const until = this.#nextSeq + this.#flying.length + this.#queue.length;
      while (!this.#end && !this.#closed && this.#nextSeq < until) {
        await new Promise<void>((resolve) => this.#onWritten.push(resolve));
      }
      return this.#nextSeq >= until;
    }
    this.#show();
    while (!this.#end && (this.#queue.length > 0 || this.#writing)) {
      if (!this.#writing) this.#start();
      await (this.#writing ?? this.#pausing);
    }
    return this.#end === null;
  }

  /** From here on it waits for no pace: its inferlet has ended. */
  hurry(): void {
    this.#hurried = true;
  }

  /**
   * Writes what is left and then the end: `write` gets the number of the terminal event, and that of the log's last one. Takes nothing more. When it throws, the log may be
   * ended all the same, by another call.
   *
   * @returns what `write` answered, or null when this was abandoned before.
   * @throws StoreError that `write` throws; `store-corrupt` when events before the end could not be written, for instance because the store
   *   has lost some that are not kept any more.
   */
  async finish<T>(write: (seq: number, after: number) => Promise<T>): Promise<T | null> {
    const endBefore = this.#end;
    this.#show();
    this.close();
    for (;;) {
      while (this.#writing || this.#queue.length > 0) {
        this.#start();
        await this.#writing;
      }
      if (this.#end !== endBefore && this.#end !== 'lost') {
        throw new StoreError('store-corrupt', `The last events could not be written (${this.#end}).`, {
          cause: this.#cause,
        });
      }
      try {
        return await this.#answered(() => write(Math.max(this.#nextSeq, this.#shown + 1), this.#nextSeq - 1));
      } catch (error) {
        if (!(error instanceof SequenceGap)) throw error;
        // A call that the store refused in its middle has put events there: nobody else writes in this epoch.
        if (error.lastSeq >= this.#nextSeq) this.#nextSeq = error.lastSeq + 1;
        else this.#rewind(error.lastSeq);
      }
    }
  }

  /** Takes nothing more. What is left is written by `finish`, or not at all. */
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

  /** What was added in a turn of the event loop is there. */
  #turn(): void {
    if (this.#lingering) clearTimeout(this.#lingering);
    this.#lingering = null;
    this.#show();
    if (!this.#shows || this.#pendingBytes >= WRITE_NOW_BYTES) this.#start();
    else if (this.#queue.length > 0) this.#shows.ticks.add(this.#onTick);
  }

  /** Shows what has not been shown, as far as it may be. */
  #show(): void {
    if (!this.#showing || this.#end || this.#closed) return;
    const logged = this.#nextSeq - 1;
    if (this.#shown < logged) {
      // What is in the log and was shown to nobody is read there.
      this.#shown = logged;
      this.#showing.logged(logged);
    }
    const oldestAt = this.#flying.length > 0 ? this.#flyingSince : this.#queuedAt[0];
    if (oldestAt === undefined || performance.now() - oldestAt > MAX_UNLOGGED_MS) return;
    let room = MAX_SHOWN_LENGTH - lengthOf(this.#after(logged, this.#shown));
    const events = this.#after(this.#shown, this.#mayShow);
    const tooMuch = events.findIndex(({ data }) => {
      room -= data.length;
      return room < 0;
    });
    const shown = tooMuch < 0 ? events : events.slice(0, tooMuch);
    if (shown.length === 0) return;
    this.#showing.show(this.#shown + 1, shown);
    this.#shown += shown.length;
  }

  #unlogged(): Unlogged {
    const logged = this.#nextSeq - 1;
    const events = this.#after(logged, this.#shown);
    return { logged, events: events.map((event, i): InvocationEvent => ({ ...event, seq: this.#nextSeq + i })) };
  }

  /** Events that the log does not have: those with numbers above one and up to another. */
  #after(seq: number, upTo: number): readonly NewEvent[] {
    const [from, to] = [seq + 1 - this.#nextSeq, upTo + 1 - this.#nextSeq].map((place) => Math.max(0, place)) as [
      number,
      number,
    ];
    const flying = this.#flying.length;
    const waiting = this.#queue.slice(Math.max(0, from - flying), Math.max(0, to - flying));
    return from < flying ? [...this.#flying.slice(from, to), ...waiting] : waiting;
  }

  #start(check = false): void {
    if (this.#lingering) clearTimeout(this.#lingering);
    this.#lingering = null;
    // What a write begins with is there: it never ends before it has been noted down.
    if (this.#writing || (this.#queue.length === 0 && !check)) return;
    if (!check && this.#pauseMs() > 0) this.#pausing ??= this.#pause();
    else this.#writing = this.#write(check);
  }

  async #write(check: boolean): Promise<void> {
    try {
      if (check) await this.#check();
      do {
        if (this.#queue.length > 0 && this.#pauseMs() === 0) await this.#writeBatch();
        else break;
      } while (!this.#shows || this.#pendingBytes >= WRITE_NOW_BYTES);
    } catch (cause) {
      this.#stop(cause instanceof QuotaExceeded ? 'over-quota' : 'broken', cause);
    } finally {
      // In the same step as the last look at the queue: an event added between the two would count on this write, and stay behind.
      this.#writing = null;
      this.#tellWritten();
      this.#turn();
      this.#scheduleCheck();
    }
  }

  #tellWritten(): void {
    for (const tell of this.#onWritten.splice(0)) tell();
  }

  /** How long its pace has it wait before the next events. */
  #pauseMs(): number {
    if (this.#hurried || this.#closed || this.#end || this.#abandoned()) return 0;
    return this.#pace?.pauseMs() ?? 0;
  }

  /** Waits until it may write, and begins. */
  async #pause(): Promise<void> {
    for (let ms = this.#pauseMs(); ms > 0; ms = this.#pauseMs()) await sleep(Math.min(ms, LONGEST_PAUSE_MS));
    this.#pausing = null;
    if (!this.#closed) this.#start();
  }

  /** One try: there is more to tell soon. */
  async #report(usage: Usage): Promise<void> {
    try {
      this.#spokeAt = performance.now();
      const outcome = await this.#log.report(usage);
      if (outcome === 'ok') this.#told = usage;
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
    const { batch, bytes } = this.#takeBatch();
    const firstSeq = this.#nextSeq;
    this.#flying = batch;
    this.#flyingSince = this.#queuedAt.splice(0, batch.length)[0] ?? performance.now();
    this.#pace?.spend(costOfEvents(batch.length, bytes));
    // Of a batch that leaves some behind, it is that of what waits as well.
    const usage = this.#usage?.marked();
    const sentAt = performance.now();
    let outcome: AppendOutcome | null;
    try {
      outcome = await this.#answered(() => this.#log.append(firstSeq, batch, usage));
    } catch (error) {
      this.#flying = [];
      if (!(error instanceof SequenceGap)) throw error;
      this.#requeue(batch);
      if (error.lastSeq < firstSeq - 1) this.#rewind(error.lastSeq);
      return;
    }
    this.#flying = [];
    this.#pendingBytes -= bytes;
    if (outcome === 'ok') {
      this.#nextSeq += batch.length;
      this.#mayShow = Math.max(this.#mayShow, this.#nextSeq - 1 + SHOWN_AHEAD);
      this.#spokeAt = performance.now();
      this.#told = usage ?? this.#told;
      this.#kept.confirm(sentAt);
      this.#kept.add(firstSeq, batch, performance.now());
    } else this.#stop(outcome === 'full' ? 'full' : 'lost');
  }

  #takeBatch(): { batch: NewEvent[]; bytes: number } {
    let bytes = 0;
    let count = 0;
    for (const { data } of this.#queue) {
      if (count === MAX_BATCH_EVENTS || (count > 0 && bytes + data.length > MAX_BATCH_BYTES)) break;
      bytes += data.length;
      count++;
    }
    return { batch: this.#queue.splice(0, count), bytes };
  }

  /** The log ends with `lastSeq`: what it lost is written again, before what waits. Throws when that is not kept. */
  #rewind(lastSeq: number): void {
    const lostUpTo = this.#nextSeq - 1;
    // Also when it throws: a terminal event fits there.
    this.#nextSeq = lastSeq + 1;
    const lost = this.#kept.takeAfter(lastSeq);
    if (lost === null) {
      this.#kept.clear();
      const what = `The store has lost the events ${lastSeq + 1} to ${lostUpTo}, which it had acknowledged`;
      throw new StoreError('store-corrupt', `${what}, and the first of them are not kept any more.`);
    }
    this.#pendingBytes += lengthOf(lost);
    this.#requeue(lost);
  }

  /** Events that were taken from the queue, or are older, come before what waits. */
  #requeue(events: readonly NewEvent[]): void {
    this.#queue = events.concat(this.#queue);
    const now = performance.now();
    this.#queuedAt = events.map(() => now).concat(this.#queuedAt);
  }

  /** Has the log what it acknowledged? While nothing is written nobody else would notice, and readers would wait for what is lost. */
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
    else if (lastSeq < this.#nextSeq - 1) this.#rewind(lastSeq);
    else this.#kept.confirm(sentAt);
  }

  /** While events are kept, a check follows on the last write once it is old enough. */
  #scheduleCheck(): void {
    if (this.#checkTimer || this.#closed || this.#end || this.#kept.newestAt === null) return;
    this.#checkTimer = setTimeout(() => {
      this.#checkTimer = null;
      const idleMs = performance.now() - (this.#kept.newestAt ?? 0);
      // Writes that came since have told as much.
      if (idleMs >= this.#keepMs) this.#start(true);
      else this.#scheduleCheck();
    }, this.#keepMs).unref();
  }

  /** The answer to a call, which is repeated while the store cannot be reached; null when that was abandoned. */
  async #answered<T>(call: () => Promise<T>): Promise<T | null> {
    for (let attempt = 0; ; attempt++) {
      if (this.#abandoned()) return null;
      try {
        return await call();
      } catch (error) {
        if (StoreError.from(error).code !== 'store-unavailable') throw error;
        const pauseMs = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)] ?? 400;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
  }

  #stop(end: OutboxEnd, cause?: unknown): void {
    this.#queue = [];
    this.#queuedAt = [];
    this.#pendingBytes = 0;
    this.#tellWritten();
    // The end of a full log may find that the store has lost some of it.
    if (end !== 'full' && end !== 'over-quota') this.#kept.clear();
    if (this.#end) return;
    this.#end = end;
    this.#cause = cause;
    this.#onEnd(end, cause);
  }
}

const lengthOf = (events: readonly NewEvent[]): number => events.reduce((sum, { data }) => sum + data.length, 0);
