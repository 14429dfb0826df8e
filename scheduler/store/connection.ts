import { Redis, type RedisOptions } from 'ioredis';

/** Longest pause between two attempts to reconnect: a restarted Redis is found again within it. */
export const MAX_RECONNECT_DELAY_MS = 500;

/**
 * How this room wants its connections: reconnecting for ever with short pauses, and never giving a command up by itself, because the
 * deadlines are the store's (and BullMQ requires it). No `commandTimeout`: it would cut blocking commands.
 */
export function connectionOptions(): RedisOptions {
  return {
    maxRetriesPerRequest: null,
    retryStrategy: (times) => Math.min(25 * 2 ** Math.min(times - 1, 6), MAX_RECONNECT_DELAY_MS),
    connectTimeout: 2000,
    enableReadyCheck: true,
    maxLoadingRetryTime: MAX_RECONNECT_DELAY_MS,
    noDelay: true,
  };
}

/**
 * Opens a connection with those options to a `redis://` URL or the path of a unix socket. Errors of the connection itself are left to
 * the reconnection; the calls report them.
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
