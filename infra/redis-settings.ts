import path from 'node:path';
import { z } from 'zod';
import { ConfigError } from './config-error.ts';

/** `private`: a redis-server that the supervisor starts, on a unix socket. `external`: one that several machines may share. */
export type RedisSettings =
  | { readonly kind: 'private'; readonly socket: string; readonly maxMemoryMb: number }
  | {
      readonly kind: 'external';
      readonly url: string;
      /** File with the certificates of the authorities that may have signed the server's certificate; by default Node's own list. */
      readonly ca?: string;
    };

const REDIS_URL = /^(rediss?:\/\/[^/]|unix:\/)/;

function isRedisUrl(text: string): boolean {
  const url = REDIS_URL.test(text) ? URL.parse(text) : null;
  return url !== null && (url.protocol === 'unix:' || /^\/?\d{0,5}$/.test(url.pathname));
}

/** A URL of a Redis. The error does not repeat the URL, which may contain a password. */
export const redisUrl = z.string().refine(isRedisUrl, {
  error: 'must be redis://HOST:PORT/DATABASE, rediss://USER:PASSWORD@HOST:PORT (with TLS) or unix:/PATH',
});

export const redisSchema = z
  .strictObject({
    url: redisUrl.optional(),
    ca: z.string().min(1).optional(),
    max_memory_mb: z.int().min(64).max(16_777_216).optional(),
  })
  .default({});

/**
 * @param settings those of the configuration file
 * @param url URL of the environment, which replaces the URL of the file
 * @param source path of the file: a relative `ca` starts from its folder
 * @throws ConfigError if the file sets `ca`, but neither URL begins with rediss:// (TLS)
 */
export function redisSettings(
  settings: z.output<typeof redisSchema>,
  url: string | undefined,
  privateDefaults: { readonly socket: string; readonly maxMemoryMb: number },
  source: string | undefined,
): RedisSettings {
  // One URL with TLS is enough. The environment may replace the file's URL by one without TLS: `ca` is then unused.
  if (settings.ca !== undefined && ![settings.url, url].some((each) => each?.startsWith('rediss:'))) {
    const rule = 'redis.ca: needs a url that begins with rediss://, below [redis] or as REDIS_URL';
    throw new ConfigError(`Wrong configuration in ${source}:\n  ${rule}`);
  }
  const external = url ?? settings.url;
  if (external === undefined)
    return {
      kind: 'private',
      socket: privateDefaults.socket,
      maxMemoryMb: settings.max_memory_mb ?? privateDefaults.maxMemoryMb,
    };
  const ca = settings.ca === undefined ? undefined : path.resolve(path.dirname(source ?? ''), settings.ca);
  return { kind: 'external', url: external, ...(ca !== undefined && external.startsWith('rediss:') && { ca }) };
}

/** The URL for messages, without its password. */
export function shownRedis(settings: RedisSettings): string {
  if (settings.kind === 'private') return settings.socket;
  const url = new URL(settings.url);
  if (url.password !== '') url.password = '***';
  return url.href;
}
