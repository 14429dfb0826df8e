import type { LiveSource } from '../live/live.ts';
import type { ChannelListener } from '../store/channels.ts';
import type { Feed } from './feed.ts';
import { FollowCursor, type LogRead, type WaitingBounds } from './follow.ts';
import { parseBegun, parseLive } from './live.ts';
import { ShownEvents } from './shown-events.ts';
import type { InvocationEvent, Position } from './types.ts';

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
