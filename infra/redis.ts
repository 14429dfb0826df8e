import { readFileSync } from 'node:fs';
import { Redis, type RedisOptions } from 'ioredis';
import type { Config } from './config.ts';

/** Longest pause between two attempts to connect, so that clients notice a restart of Redis within half a second. */
const MAX_RETRY_DELAY_MS = 500;
/**
 * A connection is closed and opened anew when Redis owes an answer and has sent no byte for this time. When the machine
 * of Redis fails, or a cable is cut, nothing else ends the connection: the kernel repeats the unanswered bytes for a
 * quarter of an hour, at intervals of up to two minutes, also after Redis is back or its name has another address. The
 * time is longer than any blocking command waits (ten seconds at most).
 */
const SILENT_MS = 30_000;

/** Options for the configured Redis. BullMQ's blocking connections require `maxRetriesPerRequest: null`, so that is the default. */
export function redisOptions(config: Pick<Config, 'redis'>, overrides: RedisOptions = {}): RedisOptions {
  const common: RedisOptions = {
    maxRetriesPerRequest: null,
    retryStrategy: (attempt) => Math.min(20 * attempt, MAX_RETRY_DELAY_MS),
    enableAutoPipelining: true,
    // When an operator turns this server into a replica, the server keeps the connection and refuses writes. The
    // server's name may lead to the new primary by then.
    reconnectOnError: ({ message }) => message.startsWith('READONLY'),
    ...overrides,
  };
  if (config.redis.kind === 'private') return { path: config.redis.socket, ...common };
  const { ca } = config.redis;
  // A path is taken as it is: a URL parser would encode its spaces and end it at a `#`.
  const [, socket] = /^unix:(?:\/\/)?(.*)$/s.exec(config.redis.url) ?? [];
  if (socket !== undefined) return { path: socket, ...common };
  const url = new URL(config.redis.url);
  return {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? 6379 : Number(url.port),
    ...(url.username === '' ? {} : { username: decodeURIComponent(url.username) }),
    ...(url.password === '' ? {} : { password: decodeURIComponent(url.password) }),
    ...(url.pathname.length > 1 ? { db: Number(url.pathname.slice(1)) } : {}),
    ...(url.protocol === 'rediss:' ? { tls: ca === undefined ? {} : { ca: readFileSync(ca) } } : {}),
    socketTimeout: SILENT_MS,
    ...common,
  };
}

/** A connection that reconnects automatically. Close it with `quit` or `disconnect`. */
export function connectRedis(config: Pick<Config, 'redis'>, overrides: RedisOptions = {}): Redis {
  return new Redis(redisOptions(config, overrides));
}
