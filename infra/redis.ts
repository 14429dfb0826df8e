import { readFileSync } from 'node:fs';
import { Redis, type RedisOptions } from 'ioredis';
import type { Config } from './config.ts';

/** The pause before an attempt to connect grows by this time with each attempt. */
const RETRY_STEP_MS = 20;
/** Longest pause between two attempts to connect. Clients notice within this time that Redis accepts connections again. */
const MAX_RETRY_DELAY_MS = 500;
const DEFAULT_PORT = 6379;
/**
 * A client replaces its connection when a command has no answer yet and Redis has sent no byte for this time. Without this limit, a connection to a
 * machine that failed, or behind a cut cable, would last for up to a quarter of an hour: the kernel sends the unanswered bytes again, at intervals of
 * up to two minutes, without a check whether Redis is back or its name has another address. A blocking command waits ten seconds at most, so its
 * silence does not count as a failure.
 */
const SILENT_MS = 30_000;

/** Options for a connection to the configured Redis. `maxRetriesPerRequest` is null unless overridden: BullMQ's blocking connections require it. */
export function redisOptions(config: Pick<Config, 'redis'>, overrides: RedisOptions = {}): RedisOptions {
  const common: RedisOptions = {
    maxRetriesPerRequest: null,
    retryStrategy: (attempt) => Math.min(RETRY_STEP_MS * attempt, MAX_RETRY_DELAY_MS),
    enableAutoPipelining: true,
    // When an operator turns the Redis server into a replica, the server keeps the connection open, but refuses writes with `READONLY`. A new
    // connection may reach the new primary, if the configured name leads there by then.
    reconnectOnError: ({ message }) => message.startsWith('READONLY'),
    ...overrides,
  };
  if (config.redis.kind === 'private') return { path: config.redis.socket, ...common };
  const { ca } = config.redis;
  // Take the path of a `unix:` URL without parsing the URL: a parser would encode the spaces of the path, and end the path at a `#`.
  const [, socket] = /^unix:(?:\/\/)?(.*)$/s.exec(config.redis.url) ?? [];
  if (socket !== undefined) return { path: socket, ...common };
  const url = new URL(config.redis.url);
  return {
    // An IPv6 address has brackets in a URL.
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? DEFAULT_PORT : Number(url.port),
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
