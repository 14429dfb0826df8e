import { Command, type Redis } from 'ioredis';
import { createKeys, type Keys } from '../keys.ts';
import { deadline } from '../links/heartbeat.ts';
import { isConnectionError, StoreError } from './errors.ts';
import type { Script } from './lua-script.ts';

/** Time limit of one store call, including the wait for a reconnection. */
export const DEFAULT_CALL_DEADLINE_MS = 4000;
/**
 * Time for which Redis keeps the reply to a call. It is longer than the time for which the store repeats the call.
 * `REMEMBERED_MS` of `store.lua` is the same.
 */
export const REPLY_MS = 60_000;

type Argument = string | number | Buffer;
type EvaluationName = 'eval' | 'evalsha';

export interface StoreOptions {
  /** Prefix of every key; `pie` by default. */
  readonly prefix?: string;
  /** Time limit of one call; 4,000 ms by default. */
  readonly deadlineMs?: number;
  /** Milliseconds since the Unix epoch; `Date.now` by default. */
  readonly clock?: () => number;
}

/**
 * Redis with deadlines: every call either answers or fails with a `StoreError` within `deadlineMs`. The store passes a command to the
 * connection only when the connection is ready. After a loss of the connection, the store repeats the calls whose callers still wait, so every
 * call may run twice. No command is sent over a new connection after its caller has given up.
 */
export class Store {
  readonly redis: Redis;
  readonly keys: Keys;
  readonly deadlineMs: number;
  readonly clock: () => number;
  /** Hashes of the scripts whose full text this connection has sent. */
  readonly #sent = new Set<string>();
  #becomingReady: Promise<void> | undefined;

  constructor(redis: Redis, options: StoreOptions = {}) {
    this.redis = redis;
    this.keys = createKeys(options.prefix);
    this.deadlineMs = options.deadlineMs ?? DEFAULT_CALL_DEADLINE_MS;
    this.clock = options.clock ?? Date.now;
    // By default, ioredis would send the commands of a lost connection again, however long ago their callers gave up.
    redis.options.maxRetriesPerRequest = 0;
    redis.on('close', () => {
      // Auto-pipelining may still hold commands that wait for the answers to earlier ones. ioredis would queue them for the next connection.
      redis.options.enableOfflineQueue = false;
      // A restarted Redis knows no script.
      this.#sent.clear();
    });
  }

  /**
   * Runs a script: EVAL the first time, EVALSHA from then on, and EVAL again when Redis has lost the script. The first call is not an EVALSHA,
   * because Redis would refuse it, and later calls would overtake the EVAL that repeats it.
   */
  script(script: Script, keys: readonly string[], args: readonly Argument[], deadlineMs?: number): Promise<unknown> {
    const run = (redis: Redis, name: EvaluationName, text: string) => redis[name](text, keys.length, ...keys, ...args);
    return this.#evaluate(script, run, deadlineMs);
  }

  /** Like `script`, for replies that hold bytes: strings arrive as buffers. */
  scriptBuffers(
    script: Script,
    keys: readonly string[],
    args: readonly Argument[],
    deadlineMs?: number,
  ): Promise<unknown[]> {
    const run = async (redis: Redis, name: EvaluationName, text: string): Promise<unknown[]> => {
      const command = new Command(name, [text, keys.length, ...keys, ...args], { replyEncoding: null });
      const reply = await redis.sendCommand(command);
      if (!Array.isArray(reply)) throw new StoreError('store-corrupt', `The script ${script.name} answered no list.`);
      return reply;
    };
    return this.#evaluate(script, run, deadlineMs);
  }

  #evaluate<T>(
    script: Script,
    run: (redis: Redis, name: EvaluationName, text: string) => Promise<T>,
    deadlineMs: number | undefined,
  ): Promise<T> {
    return this.call(async (redis) => {
      const isNew = !this.#sent.has(script.sha1);
      this.#sent.add(script.sha1);
      if (isNew) return run(redis, 'eval', script.lua);
      try {
        return await run(redis, 'evalsha', script.sha1);
      } catch (error) {
        if (!isUnknownScript(error)) throw error;
        return run(redis, 'eval', script.lua);
      }
    }, deadlineMs);
  }

  /**
   * Runs commands on the connection within the deadline, and again when the connection is lost meanwhile. A deadline longer than the store's
   * suits slow commands, but does not extend the wait for an absent Redis. When the deadline has already passed (the caller waited elsewhere),
   * the store sends nothing.
   */
  async call<T>(commands: (redis: Redis) => Promise<T>, deadlineMs = this.deadlineMs): Promise<T> {
    const until = performance.now() + deadlineMs;
    let unsent = true;
    for (let leftMs = deadlineMs; ; leftMs = Math.ceil(until - performance.now())) {
      // Timers are no finer than a millisecond.
      if (leftMs < 1) throw unavailable(deadlineMs, unsent);
      if (!this.#isReady) await withDeadline(this.#ready(), Math.min(leftMs, this.deadlineMs), unsent);
      else {
        unsent = false;
        try {
          return await withDeadline(commands(this.redis), leftMs);
        } catch (error) {
          // Only the loss of this store's connection leads to another try; `commands` may use a second connection.
          if (this.#isReady || !isConnectionError(StoreError.from(error).cause)) throw error;
        }
      }
    }
  }

  /** Fails unless Redis answers within the deadline. */
  async ping(deadlineMs = this.deadlineMs): Promise<void> {
    await this.call((redis) => redis.ping(), deadlineMs);
  }

  /** The memory that Redis uses, its limit (null for none), and the memory of its machine. Past the limit, Redis refuses scripts that store data. */
  async memory(): Promise<{
    readonly usedBytes: number;
    readonly maxBytes: number | null;
    readonly systemBytes: number;
  }> {
    const info = await this.call((redis) => redis.info('memory'));
    const read = (name: string): number => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0);
    return {
      usedBytes: read('used_memory'),
      maxBytes: read('maxmemory') || null,
      systemBytes: read('total_system_memory'),
    };
  }

  /** False also when the socket has ended while `status` still says `ready`. */
  get #isReady(): boolean {
    return this.redis.status === 'ready' && this.redis.stream.writable;
  }

  /** Resolves once the connection is ready; all waiting calls share one promise. */
  #ready(): Promise<void> {
    this.#becomingReady ??= this.#untilReady().finally(() => {
      this.#becomingReady = undefined;
    });
    return this.#becomingReady;
  }

  #untilReady(): Promise<void> {
    const { redis } = this;
    return new Promise((resolve, reject) => {
      const settle = () => {
        redis.off('ready', settle);
        redis.off('end', settle);
        if (redis.status === 'ready') resolve();
        else reject(new StoreError('store-unavailable', 'The connection to Redis was closed.'));
      };
      redis.on('ready', settle);
      redis.on('end', settle);
      if (redis.status === 'end') settle();
      else if (redis.status === 'wait') redis.connect().catch(() => undefined);
    });
  }
}

function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}

function unavailable(deadlineMs: number, unsent: boolean): StoreError {
  return new StoreError(
    'store-unavailable',
    `Redis did not answer within ${deadlineMs} ms. It may be restarting; try again, and check the redis-server process if this lasts.`,
    { unsent },
  );
}

async function withDeadline<T>(work: Promise<T>, deadlineMs: number, unsent = false): Promise<T> {
  let stop: () => void = () => undefined;
  const timeout = new Promise<never>((_resolve, reject) => {
    stop = deadline(deadlineMs, () => reject(unavailable(deadlineMs, unsent)));
  });
  try {
    return await Promise.race([work, timeout]);
  } catch (error) {
    throw StoreError.from(error);
  } finally {
    stop();
  }
}

/** Options of `TurnCalls`. */
export interface TurnCallsOptions<Item, Answer> {
  /** Share of one call that an item takes, above 0. A call holds items whose shares sum to at most 1, or a single item. */
  readonly size: (item: Item) => number;
  /** Makes one call. Resolves to one function per item, which returns the item's answer or throws its error. */
  readonly call: (items: readonly Item[]) => Promise<readonly (() => Answer)[]>;
}

interface WaitingItem<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Gathers the items that one turn of the event loop sends to Redis into few script calls. A script for many items reads and writes shared
 * data once, and each call has a fixed cost in this process and in Redis. The size of a call is bounded, since all
 * other Redis calls wait for it. Each item gets its own answer; a failed call rejects all of its items.
 */
export class TurnCalls<Item, Answer> {
  readonly #options: TurnCallsOptions<Item, Answer>;
  #waiting: WaitingItem<Item, Answer>[] = [];

  constructor(options: TurnCallsOptions<Item, Answer>) {
    this.#options = options;
  }

  run(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      if (this.#waiting.length === 1) setImmediate(() => this.#flush());
    });
  }

  #flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    let [start, size] = [0, 0];
    for (const [i, { item }] of waiting.entries()) {
      const itemSize = this.#options.size(item);
      if (i > start && size + itemSize > 1) {
        void this.#call(waiting.slice(start, i));
        [start, size] = [i, 0];
      }
      size += itemSize;
    }
    void this.#call(waiting.slice(start));
  }

  async #call(waiting: readonly WaitingItem<Item, Answer>[]): Promise<void> {
    try {
      const answers = await this.#options.call(waiting.map(({ item }) => item));
      for (const [i, one] of waiting.entries()) settle(one, answers[i]);
    } catch (error) {
      for (const { reject } of waiting) reject(error);
    }
  }
}

function settle<Answer>({ resolve, reject }: WaitingItem<unknown, Answer>, answer: (() => Answer) | undefined): void {
  try {
    if (answer === undefined) throw new Error('The call has no answer for this item.');
    resolve(answer());
  } catch (error) {
    reject(error);
  }
}
