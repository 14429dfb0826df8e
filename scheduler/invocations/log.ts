import { setTimeout as sleep } from 'node:timers/promises';
import type { LiveSource } from '../live/live.ts';
import { TenantTurns } from '../policies/tenant-turns.ts';
import { type Metered, parseMetered, throwBytesQuota } from '../quotas/exceeded.ts';
import { askText, type TokenAsk } from '../quotas/grants.ts';
import { type ChannelListener, type Channels, Wakeup } from '../store/channels.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { type Store, TurnCalls } from '../store/store.ts';
import { meteredText } from '../usage/metered.ts';
import { Items, type OpenFeed } from './feed.ts';
import type { LogRead } from './follow.ts';
import {
  type Entry,
  type FollowBounds,
  Follower,
  type FollowerRead,
  type FollowOptions,
  parseEntries,
  type Submitter,
} from './follower.ts';
import { gap, type Retention, tuple, unexpected, unmetered } from './replies.ts';
import {
  type AppendOutcome,
  type EventName,
  hasEnded,
  type InvocationEvent,
  type InvocationStatus,
  isTerminal,
  type NewEvent,
  type Position,
  type Usage,
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

/**
 * Maximum reads under way, of one tenant and in all. Redis runs them one after another, some 15 ms for an event of 4 MiB, so the commands of other
 * tenants wait for at most `tenant` such reads of one tenant. With smaller limits, thousands of idle followers would wait for each other when each
 * answer of Redis takes 10 ms.
 */
const LIMITS = { tenant: 16, all: 64 };
/**
 * Other callers may join a waiting read for this time after its first caller. In an outage, the read fails once the first caller has waited
 * `outageMs`; a caller that has joined then fails at most this much earlier than it would alone.
 */
const JOIN_MS = 500;
/** A read that begins while Redis is away has at least this long for an answer: Redis may be back, but slow. */
const LEAST_MS = 500;

/** One read, for all callers that asked for it before it began. */
interface SharedRead<T> {
  readonly key: string;
  readonly askedAtMs: number;
  readonly result: PromiseWithResolvers<T>;
  /** One function for each caller, true once the caller has left. */
  readonly callers: (() => boolean)[];
  /** Takes the read out of the queue. */
  leaveQueue?: () => void;
}

/**
 * Makes the reads of logs for followers, in turns of the tenants. Thousands may follow one invocation, so callers that ask for a read while the
 * same one waits share it. No caller joins a read that has begun: it may miss events that the caller knows of, and may be about to give up.
 */
export class LogReads<T> {
  readonly #outageMs: number;
  readonly #turns = new TenantTurns(LIMITS);
  /** Reads that wait for a turn. */
  readonly #waiting = new Set<SharedRead<T>>();
  /** The last waiting read of each tenant and name. */
  readonly #joinable = new Map<string, SharedRead<T>>();
  /** True once an outage has made a read fail, until Redis answers a read. */
  #isAway = false;

  /** @param outageMs how long a read waits for Redis to come back */
  constructor(outageMs: number) {
    this.#outageMs = outageMs;
  }

  /**
   * Makes a read when the tenant's turn comes. The wait for the turn does not count towards `outageMs`, unless Redis is away: then a read fails
   * as `store-unavailable` once its caller has waited `outageMs`, with a turn or without.
   *
   * @param name equal for reads with equal results
   * @param isOver true once the caller has left
   * @param read makes the read; gets the time (`performance.now()`) at which to give up, and a function that is true once all callers have left
   * @throws StoreError what `read` throws; `store-unavailable` when all callers left before the turn came
   */
  read(
    tenant: string,
    name: string,
    isOver: () => boolean,
    read: (giveUpAtMs: number, isOver: () => boolean) => Promise<T>,
  ): Promise<T> {
    const key = `${tenant} ${name}`;
    const nowMs = performance.now();
    const joined = this.#joinable.get(key);
    if (joined && nowMs < joined.askedAtMs + JOIN_MS) {
      joined.callers.push(isOver);
      return joined.result.promise;
    }
    const asked: SharedRead<T> = { key, askedAtMs: nowMs, result: Promise.withResolvers<T>(), callers: [isOver] };
    this.#waiting.add(asked);
    this.#joinable.set(key, asked);
    // Begins the read at once if a turn is free.
    asked.leaveQueue = this.#turns.request(tenant, () => {
      this.#forget(asked);
      void this.#make(tenant, asked, read);
    });
    return asked.result.promise;
  }

  async #make(
    tenant: string,
    { askedAtMs, result, callers }: SharedRead<T>,
    read: (giveUpAtMs: number, isOver: () => boolean) => Promise<T>,
  ): Promise<void> {
    const nowMs = performance.now();
    const giveUpAtMs = this.#isAway ? Math.max(askedAtMs + this.#outageMs, nowMs + LEAST_MS) : nowMs + this.#outageMs;
    const isOver = () => callers.every((hasLeft) => hasLeft());
    try {
      if (isOver()) {
        // The end of this turn begins the next read. Without the `await`, thousands of reads whose callers have left would nest in one call stack.
        await null;
        throw new StoreError('store-unavailable', 'The callers of this read have left.', { unsent: true });
      }
      result.resolve(await read(giveUpAtMs, isOver));
      this.#isAway = false;
    } catch (error) {
      result.reject(error);
      if (StoreError.from(error).code !== 'store-unavailable') this.#isAway = false;
      else if (!isOver()) this.#failWaiting(giveUpAtMs - this.#outageMs, error);
    } finally {
      this.#turns.leave(tenant);
    }
  }

  /** Called when an outage has made a read fail. Fails the waiting reads that were asked for before the outage, or at least `outageMs` ago. */
  #failWaiting(awaySinceMs: number, error: unknown): void {
    this.#isAway = true;
    const lastMs = Math.max(awaySinceMs, performance.now() - this.#outageMs);
    for (const waiting of this.#waiting) {
      if (waiting.askedAtMs > lastMs) continue;
      this.#forget(waiting);
      waiting.leaveQueue?.();
      waiting.result.reject(error);
    }
  }

  #forget(read: SharedRead<T>): void {
    this.#waiting.delete(read);
    if (this.#joinable.get(read.key) === read) this.#joinable.delete(read.key);
  }
}

/** One write of an attempt: numbered events, and the usage at the last of them. */
export interface AttemptWrite {
  readonly id: string;
  readonly epoch: number;
  /** Number of the first event; 0 without events. */
  readonly firstSeq: number;
  /** At most `MAX_EVENTS` events. */
  readonly events: readonly NewEvent[];
  /** Cumulative usage of the attempt. */
  readonly usage: Usage | undefined;
  /** Tokens that the attempt asks for with its usage; null leaves its ceiling as it is. */
  readonly ask?: TokenAsk | null;
  /** True when the attempt shows its events to followers itself; the store then does not publish them. */
  readonly showsOwnEvents: boolean;
}

const APPEND = loadScript(new URL('./log.lua', import.meta.url), 'append');

/**
 * Maximum events past the log's last one that an attempt may show before it writes them. Their numbers are reserved: no
 * other event gets them, unless Redis loses writes.
 */
export const SHOWN_AHEAD = 512;
/** Maximum events of one script call. */
export const MAX_EVENTS = 1000;
/** Characters of events of one script call, unless one write alone has more. All other Redis calls wait for the script. */
const MAX_LENGTH = 128 << 10;
/** Maximum writes of one script call. */
const MAX_WRITES = 128;

/**
 * Batches the log writes of all attempts of a process. The writes of one turn of the event loop go to Redis in one script call, which reads
 * and counts each tenant's data once. Each write gets its own answer: a refused or failed write does not affect the others.
 */
export class Appends {
  readonly #store: Store;
  readonly #retention: Retention;
  readonly #calls = new TurnCalls<AttemptWrite, Metered<AppendOutcome>>({
    size: ({ events }) => {
      const length = events.reduce((sum, { data }) => sum + data.length, 0);
      return Math.max(1 / MAX_WRITES, events.length / MAX_EVENTS, length / MAX_LENGTH);
    },
    call: (writes) => this.#call(writes),
  });

  constructor(store: Store, retention: Retention) {
    this.#store = store;
    this.#retention = retention;
  }

  /** @throws the errors of `Invocations.append`. */
  async write(write: AttemptWrite): Promise<Metered<AppendOutcome>> {
    for (const { data } of write.events) checkedData(data);
    return this.#calls.run(write);
  }

  async #call(writes: readonly AttemptWrite[]): Promise<(() => Metered<AppendOutcome>)[]> {
    const { keys } = this.#store;
    const { maxEvents, maxBytes, logLines, logMs, familyBytes } = this.#retention;
    const now = this.#store.clock();
    const args: (string | number)[] = [now, maxEvents, maxBytes, logLines, logMs, familyBytes, SHOWN_AHEAD];
    for (const { id, epoch, firstSeq, events, usage, ask = null, showsOwnEvents } of writes) {
      args.push(showsOwnEvents ? '' : keys.live(id), epoch, firstSeq, meteredText(usage), askText(ask), events.length);
      for (const { event, data } of events) args.push(event, data);
    }
    const writeKeys = writes.flatMap(({ id }) => [keys.invocation(id), keys.events(id)]);
    const replies = tuple(await this.#store.script(APPEND, writeKeys, args));
    return writes.map((write, i) => () => answerOf(write, replies[i], now));
  }
}

/** The answer to one write. The header of `append` of `log.lua` lists the replies. */
function answerOf({ id, firstSeq }: AttemptWrite, reply: unknown, now: number): Metered<AppendOutcome> {
  if (reply === 1) return unmetered('ok');
  if (reply === 0) return unmetered('stale');
  if (reply === -1) return unmetered('ended');
  if (reply === -2) return unmetered('full');
  const [code, ...rest] = tuple(reply);
  if (code === 1) return { outcome: 'ok', ...parseMetered(rest, now) };
  if (code === -5) throw StoreError.from(new Error(String(rest[0])));
  throwBytesQuota(reply, now);
  throw gap(id, firstSeq, reply) ?? unexpected('append', reply);
}

/** Rejects NUL, which separates the parts of live messages and cannot occur in JSON text. */
export function checkedData(data: string): string {
  if (data.includes('\0')) throw new StoreError('invalid-argument', 'The data of an event must be JSON text.');
  return data;
}

/** One line of a function's log: a `log` event or the `error` that ended an invocation. */
export interface LogLine {
  /** Position in the log; pass it as `after` to read on. */
  readonly cursor: string;
  readonly function: string;
  readonly invocation: string;
  /** Number of the event within its invocation. */
  readonly seq: number;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
  readonly event: 'log' | 'error';
  /** JSON text of the event. */
  readonly data: string;
}

/** A part of a log. Cursors are `<ms>-<number>`; `<ms>-0` is the first cursor of that time. */
export interface LogRange {
  /** Only lines after this cursor. */
  readonly after?: string | undefined;
  /** Only lines before this cursor. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/** Observes which lines wait for a reader: those that were read and that the reader has yet to take. */
export interface WaitingLines {
  /** These lines were read. */
  read(lines: readonly LogLine[]): void;
  /** The reader has taken a line. */
  passed(line: LogLine): void;
}

/** Cursor before every line. */
export const LOG_BEGINNING = '0-0';
/** Lines of one read. A stalled reader keeps them in memory. */
const LINES_READ = 64;
/** Interval at which a reader looks for new functions and reads the next few logs in turn, since wake-ups can be lost. */
const IDLE_READ_MS = 5000;
/** Logs that a reader reads in turn per interval. Hundreds of readers that each read all logs of a large tenant would keep Redis busy. */
const IDLE_READ_LOGS = 16;

/**
 * Logs of functions. The log of a function has lines of all its invocations: by default about the last 2,000 lines, none older than a week.
 */
export class FunctionLogs {
  readonly #store: Store;
  readonly #channels: Channels;

  constructor(store: Store, channels: Channels) {
    this.#store = store;
    this.#channels = channels;
  }

  /** The first lines of a range, oldest first. */
  async oldest(tenant: string, name: string, { after = LOG_BEGINNING, before, limit }: LogRange): Promise<LogLine[]> {
    const key = this.#store.keys.logs(tenant, name);
    const entries = await this.#store.call((redis) =>
      redis.xrange(key, `(${after}`, before === undefined ? '+' : `(${before}`, 'COUNT', limit),
    );
    return entries.map((entry) => parseLine(name, entry));
  }

  /** The last lines of a range, newest first. */
  async newest(tenant: string, name: string, { after = LOG_BEGINNING, before, limit }: LogRange): Promise<LogLine[]> {
    const key = this.#store.keys.logs(tenant, name);
    const entries = await this.#store.call((redis) =>
      redis.xrevrange(key, before === undefined ? '+' : `(${before}`, `(${after}`, 'COUNT', limit),
    );
    return entries.map((entry) => parseLine(name, entry));
  }

  /**
   * Yields the lines of several functions as they come, until the signal aborts. Lines of one function come in order.
   *
   * @param names the functions; called again every few seconds to pick up new ones.
   * @param cursors start cursor by function; a function without one is read from its oldest kept line.
   * @param waitingLines observes the lines that wait for the reader; an error that its `read` throws ends the iteration.
   */
  async *follow(
    tenant: string,
    names: () => Promise<readonly string[]>,
    cursors: Map<string, string>,
    signal: AbortSignal,
    waitingLines?: WaitingLines,
  ): AsyncGenerator<LogLine> {
    const wakeup = new Wakeup();
    const changedNames = new Set<string>();
    const stops = new Map<string, () => void>();
    let idleIndex = 0;
    try {
      while (!signal.aborted) {
        for (const name of await names()) {
          if (stops.has(name)) continue;
          changedNames.add(name);
          const wake = () => {
            changedNames.add(name);
            wakeup.set();
          };
          const channel = this.#store.keys.logsChannel(tenant, name);
          stops.set(name, await this.#channels.listen(channel, { message: wake, resumed: wake }));
        }
        const idleReadAt = performance.now() + IDLE_READ_MS;
        const leftMs = () => Math.max(0, idleReadAt - performance.now());
        // Until the interval ends, reads the changed logs, and waits for a wake-up when none has changed.
        do {
          for (const name of changedNames) {
            // The loop may never end on its own: new lines may arrive faster than it reads them.
            if (signal.aborted) return;
            changedNames.delete(name);
            const lines = await this.oldest(tenant, name, { after: cursors.get(name), limit: LINES_READ });
            waitingLines?.read(lines);
            if (lines.length === LINES_READ) changedNames.add(name);
            for (const line of lines) {
              cursors.set(name, line.cursor);
              yield line;
              waitingLines?.passed(line);
            }
          }
        } while (!signal.aborted && leftMs() > 0 && (changedNames.size > 0 || (await wakeup.wait(leftMs(), signal))));
        const nextIndex = idleIndex + IDLE_READ_LOGS;
        for (const name of [...stops.keys()].slice(idleIndex, nextIndex)) changedNames.add(name);
        idleIndex = nextIndex < stops.size ? nextIndex : 0;
      }
    } finally {
      for (const stop of stops.values()) stop();
    }
  }
}

/** Parses a stream entry, whose fields `log.lua` writes. */
function parseLine(name: string, [cursor, fields]: [id: string, fields: string[]]): LogLine {
  const value = (field: string): string => fields[fields.indexOf(field) + 1] ?? '';
  return {
    cursor,
    function: name,
    invocation: value('i'),
    seq: Number(value('s')),
    at: Number(value('t')),
    event: value('e') === 'error' ? 'error' : 'log',
    data: value('d'),
  };
}
