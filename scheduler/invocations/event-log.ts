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
/** Bytes of one read of a follower, unless one event alone has more: its reader may stand still for long. */
const READ_BYTES = 64 * 1024;
const READ_EVENTS = loadScript(new URL('./scripts/read-events.lua', import.meta.url));
/** A follower that hears nothing looks at the log this often: the live tail is a hint, the log is the truth. */
const IDLE_READ_MS = 5000;
/** A follower gives up when Redis stays away this long, so that its client hears of it within 5 s. */
export const MAX_OUTAGE_MS = 4500;
const RETRY_MS = 100;
/** Before the log is read again while its invocation's runtime cannot be reached: twice as long each time that it had nothing. */
const UNREACHED_READ_MS = { first: 100, most: 1000 };
/** Before the log is read again that lacks events which it is about to have. */
const EARLY_READ_MS = { first: 20, most: 250 };

/** What a follower may hold of events that its reader has not come to. */
export interface FollowHeld extends WaitingEvents {
  /** Entries of one read; 512 by default. */
  readonly readCount?: number;
}

interface SomeEvents {
  readonly events: InvocationEvent[];
  /** The log held no more. */
  readonly complete: boolean;
  /** Of the invocation; null when there is none (any more). */
  readonly status: InvocationStatus | null;
  /** The runtime that runs it, if it shows events before they are in the log; else ''. */
  readonly runtime: string;
}

/**
 * The events of invocations: a stream to replay, and for the live tail what runtimes show, or what is published of those that show nothing. The
 * end of an invocation, and what the platform itself says, is always published.
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

  /** Up to `limit` events after number `afterSeq` (0 for the beginning). Empty for an unknown invocation. */
  async read(id: string, afterSeq: number, limit = READ_COUNT, deadlineMs?: number): Promise<InvocationEvent[]> {
    const entries = await this.#store.call(
      (redis) => redis.xrange(this.#store.keys.events(id), `${afterSeq + 1}-0`, '+', 'COUNT', limit),
      deadlineMs,
    );
    return parseEntries(entries, afterSeq).slice(0, limit);
  }

  /** The last event so far; null when there is none, or none any more. @throws StoreError */
  async last(id: string): Promise<InvocationEvent | null> {
    const entries = await this.#store.call((redis) =>
      redis.xrevrange(this.#store.keys.events(id), '+', '-', 'COUNT', 1),
    );
    return parseEntries(entries, 0).at(-1) ?? null;
  }

  /** The terminal event of an ended invocation, whose number it is; null when it is kept no more. @throws StoreError */
  async terminal(id: string, seq: number): Promise<InvocationEvent | null> {
    const last = await this.last(id);
    if (last !== null && isTerminal(last.event)) return last;
    const outcome = await this.#store.call((redis) => redis.get(this.#store.keys.outcome(id)));
    if (outcome === null) return null;
    const space = outcome.indexOf(' ');
    return { seq, event: outcome.slice(0, space) as EventName, data: outcome.slice(space + 1) };
  }

  /**
   * Every event after `afterSeq` in order, without gap or duplicate: what is stored, then what comes. Ends after the terminal event, or
   * when the signal aborts. A short absence of Redis is waited out.
   *
   * @param held what a reader that stands still may make this process hold.
   * Of an ended invocation whose events are forgotten, its terminal event alone, when that is still kept.
   *
   * @throws StoreError `store-unavailable` when Redis stays away (4.5 s by default), `invalid-argument` when there is no such invocation, or
   *   nothing of its events any more.
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

  /** The entries with events after a number: no further one once they have `limit` events, or as many bytes as a reader may hold. One at least. */
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
   * The terminal event, for a reader who finds nothing after a number though the invocation has ended: it saw events that the store lost, or
   * the events are forgotten. Null while more may come.
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
    // It ended just now: the log is read once more.
    if (seq > afterSeq && (await this.read(id, afterSeq, 1)).length > 0) return null;
    return last;
  }
}
