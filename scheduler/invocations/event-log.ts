import { setTimeout as sleep } from 'node:timers/promises';
import type { LiveSource } from '../live/live.ts';
import type { Channels } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';
import { Wakeup } from '../store/wakeup.ts';
import { FollowCursor, type WaitingEvents } from './follow.ts';
import { type Entry, parseBegun, parseEntries, parseLive } from './live.ts';
import { ShownEvents } from './shown-events.ts';
import { type EventName, hasEnded, type InvocationEvent, type InvocationStatus, isTerminal } from './types.ts';

/** Entries of one read. */
const READ_COUNT = 512;
/** Bytes of a follower's read, unless one event alone has more. A stalled reader keeps them in memory. */
const READ_BYTES = 64 * 1024;
const READ_EVENTS = loadScript(new URL('./scripts/read-events.lua', import.meta.url));
/** Interval at which an idle follower reads the log, since only the log is reliable; the live tail is a hint. */
const IDLE_READ_MS = 5000;
/** A follower gives up when Redis stays away this long, so that its client gets an error within 5 s. */
export const MAX_OUTAGE_MS = 4500;
const RETRY_MS = 100;
/** Pause between reads of a log whose runtime cannot be reached; doubles after each read without new events. */
const UNREACHED_READ_MS = { first: 100, most: 1000 };
/** Pause before another read of a log that lacks events which are about to be written. */
const EARLY_READ_MS = { first: 20, most: 250 };

/** Bounds on the events that a follower holds for its reader. */
export interface FollowHeld extends WaitingEvents {
  /** Entries of one read; 512 by default. */
  readonly readCount?: number;
}

interface SomeEvents {
  readonly events: InvocationEvent[];
  /** True when the log held no more events. */
  readonly complete: boolean;
  /** Status of the invocation; null when Redis has no record (any more). */
  readonly status: InvocationStatus | null;
  /** Runtime of the current attempt, if it shows events before they are in the log; else ''. */
  readonly runtime: string;
}

/**
 * The events of invocations: a stream to replay, and a live tail. The live tail comes from runtimes that show events, otherwise from a
 * Redis channel. The channel always carries terminal events and the platform's own events.
 */
export class EventLog {
  readonly #store: Store;
  readonly #channels: Channels;
  readonly #outageMs: number;
  readonly #live: LiveSource;

  /** @param outageMs how long a follower waits for Redis to come back. */
  constructor(store: Store, channels: Channels, live: LiveSource, outageMs = MAX_OUTAGE_MS) {
    this.#store = store;
    this.#channels = channels;
    this.#live = live;
    this.#outageMs = outageMs;
  }

  /** Reads up to `limit` events after number `afterSeq` (0 for the beginning). Empty for an unknown invocation. */
  async read(id: string, afterSeq: number, limit = READ_COUNT, deadlineMs?: number): Promise<InvocationEvent[]> {
    const entries = await this.#store.call(
      (redis) => redis.xrange(this.#store.keys.events(id), `${afterSeq + 1}-0`, '+', 'COUNT', limit),
      deadlineMs,
    );
    return parseEntries(entries, afterSeq).slice(0, limit);
  }

  /** The last event so far; null when the log is empty or gone. @throws StoreError */
  async last(id: string): Promise<InvocationEvent | null> {
    const entries = await this.#store.call((redis) =>
      redis.xrevrange(this.#store.keys.events(id), '+', '-', 'COUNT', 1),
    );
    return parseEntries(entries, 0).at(-1) ?? null;
  }

  /** The terminal event of an ended invocation, numbered `seq`; null when it is no longer kept. @throws StoreError */
  async terminal(id: string, seq: number): Promise<InvocationEvent | null> {
    const last = await this.last(id);
    if (last !== null && isTerminal(last.event)) return last;
    const outcome = await this.#store.call((redis) => redis.get(this.#store.keys.outcome(id)));
    if (outcome === null) return null;
    const space = outcome.indexOf(' ');
    return { seq, event: outcome.slice(0, space) as EventName, data: outcome.slice(space + 1) };
  }

  /**
   * Yields every event after `afterSeq` in order, without gap or duplicate: first the stored events, then the live ones. Ends after the
   * terminal event, or when the signal aborts. Waits out a short absence of Redis. When the events of an ended invocation are gone, yields
   * its terminal event alone, if that is still kept.
   *
   * @param held bounds on the events that this process holds for a stalled reader.
   * @throws StoreError `store-unavailable` when Redis stays away (4.5 s by default), `invalid-argument` when there is no such invocation or
   *   none of its events are kept.
   */
  async *follow(
    id: string,
    afterSeq: number,
    signal?: AbortSignal,
    { readCount = READ_COUNT, ...waiting }: FollowHeld = {},
  ): AsyncGenerator<InvocationEvent> {
    const cursor = new FollowCursor(afterSeq, waiting);
    const wakeup = new Wakeup();
    const interrupted = () => {
      cursor.interrupted();
      wakeup.set();
    };
    const shown = new ShownEvents(this.#live, id, cursor, wakeup);
    const stop = await this.#channels.listen(this.#store.keys.live(id), {
      message: (payload) => {
        const runtime = parseBegun(payload);
        if (runtime === null) cursor.live(parseLive(payload));
        else shown.begun(runtime);
        wakeup.set();
      },
      lost: interrupted,
      resumed: interrupted,
    });
    let [earlyMs, unreachedMs] = [EARLY_READ_MS.first, UNREACHED_READ_MS.first];
    try {
      while (!cursor.done && !signal?.aborted) {
        if (cursor.behind) {
          const [read, attempt] = [cursor.beginRead(), shown.attempt];
          const some = await this.#readThroughOutage(id, cursor.last, readCount, signal);
          if (signal?.aborted) return;
          if (attempt === shown.attempt) shown.begun(some.runtime);
          const isOpen = some.status !== null && !hasEnded(some.status);
          const end = some.events.length === 0 && !isOpen ? await this.#end(id, cursor.last) : null;
          if (end !== null) {
            yield* cursor.ended(end);
            return;
          }
          const isNew = some.events.length > 0;
          yield* cursor.replay(read, some.events, some.complete);
          earlyMs = isNew ? EARLY_READ_MS.first : Math.min(2 * earlyMs, EARLY_READ_MS.most);
          unreachedMs = isNew ? UNREACHED_READ_MS.first : Math.min(2 * unreachedMs, UNREACHED_READ_MS.most);
          if (cursor.isEarly && some.complete) await sleep(earlyMs);
        } else {
          yield* cursor.drain();
          if (cursor.done || cursor.behind) continue;
          const mostMs = shown.isOutOfReach ? unreachedMs : IDLE_READ_MS;
          if (!(await wakeup.wait(mostMs, signal))) cursor.interrupted();
        }
      }
    } finally {
      stop();
      shown.leave();
    }
  }

  /** Reads at least one entry after a number; stops once the entries have `limit` events or the bytes that a reader may hold. */
  async readSome(id: string, afterSeq: number, limit = READ_COUNT, deadlineMs?: number): Promise<SomeEvents> {
    const args = [afterSeq, limit, READ_BYTES];
    const { keys } = this.#store;
    const reply = await this.#store.script(READ_EVENTS, [keys.events(id), keys.invocation(id)], args, deadlineMs);
    const [complete, status, runtime, ...entries] = reply as [number, string, string, ...Entry[]];
    const events = parseEntries(entries, afterSeq);
    return { events, complete: complete === 1, status: status === '' ? null : (status as InvocationStatus), runtime };
  }

  async #readThroughOutage(
    id: string,
    afterSeq: number,
    readCount: number,
    signal: AbortSignal | undefined,
  ): Promise<SomeEvents> {
    const giveUpAt = performance.now() + this.#outageMs;
    for (;;) {
      const leftMs = giveUpAt - performance.now();
      try {
        return await this.readSome(id, afterSeq, readCount, Math.max(1, leftMs));
      } catch (error) {
        const stored = StoreError.from(error);
        if (signal?.aborted) return { events: [], complete: false, status: null, runtime: '' };
        if (stored.code !== 'store-unavailable' || leftMs <= RETRY_MS) throw stored;
        await sleep(RETRY_MS);
      }
    }
  }

  /**
   * The terminal event for a reader that finds no event after a number although the invocation has ended: the reader saw events that the
   * store lost, or the events are gone. Null while more events may come.
   */
  async #end(id: string, afterSeq: number): Promise<InvocationEvent | null> {
    const [status, ended] = await this.#store.call((redis) =>
      redis.hmget(this.#store.keys.invocation(id), 'status', 'seq'),
    );
    if (status == null) throw new StoreError('invalid-argument', `There is no invocation ${id} (any more).`);
    if (!hasEnded(status as InvocationStatus)) return null;
    const seq = Number(ended);
    const last = await this.terminal(id, seq);
    if (last === null) throw new StoreError('invalid-argument', `The events of ${id} are not kept any more.`);
    // The invocation may have ended after the caller's read, so read the log once more.
    if (seq > afterSeq && (await this.read(id, afterSeq, 1)).length > 0) return null;
    return last;
  }
}
