import { Redis, type RedisOptions } from 'ioredis';

/** Pause before the first attempt to reconnect; each later pause is twice as long. */
const FIRST_RECONNECT_DELAY_MS = 25;
/** Longest pause between two attempts to reconnect, and so the longest time to find a restarted Redis. */
const MAX_RECONNECT_DELAY_MS = 500;

/**
 * Connections reconnect for ever with short pauses and never give up a command by themselves, as BullMQ requires. A store makes its own
 * connection give up commands, and repeats its calls. There is no `commandTimeout`, since it would interrupt blocking commands.
 */
export function connectionOptions(): RedisOptions {
  return {
    maxRetriesPerRequest: null,
    retryStrategy: (attempt) => Math.min(FIRST_RECONNECT_DELAY_MS * 2 ** (attempt - 1), MAX_RECONNECT_DELAY_MS),
    connectTimeout: 2000,
    enableReadyCheck: true,
    maxLoadingRetryTime: MAX_RECONNECT_DELAY_MS,
    noDelay: true,
    // ioredis sends the commands of one turn of the event loop in one write. Each caller gets its answer only when the
    // last of these commands is answered.
    enableAutoPipelining: true,
  };
}

/**
 * Opens a connection with `connectionOptions` to a `redis://` URL or the path of a unix socket. It ignores connection errors: ioredis
 * reconnects, and the store's calls report the failure.
 */
export function openConnection(address: string): Redis {
  const target = address.includes('://') ? address : { path: address };
  const redis =
    typeof target === 'string'
      ? new Redis(target, connectionOptions())
      : new Redis({ ...target, ...connectionOptions() });
  redis.on('error', () => undefined);
  return redis;
}

/**
 * A connection for one of BullMQ's workers. The worker makes a copy of the connection to wait for jobs. A worker that
 * closes just after Redis came back may connect its copy once more, and BullMQ then forgets the copy, which would
 * reconnect for ever. Here no copy connects after `close`.
 */
export class WorkerConnection {
  readonly redis: Redis;
  readonly #copies = new Set<Redis>();

  constructor(redis: Redis) {
    this.redis = redis;
    redis.on('error', () => undefined);
    const duplicate = redis.duplicate.bind(redis);
    redis.duplicate = (override) => {
      const copy = duplicate(override);
      copy.on('error', () => undefined);
      this.#copies.add(copy);
      return copy;
    };
  }

  /** Ends the connection and its copies. Call it once the worker is closed. */
  close(): void {
    for (const each of [this.redis, ...this.#copies]) {
      each.connect = () => Promise.reject(new Error('Connection is closed.'));
      each.disconnect();
    }
  }
}

const RETRY_MS = 1000;

/**
 * Runs work on request, one run at a time: requests during a run cause one more. A failed run is reported and repeated after a second.
 *
 * @returns `run` resolves once a run that began after the request has ended, also when it failed; `stop` ends the repetitions
 */
export function retrying(
  work: () => Promise<void>,
  onError: (error: unknown) => void,
): { run(): Promise<void>; stop(): void } {
  let running: Promise<void> | undefined;
  let isRequested = false;
  let isStopped = false;
  let retry: NodeJS.Timeout | undefined;

  const runRepeatedly = async (): Promise<void> => {
    do {
      isRequested = false;
      try {
        await work();
      } catch (error) {
        if (isStopped) break;
        onError(error);
        clearTimeout(retry);
        retry = setTimeout(() => void run(), RETRY_MS);
      }
    } while (isRequested && !isStopped);
    running = undefined;
  };
  const run = (): Promise<void> => {
    clearTimeout(retry);
    if (isStopped) return Promise.resolve();
    isRequested = true;
    running ??= runRepeatedly();
    return running;
  };
  return {
    run,
    stop() {
      isStopped = true;
      clearTimeout(retry);
    },
  };
}
