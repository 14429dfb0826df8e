import { setTimeout as sleep } from 'node:timers/promises';
import type { Channels } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import { Wakeup } from '../store/wakeup.ts';
import { FollowCursor, type WaitingEvents } from './follow.ts';
import { parseEntry, parseLive } from './live.ts';
import { hasEnded, type InvocationEvent, type InvocationStatus } from './types.ts';

/** Entries of one read. */
const READ_COUNT = 512;
/** A follower that hears nothing looks at the log this often: the live tail is a hint, the log is the truth. */
const IDLE_READ_MS = 5000;
/** A follower gives up when Redis stays away this long, so that its client hears of it within 5 s. */
export const MAX_OUTAGE_MS = 4500;
const RETRY_MS = 100;

/** What a follower may hold of events that its reader has not come to. */
export interface FollowHeld extends WaitingEvents {
  /** Entries of one read; 512 by default. */
  readonly readCount?: number;
}

/** The events of invocations: a stream to replay, a channel for the live tail. */
export class EventLog {
  readonly #store: Store;
  readonly #channels: Channels;
  readonly #outageMs: number;

  /** @param outageMs how long a follower waits for Redis to come back. */
  constructor(store: Store, channels: Channels, outageMs = MAX_OUTAGE_MS) {
    this.#store = store;
    this.#channels = channels;
    this.#outageMs = outageMs;
  }

  /** Up to `limit` events after number `afterSeq` (0 for the beginning). Empty for an unknown invocation. */
  async read(id: string, afterSeq: number, limit = READ_COUNT, deadlineMs?: number): Promise<InvocationEvent[]> {
    const entries = await this.#store.call(
      (redis) => redis.xrange(this.#store.keys.events(id), `${afterSeq + 1}-0`, '+', 'COUNT', limit),
      deadlineMs,
    );
    return entries.map(parseEntry);
  }

  /** The last event so far; null when there is none, or none any more. @throws StoreError */
  async last(id: string): Promise<InvocationEvent | null> {
    const entries = await this.#store.call((redis) =>
      redis.xrevrange(this.#store.keys.events(id), '+', '-', 'COUNT', 1),
    );
    return entries.map(parseEntry)[0] ?? null;
  }

  /**
   * Every event after `afterSeq` in order, without gap or duplicate: what is stored, then what comes. Ends after the terminal event, or
   * when the signal aborts. A short absence of Redis is waited out.
   *
   * @param held what a reader that stands still may make this process hold.
   * @throws StoreError `store-unavailable` when Redis stays away (4.5 s by default), `invalid-argument` when there is no such invocation.
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
    const stop = await this.#channels.listen(this.#store.keys.live(id), {
      message: (payload) => {
        cursor.live(parseLive(payload));
        wakeup.set();
      },
      lost: interrupted,
      resumed: interrupted,
    });
    try {
      while (!cursor.done && !signal?.aborted) {
        if (cursor.behind) {
          const read = cursor.beginRead();
          const events = await this.#readThroughOutage(id, cursor.last, readCount, signal);
          if (signal?.aborted) return;
          if (events.length === 0 && (await this.#endedBefore(id, cursor.last))) {
            yield* await this.#terminal(id, cursor);
            return;
          }
          yield* cursor.replay(read, events, events.length < readCount);
        } else {
          yield* cursor.drain();
          if (cursor.done || cursor.behind) continue;
          if (!(await wakeup.wait(IDLE_READ_MS, signal))) cursor.interrupted();
        }
      }
    } finally {
      stop();
    }
  }

  async #readThroughOutage(
    id: string,
    afterSeq: number,
    readCount: number,
    signal: AbortSignal | undefined,
  ): Promise<InvocationEvent[]> {
    const giveUpAt = performance.now() + this.#outageMs;
    for (;;) {
      const leftMs = giveUpAt - performance.now();
      try {
        return await this.read(id, afterSeq, readCount, Math.max(1, leftMs));
      } catch (error) {
        const stored = StoreError.from(error);
        if (signal?.aborted) return [];
        if (stored.code !== 'store-unavailable' || leftMs <= RETRY_MS) throw stored;
        await sleep(RETRY_MS);
      }
    }
  }

  /** Whether no event can come after this number: a reader may come back with the terminal event's number. */
  async #endedBefore(id: string, afterSeq: number): Promise<boolean> {
    const key = this.#store.keys.invocation(id);
    const [status, seq] = await this.#store.call((redis) => redis.hmget(key, 'status', 'seq'));
    if (status == null) throw new StoreError('invalid-argument', `There is no invocation ${id} (any more).`);
    return hasEnded(status as InvocationStatus) && Number(seq) <= afterSeq;
  }

  /** The terminal event that a reader of lost events still waits for, if it does. */
  async #terminal(id: string, cursor: FollowCursor): Promise<Iterable<InvocationEvent>> {
    const last = await this.last(id);
    return last === null ? [] : cursor.ended(last);
  }
}
