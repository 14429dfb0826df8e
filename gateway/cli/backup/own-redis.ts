import { existsSync } from 'node:fs';
import path from 'node:path';
import type { Config } from '#infra/config.ts';
import { assertHomeFree, claimHome } from '#infra/home.ts';
import { privateRedis } from '#infra/processes.ts';
import type { RedisSettings } from '#infra/redis-settings.ts';
import { tryConnect } from '../connect.ts';
import { EXIT, Failure } from '../failure.ts';
import { withProcess } from './with-process.ts';

/** Prefix of the keys of every platform that `pie up` starts. */
export const PREFIX = 'pie';
const CONNECT_DEADLINE_MS = 1000;

/**
 * Runs the work with the Redis of the platform in this home. Starts a stopped private Redis for the time of the work.
 * @param create true to create a missing private Redis
 * @param signal ends a private Redis that is not ready yet
 */
export async function withOwnRedis<T>(
  config: Config,
  { create, signal }: { readonly create: boolean; readonly signal: AbortSignal },
  work: (settings: RedisSettings) => Promise<T>,
): Promise<T> {
  const { redis, home } = config;
  if (redis.kind === 'external' || (await tryConnect({ path: redis.socket }, CONNECT_DEADLINE_MS)) === null)
    return work(redis);
  assertHomeFree(config);
  if (!create && !hasPrivateRedis(home))
    throw new Failure(`There is no platform in ${home}.`, {
      exitCode: EXIT.refused,
      code: 'no-platform',
      advice: 'Set PIE_HOME to the home of the platform.',
    });
  // A restore (`create`) has claimed the home already; a backup claims it here, so that no `pie up` starts a second Redis on the same files.
  const release = create ? () => undefined : claimHome(config);
  const { logsDirectory } = config;
  try {
    return await withProcess(privateRedis(config, redis), { logsDirectory, signal }, () => work(redis));
  } finally {
    release();
  }
}

export function hasPrivateRedis(home: string): boolean {
  return existsSync(path.join(home, 'redis'));
}
