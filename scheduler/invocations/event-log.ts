import { setTimeout as sleep } from 'node:timers/promises';
import type { LiveSource } from '../live/live.ts';
import type { ChannelListener, Channels } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { Items, type OpenFeed } from './feed.ts';
import type { LogRead } from './follow.ts';
import { type FollowBounds, Follower, type FollowerRead, type FollowOptions } from './follower.ts';
import { type Entry, parseEntries } from './live.ts';
import { LogReads } from './log-reads.ts';
import type { Submitter } from './submitter.ts';
import {
  type EventName,
  hasEnded,
  type InvocationEvent,
  type InvocationStatus,
  isTerminal,
  type Position,
} from './types.ts';

/** A read ends once it has this many events; its last entry may exceed the number. */
const READ_COUNT = 512;
/** Maximum bytes of a follower's read; a single event may have more. A reader that stalls keeps them in memory. */
const READ_BYTES = 64 * 1024;
const READ_EVENTS = loadScript(new URL('./log.lua', import.meta.url), 'read-events');
/** A follower gives up when Redis stays away this long, so that its client gets an error within 5 s. */
const MAX_OUTAGE_MS = 4500;
const RETRY_MS = 100;

/**
 * The events of invocations: a stream to replay, and a live tail. A runtime that shows events sends them to followers itself; the events of any
 * other runtime come over a Redis channel. The channel also carries all terminal events and the platform's own events.
 */
export class EventLog {
  readonly #store: Store;
  readonly #channels: Channels;
  readonly #reads: LogReads<FollowerRead>;
  readonly #live: LiveSource;
  readonly #submitter: Submitter;

  /** @param outageMs how long the read of a follower waits for Redis to come back. */
  constructor(store: Store, channels: Channels, live: LiveSource, submitter: Submitter, outageMs = MAX_OUTAGE_MS) {
    this.#submitter = submitter;
    this.#store = store;
    this.#channels = channels;
    this.#live = live;
    this.#reads = new LogReads(outageMs);
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

  /**
   * The terminal event of an ended invocation; null when Redis does not keep it any more. `epoch` and `seq` of the event are those of the record.
   *
   * @throws StoreError
   */
  async terminal(
    id: string,
    { epoch, seq }: { readonly epoch: number; readonly seq: number },
  ): Promise<InvocationEvent | null> {
    const last = await this.last(id);
    if (last !== null && isTerminal(last.event)) return last;
    const outcome = await this.#store.call((redis) => redis.get(this.#store.keys.outcome(id)));
    if (outcome === null) return null;
    const space = outcome.indexOf(' ');
    return { seq, epoch, event: outcome.slice(0, space) as EventName, data: outcome.slice(space + 1) };
  }

  /**
   * Opens a feed of every event after a position, in order, without gap or duplicate: first the stored events, then the live ones. It ends
   * after the terminal event. It waits out a short absence of Redis. When the events of an ended invocation are gone, the feed has only the
   * terminal event, if that is still kept. When Redis lost events that the reader has, an event `gap` gives the number of the last event
   * that is still valid, and the feed goes on behind that number.
   *
   * `take` throws StoreError: `store-unavailable` when Redis stays away (4.5 s by default), `invalid-argument` when there is no such
   * invocation or none of its events are kept.
   *
   * The first feed that starts at the beginning of an invocation of this process (`Submitter.expect`) needs no read of the log, and skips the
   * step `before`.
   *
   * @param options bounds on the events that this process holds for a stalled reader, and a step that runs `before` the first read.
   */
  feed(
    id: string,
    after: Position,
    { tenant = '', readCount = READ_COUNT, before, ...waitingBounds }: FollowOptions = {},
  ): OpenFeed<InvocationEvent> {
    const logSources = {
      live: this.#live,
      read: (position: Position, isOver: () => boolean) =>
        this.#reads.read(
          tenant,
          `${id} ${position.epoch} ${position.seq} ${readCount}`,
          isOver,
          (giveUpAtMs, haveLeft) => this.#readThroughOutage(id, position, readCount, giveUpAtMs, haveLeft),
        ),
    };
    return (ready) => {
      const isBeginning = after.seq === 0 && after.epoch === null;
      // Listens on the channel of this process; null unless this process submitted the invocation and no other follower has claimed it.
      const listenToOwn = isBeginning ? this.#submitter.claim(id) : null;
      const listen = async (listener: ChannelListener) =>
        listenToOwn ? listenToOwn(listener) : this.#channels.listen(this.#store.keys.live(id), listener);
      const closed = listenToOwn ? () => this.#submitter.forget(id) : undefined;
      const sources = {
        ...logSources,
        listen,
        isOwn: listenToOwn !== null,
        closed,
        before: listenToOwn ? undefined : before,
      };
      return new Follower(id, after, sources, ready, waitingBounds);
    };
  }

  /** The events of `feed` one by one, for a reader that waits for them. Ends also when the signal aborts. */
  follow(id: string, afterSeq: number, signal?: AbortSignal, bounds?: FollowBounds): Items<InvocationEvent> {
    return new Items(this.feed(id, { epoch: null, seq: afterSeq }, bounds), signal);
  }

  /** Reads at least one entry after a position; stops once the entries have `limit` events or `READ_BYTES` bytes. */
  async readSome(
    id: string,
    { epoch, seq }: Position,
    limit = READ_COUNT,
    deadlineMs?: number,
  ): Promise<LogRead & { readonly status: InvocationStatus | null; readonly runtime: string }> {
    const args = [seq, epoch ?? '', limit, READ_BYTES];
    const { keys } = this.#store;
    const reply = await this.#store.script(READ_EVENTS, [keys.events(id), keys.invocation(id)], args, deadlineMs);
    const [complete, status, runtime, lostAfter, newestEpoch, ...entries] = reply as [
      number,
      string,
      string,
      string,
      string,
      ...Entry[],
    ];
    const after = lostAfter === '' ? seq : Number(lostAfter);
    return {
      events: parseEntries(entries, after),
      complete: complete === 1,
      status: status === '' ? null : (status as InvocationStatus),
      runtime,
      lost: lostAfter === '' ? undefined : { after, epoch: Number(newestEpoch) },
    };
  }

  async #readThroughOutage(
    id: string,
    after: Position,
    readCount: number,
    giveUpAtMs: number,
    isOver: () => boolean,
  ): Promise<FollowerRead> {
    for (;;) {
      try {
        const leftMs = Math.max(RETRY_MS, giveUpAtMs - performance.now());
        const { status, ...read } = await this.readSome(id, after, readCount, leftMs);
        const isOpen = status !== null && !hasEnded(status);
        const end = read.events.length === 0 && !isOpen ? await this.#end(id, read.lost?.after ?? after.seq) : null;
        return { ...read, end };
      } catch (error) {
        const storeError = StoreError.from(error);
        const isLastTry = performance.now() + 2 * RETRY_MS > giveUpAtMs;
        if (isOver() || storeError.code !== 'store-unavailable' || isLastTry) throw storeError;
        await sleep(RETRY_MS);
      }
    }
  }

  /**
   * The terminal event for a reader that found no event after number `afterSeq` although the invocation has ended: the reader saw events that
   * the store lost, or the events are gone. Null when the invocation has not ended, or the log now has such an event.
   */
  async #end(id: string, afterSeq: number): Promise<InvocationEvent | null> {
    const [status, endSeq, epoch] = await this.#store.call((redis) =>
      redis.hmget(this.#store.keys.invocation(id), 'status', 'seq', 'epoch'),
    );
    if (status == null) throw new StoreError('invalid-argument', `There is no invocation ${id} (any more).`);
    if (!hasEnded(status as InvocationStatus)) return null;
    const seq = Number(endSeq);
    const last = await this.terminal(id, { epoch: Number(epoch), seq });
    if (last === null) throw new StoreError('invalid-argument', `The events of ${id} are not kept any more.`);
    // The invocation may have ended after the caller's read, so read the log once more.
    if (seq > afterSeq && (await this.read(id, afterSeq, 1)).length > 0) return null;
    return last;
  }
}
