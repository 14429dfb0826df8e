import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { type RedisSettings, shownRedis } from '#infra/redis-settings.ts';
import type { Finding } from './finding.ts';

const run = promisify(execFile);

/** Longest wait for one answer. */
const DEADLINE_MS = 5000;

/**
 * Checks the Redis of the configuration.
 *
 * @throws ConfigError when the configuration is wrong
 */
export async function checkRedis(environment: NodeJS.ProcessEnv = process.env): Promise<Finding> {
  const { redis } = loadConfig(environment);
  return redis.kind === 'private' ? checkRedisProgram() : pingRedis(redis);
}

/** Connects as the platform does: with the password, over TLS, or to a unix socket. */
async function pingRedis(redis: RedisSettings): Promise<Finding> {
  const addressText = shownRedis(redis);
  const connection = connectRedis(
    { redis },
    { lazyConnect: true, connectTimeout: DEADLINE_MS, commandTimeout: DEADLINE_MS, retryStrategy: () => null },
  );
  let problem = '';
  // The rejection of a failed connection says only that it closed; this event says why.
  connection.on('error', (error) => {
    problem = error.message;
  });
  try {
    await connection.connect();
    await connection.ping();
    return { name: 'redis', state: 'ok', detail: `${addressText} answers` };
  } catch (thrown) {
    return {
      name: 'redis',
      state: 'failed',
      detail: `${addressText}: ${problem || (thrown instanceof Error ? thrown.message : String(thrown))}`,
      advice: 'Correct REDIS_URL, or url and ca below [redis] in pie.toml. Without a url Pie starts a private server.',
    };
  } finally {
    connection.disconnect();
  }
}

async function checkRedisProgram(): Promise<Finding> {
  try {
    const { stdout } = await run('redis-server', ['--version'], { timeout: DEADLINE_MS });
    return { name: 'redis', state: 'ok', detail: `redis-server ${/v=([\d.]+)/.exec(stdout)?.[1] ?? 'found'}` };
  } catch (error) {
    const failed = { name: 'redis', state: 'failed' } as const;
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') {
      return {
        ...failed,
        detail: 'redis-server is not on the PATH',
        advice: 'Install it (Debian: `sudo apt-get install redis-server`), or set REDIS_URL.',
      };
    }
    return {
      ...failed,
      detail: `\`redis-server --version\` failed: ${error instanceof Error ? error.message : String(error)}`,
      advice: 'Run that command and correct what it reports, or set REDIS_URL.',
    };
  }
}
