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
