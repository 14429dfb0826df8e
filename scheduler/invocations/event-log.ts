import type { Channels } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import { Wakeup } from '../store/wakeup.ts';
import { FollowCursor } from './follow.ts';
import { parseEntry, parseLive } from './live.ts';
import type { InvocationEvent } from './types.ts';

/** Entries of one read. */
const READ_COUNT = 512;
/** A follower that hears nothing looks at the log this often: the live tail is a hint, the log is the truth. */
const IDLE_READ_MS = 5000;
/** A follower gives up when Redis stays away this long, so that its client hears of it within 5 s. */
const MAX_OUTAGE_MS = 4500;

/** The events of invocations: a stream to replay, a channel for the live tail. */
export class EventLog {
  readonly #store: Store;
  readonly #channels: Channels;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  /** Up to `limit` events after number `afterSeq` (0 for the beginning). Empty for an unknown invocation. */
  async read(id: string, afterSeq: number, limit = READ_COUNT): Promise<InvocationEvent[]> {
    const entries = await this.#store.call((redis) =>
      redis.xrange(this.#store.keys.events(id), `${afterSeq + 1}-0`, '+', 'COUNT', limit),
    );
    return entries.map(parseEntry);
  }

  /**
   * Every event after `afterSeq` in order, without gap or duplicate: what is stored, then what comes. Ends after the terminal event, or
   * when the signal aborts. A short absence of Redis is waited out.
   *
   * @throws StoreError `store-unavailable` when Redis stays away for 4.5 s, `invalid-argument` when there is no such invocation.
   */
  async *follow(id: string, afterSeq: number, signal?: AbortSignal): AsyncGenerator<InvocationEvent> {
    const cursor = new FollowCursor(afterSeq);
    const wakeup = new Wakeup();
    const stop = await this.#channels.listen(this.#store.keys.live(id), {
      message: (payload) => {
        cursor.live(parseLive(payload));
        wakeup.set();
      },
      resumed: () => {
        cursor.interrupted();
        wakeup.set();
      },
    });
    try {
      while (!cursor.done && !signal?.aborted) {
        if (cursor.behind) {
          const read = cursor.beginRead();
          const events = await this.#readThroughOutage(id, cursor.last, signal);
          if (events.length === 0 && cursor.last === afterSeq) await this.#expectInvocation(id, afterSeq);
          yield* cursor.replay(read, events, events.length < READ_COUNT);
          continue;
        }
        yield* cursor.drain();
        if (cursor.done || cursor.behind) continue;
        const before = cursor.last;
        await wakeup.wait(IDLE_READ_MS, signal);
        if (cursor.last === before) this.#suspect(cursor, wakeup);
      }
    } finally {
      stop();
    }
  }
}
