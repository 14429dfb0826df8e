import type { LiveFollower, LiveSource, Unfollow } from '../live/live.ts';
import type { ChannelListener, Channels } from '../store/channels.ts';
import type { Feed } from './feed.ts';
import { FollowCursor, type LogRead, type WaitingBounds } from './follow.ts';
import type { EventName, InvocationEvent, Position } from './types.ts';

/** Interval at which an idle follower reads the log, since only the log is reliable; the live tail is a hint. */
const IDLE_READ_MS = 5000;
/** Pause between reads of a log whose runtime cannot be reached; doubles after each read without new events. */
const UNREACHED_READ_MS = { first: 100, max: 1000 };
/** Pause before another read of a log that lacks announced events, which are about to be written; doubles likewise. */
const EARLY_READ_MS = { first: 20, max: 250 };

/** Bounds on the events that a follower holds for its reader. */
export interface FollowBounds extends WaitingBounds {
  /** Events after which one read ends; 512 by default. */
  readonly readCount?: number;
  /** Reads of the log wait for their turn among the reads of this tenant (`LogReads`). All readers that name no tenant count as one tenant. */
  readonly tenant?: string;
}

export interface FollowOptions extends FollowBounds {
  /** Runs before the first read; its failure is the failure of the feed. A feed that starts without a read skips it. */
  readonly before?: (() => Promise<void>) | undefined;
}

/** One read of a log for a follower. */
export interface FollowerRead extends LogRead {
  /** Runtime of the current attempt, if it shows events before they are in the log; else ''. */
  readonly runtime: string;
  /** The terminal event, when the log holds no event after the reader's position and the invocation has ended. */
  readonly end: InvocationEvent | null;
}

/** The connections of a follower. */
export interface FollowerSources {
  readonly live: LiveSource;
  /** Listens for the beginnings of attempts, terminal events and the platform's own events. */
  readonly listen: (listener: ChannelListener) => Promise<() => void>;
  /** True when this process submitted the invocation, so that the follower listens from the submission on. */
  readonly isOwn: boolean;
  /** Called when the follower closes, perhaps before it listens. */
  readonly closed?: (() => void) | undefined;
  /** See `FollowOptions`. */
  readonly before: (() => Promise<void>) | undefined;
  /** Reads the log, and waits out a short absence of Redis. @throws StoreError */
  readonly read: (after: Position, isOver: () => boolean) => Promise<FollowerRead>;
}

/**
 * The events of one invocation for one reader: stored events, then live ones, in order, without duplicate, and with gaps only where the
 * log has them. Ends after the terminal event. Live events of one turn of the event loop arrive together.
 *
 * The follower reads the log only for a reader that has taken all earlier events, because a read may return an event of several megabytes. While
 * a reader stalls, the follower therefore holds at most the events of one read, and the live events that its bounds allow.
 */
export class Follower implements Feed<InvocationEvent> {
  readonly #sources: FollowerSources;
  readonly #onReady: () => void;
  readonly #cursor: FollowCursor;
  readonly #shownEvents: ShownEvents;
  readonly #onChange = () => {
    this.#turnImmediate ??= setImmediate(() => this.#endTurn());
  };
  /** `beginning` until the follower listens. An earlier read of the log could miss an event that is written between the read and the listening. */
  #state: 'new' | 'beginning' | 'following' | 'ended' = 'new';
  #failure: { readonly error: unknown } | null = null;
  /** Events of the last read that the reader has not taken. */
  #readEvents: InvocationEvent[] = [];
  #isReading = false;
  /** True when the last `take` found no event. */
  #isAwaited = false;
  #turnImmediate: NodeJS.Immediate | undefined;
  /** Ends the pause before the next read, or lets an idle follower read the log. */
  #timer: NodeJS.Timeout | undefined;
  #timerMs = 0;
  /** True while the timer delays the next read of a log that lacks announced events. */
  #isPaused = false;
  #earlyMs = EARLY_READ_MS.first;
  #unreachedMs = UNREACHED_READ_MS.first;
  #stopListening: () => void = () => undefined;

  /** @param ready see `OpenFeed` */
  constructor(id: string, after: Position, sources: FollowerSources, ready: () => void, waiting: WaitingBounds = {}) {
    this.#sources = sources;
    this.#onReady = ready;
    this.#cursor = new FollowCursor(sources.isOwn ? null : after, waiting);
    this.#shownEvents = new ShownEvents(sources.live, id, this.#cursor, this.#onChange, sources.isOwn);
  }

  /** @throws StoreError `store-unavailable`, `invalid-argument`; see `EventLog.feed` */
  take(): InvocationEvent[] | null {
    if (this.#state === 'new') {
      this.#state = 'beginning';
      this.#isAwaited = true;
      void this.#begin();
      return [];
    }
    const events = this.#readEvents.length > 0 ? this.#readEvents : this.#cursor.drain();
    this.#readEvents = [];
    this.#isAwaited = events.length === 0;
    if (this.#cursor.isDone) this.close();
    if (events.length > 0) {
      // Do not restart the timer after an empty answer: a reader that asks often would postpone the idle read forever.
      if (!this.#isPaused) this.#timer?.refresh();
      this.#proceed();
      return events;
    }
    if (this.#failure) throw this.#failure.error;
    if (this.#state === 'ended') return null;
    this.#proceed();
    return [];
  }

  close(): void {
    this.#state = 'ended';
    clearTimeout(this.#timer);
    clearImmediate(this.#turnImmediate);
    [this.#timer, this.#turnImmediate] = [undefined, undefined];
    this.#stopListening();
    this.#stopListening = () => undefined;
    this.#shownEvents.leave();
    this.#sources.closed?.();
  }

  async #begin(): Promise<void> {
    const onInterruption = () => {
      this.#cursor.interrupted();
      this.#onChange();
    };
    try {
      await this.#sources.before?.();
      if (this.#isOver()) return;
      const stop = await this.#sources.listen({
        message: (payload) => {
          const runtime = parseBegun(payload);
          if (runtime === null) this.#cursor.addLive(parseLive(payload));
          else this.#shownEvents.setRuntime(runtime, true);
          this.#onChange();
        },
        lost: onInterruption,
        resumed: onInterruption,
      });
      if (this.#isOver()) {
        stop();
        return;
      }
      this.#stopListening = stop;
      this.#state = 'following';
      this.#proceed();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Calls `ready` once for all events that came in this turn of the event loop. */
  #endTurn(): void {
    this.#turnImmediate = undefined;
    this.#proceed();
    if (this.#readEvents.length > 0 || this.#cursor.hasWaiting || this.#state === 'ended') this.#onReady();
  }

  /**
   * Reads the log when only the log can supply the next events and the reader waits for them. Starts the timer of the
   * next idle read when no events wait.
   */
  #proceed(): void {
    if (this.#state !== 'following' || this.#isReading || this.#isPaused || this.#readEvents.length > 0) return;
    if (this.#cursor.isBehind) {
      if (this.#isAwaited) void this.#readLog();
    } else if (!this.#cursor.hasWaiting)
      this.#startTimer(this.#shownEvents.isOutOfReach ? this.#unreachedMs : IDLE_READ_MS);
  }

  async #readLog(): Promise<void> {
    this.#isReading = true;
    const [readMark, changes] = [this.#cursor.beginRead(), this.#shownEvents.runtimeChanges];
    try {
      const read = await this.#sources.read(this.#cursor.position, () => this.#isOver());
      this.#isReading = false;
      if (this.#isOver()) return;
      if (changes === this.#shownEvents.runtimeChanges) this.#shownEvents.setRuntime(read.runtime);
      if (read.end) {
        this.#readEvents = this.#cursor.ended(read.end);
        this.close();
      } else this.#replay(readMark, read);
      this.#onChange();
    } catch (error) {
      this.#isReading = false;
      this.#fail(error);
    }
  }

  #replay(mark: number, read: LogRead): void {
    this.#readEvents = this.#cursor.replay(mark, read);
    const isNew = this.#readEvents.length > 0;
    this.#earlyMs = isNew ? EARLY_READ_MS.first : Math.min(2 * this.#earlyMs, EARLY_READ_MS.max);
    this.#unreachedMs = isNew ? UNREACHED_READ_MS.first : Math.min(2 * this.#unreachedMs, UNREACHED_READ_MS.max);
    if (!this.#cursor.awaitsAnnounced || !read.complete) return;
    // Events that were announced are about to be written: read again soon, but not at once.
    this.#isPaused = true;
    this.#startTimer(this.#earlyMs);
  }

  /** Starts the timer, unless it runs with this length. */
  #startTimer(ms: number): void {
    if (this.#timer && this.#timerMs === ms) return;
    clearTimeout(this.#timer);
    this.#timerMs = ms;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#cursor.hasWaiting) return;
      // An idle read: the live tail may have lost events, and `interrupted` makes `#proceed` read the log.
      if (!this.#isPaused) this.#cursor.interrupted();
      this.#isPaused = false;
      this.#proceed();
    }, ms);
  }

  #fail(error: unknown): void {
    if (this.#isOver()) return;
    this.#failure = { error };
    this.close();
    this.#onReady();
  }

  #isOver(): boolean {
    return this.#state === 'ended';
  }
}

/** Passes to a follower's cursor the events that the invocation's runtime shows. */
export class ShownEvents {
  readonly #source: LiveSource;
  readonly #id: string;
  readonly #cursor: FollowCursor;
  readonly #onChange: () => void;
  #runtime = '';
  #isAttached = false;
  #runtimeChanges = 0;
  readonly #isOwn: boolean;
  #stop: Unfollow = () => undefined;

  /**
   * @param onChange called after events came, and when the runtime comes into or out of reach
   * @param isOwn true when this process submitted the invocation by its `Submitter`
   */
  constructor(source: LiveSource, id: string, cursor: FollowCursor, onChange: () => void, isOwn: boolean) {
    this.#isOwn = isOwn;
    this.#source = source;
    this.#id = id;
    this.#cursor = cursor;
    this.#onChange = onChange;
  }

  /** Number of changes of the invocation's runtime. A read of the log that began at a smaller number names an outdated runtime. */
  get runtimeChanges(): number {
    return this.#runtimeChanges;
  }

  /** True when a runtime shows events but cannot be reached. */
  get isOutOfReach(): boolean {
    return this.#runtime !== '' && !this.#isAttached;
  }

  /**
   * Takes the id of the invocation's runtime; '' when no runtime runs the invocation, or its runtime shows no events.
   *
   * @param isAnnounced true when a message told of the runtime, false when a read of the log did
   */
  setRuntime(runtime: string, isAnnounced = false): void {
    if (runtime === this.#runtime) return;
    this.leave();
    this.#runtime = runtime;
    this.#runtimeChanges += 1;
    if (runtime === '') return;
    const follower: LiveFollower = {
      attached: (logged) => {
        this.#isAttached = true;
        this.#cursor.noteKnown(logged);
        this.#onChange();
      },
      events: (events) => {
        this.#cursor.addLive(events);
        this.#onChange();
      },
      lost: () => {
        this.#isAttached = false;
        this.#onChange();
      },
    };
    // A runtime that announces an attempt pushes its events, unasked, to the process that submitted the invocation. The follower relies on this
    // only for its first attempt, because leaving that attempt may have stopped the pushing. For a later attempt, and for one that only a read of
    // the log has named, the source asks for the events.
    const isPushed = this.#isOwn && isAnnounced && this.#runtimeChanges === 1;
    this.#stop = this.#source.follow(runtime, this.#id, follower, isPushed);
  }

  /** Stops following the runtime, and tells the source whether the cursor has handed out the terminal event. */
  leave(): void {
    this.#stop(this.#cursor.isDone);
    this.#stop = () => undefined;
    this.#runtime = '';
    this.#isAttached = false;
  }
}

/** Events of one live message. It has `<epoch>-<number>`, event and data of each event, all separated by NUL, which JSON text never contains. */
export function parseLive(payload: Buffer): readonly InvocationEvent[] {
  const known = parsedEvents.get(payload);
  if (known) return known;
  const parts = payload.toString('utf8').split('\0');
  const events: InvocationEvent[] = [];
  for (let i = 0; i + 2 < parts.length; i += 3) {
    const [epoch, seq] = (parts[i] ?? '').split('-');
    events.push({
      seq: Number(seq),
      epoch: Number(epoch),
      event: parts[i + 1] as EventName,
      data: parts[i + 2] ?? '',
    });
  }
  parsedEvents.set(payload, events);
  return events;
}

/** Parsed events of messages that are still in use: all followers of an invocation get the same message, and only the first one parses it. */
const parsedEvents = new WeakMap<Buffer, readonly InvocationEvent[]>();

/** Beginning of the message that announces an attempt; the id of its runtime follows. */
const BEGUN = Buffer.from('0\0begun\0');

/** The runtime that a message announces: it begins an attempt whose events it shows itself. Null for a message that holds events. */
export function parseBegun(payload: Buffer): string | null {
  return payload.subarray(0, BEGUN.length).equals(BEGUN) ? payload.toString('utf8', BEGUN.length) : null;
}

/** An entry of the stream, `[<number of its last event>-<epoch>, ['e', event, 'd', data, …]]`. */
export type Entry = readonly [id: string, fields: readonly string[]];

/** Texts in an entry for each event: `e`, the event, `d` and the data. */
const TEXTS_PER_EVENT = 4;

/** The events of the entries, without those up to number `afterSeq`. */
export function parseEntries(entries: readonly Entry[], afterSeq: number): InvocationEvent[] {
  const events: InvocationEvent[] = [];
  for (const [id, fields] of entries) {
    const [last, epoch] = id.split('-').map(Number) as [number, number];
    const first = last + 1 - fields.length / TEXTS_PER_EVENT;
    for (let i = 0; i < fields.length; i += TEXTS_PER_EVENT) {
      const seq = first + i / TEXTS_PER_EVENT;
      if (seq > afterSeq) events.push({ seq, epoch, event: fields[i + 1] as EventName, data: fields[i + 3] ?? '' });
    }
  }
  return events;
}

/** Maximum invocations whose followers do not listen yet. Beyond it, the follower of the oldest one reads the log. */
const MAX_EXPECTED = 16_384;
/** Maximum bytes that are kept for an invocation whose follower does not listen yet; beyond them, the follower reads the log. */
const MAX_KEPT_BYTES = 4096;

/** An invocation of this process whose follower does not listen yet. A follower reads the invocation's events for a client. */
interface Expected {
  /** True once a follower has claimed the invocation. */
  isClaimed: boolean;
  /** Messages that have come so far; null when this process has missed or dropped some. */
  keptMessages: Buffer[] | null;
  keptBytes: number;
}

/**
 * One channel for all invocations that this process submits and follows. The process listens on the channel before it submits an invocation, so
 * it gets every message of the invocation. The invocation's follower therefore needs no subscription of its own, and need not read the log first.
 */
export class Submitter {
  /** Name of the channel. */
  readonly name: string;
  readonly #channels: Pick<Channels, 'listen'>;
  readonly #expected = new Map<string, Expected>();
  readonly #listeners = new Map<string, ChannelListener>();
  #state: 'closed' | 'opening' | 'open' = 'closed';

  constructor(channels: Pick<Channels, 'listen'>, name: string) {
    this.#channels = channels;
    this.name = name;
  }

  /** Number of invocations whose followers do not listen yet. */
  get expected(): number {
    return this.#expected.size;
  }

  /**
   * Keeps the messages of an invocation that is about to be submitted, until its follower listens. Returns false while
   * the channel is not open; the first call opens it.
   */
  expect(id: string): boolean {
    if (this.#state === 'closed') this.#open();
    if (this.#state !== 'open') return false;
    this.#expected.set(id, { isClaimed: false, keptMessages: [], keptBytes: 0 });
    const [oldest] = this.#expected.keys();
    if (this.#expected.size > MAX_EXPECTED && oldest !== undefined) this.#expected.delete(oldest);
    return true;
  }

  /** Forgets an invocation that was not submitted, or whose follower left before it listened. */
  forget(id: string): void {
    this.#expected.delete(id);
  }

  /**
   * Claims an invocation for its follower. Returns `listen`, which the follower calls at once or later. The call of
   * `listen` returns `stop`, which ends the listening. Returns null for an invocation that `expect` was not called for,
   * that was forgotten, or that another follower has claimed.
   */
  claim(id: string): ((listener: ChannelListener) => () => void) | null {
    const expected = this.#expected.get(id);
    if (!expected || expected.isClaimed) return null;
    expected.isClaimed = true;
    const listen = (listener: ChannelListener) => {
      // An invocation that was forgotten since the claim has lost its messages.
      const keptMessages = this.#expected.delete(id) ? expected.keptMessages : null;
      this.#listeners.set(id, listener);
      // `resumed` makes the follower read the log.
      if (keptMessages === null) listener.resumed();
      else for (const payload of keptMessages) listener.message(payload);
      const stop = () => {
        this.#listeners.delete(id);
      };
      return stop;
    };
    return listen;
  }

  #open(): void {
    this.#state = 'opening';
    const listening = this.#channels.listen(this.name, {
      message: (payload) => this.#deliver(payload),
      lost: () => this.#interrupt((listener) => listener.lost?.()),
      resumed: () => this.#interrupt((listener) => listener.resumed()),
    });
    listening.then(
      () => {
        this.#state = 'open';
      },
      () => {
        this.#state = 'closed';
      },
    );
  }

  /** Called when messages may be missing. Tells the followers that listen, and makes the others begin with a read of the log. */
  #interrupt(tell: (listener: ChannelListener) => void): void {
    for (const expected of this.#expected.values()) expected.keptMessages = null;
    for (const listener of [...this.#listeners.values()]) tell(listener);
  }

  /** @param payload `<invocation id>\0<message>`, as log.lua sends it */
  #deliver(payload: Buffer): void {
    const end = payload.indexOf(0);
    const id = payload.toString('utf8', 0, end);
    const message = payload.subarray(end + 1);
    const listener = this.#listeners.get(id);
    if (listener) {
      listener.message(message);
      return;
    }
    const expected = this.#expected.get(id);
    if (!expected?.keptMessages) return;
    expected.keptBytes += payload.length;
    if (expected.keptBytes > MAX_KEPT_BYTES) expected.keptMessages = null;
    else expected.keptMessages.push(message);
  }
}
