import { cp, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { TestRedis } from '../../testing/redis.ts';

/** Runs `work`. All writes that Redis has acknowledged by the end of `work` are on disk, and survive a kill -9. */
export async function durably<T>(redis: TestRedis, work: () => Promise<T>): Promise<T> {
  await setFsync(redis, 'always');
  const result = await work();
  await setFsync(redis, 'everysec');
  return result;
}

/**
 * Runs `work`, kills Redis with SIGKILL and restarts it without the writes acknowledged during `work`. With `appendfsync everysec`, a slow disk
 * and a kill -9 may have this effect. Writes acknowledged before `work` survive. Requires an append-only Redis.
 */
export async function losingWrites<T>(redis: TestRedis, work: () => Promise<T>): Promise<T> {
  const files = join(dirname(redis.socket), 'appendonlydir');
  const copy = `${files}-copy`;
  // Once Redis has answered this command, all earlier writes are in the file.
  await setFsync(redis, 'always');
  await cp(files, copy, { recursive: true });
  try {
    const result = await work();
    await redis.kill();
    await rm(files, { recursive: true });
    await cp(copy, files, { recursive: true });
    await redis.restart();
    return result;
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}

async function setFsync(redis: TestRedis, policy: 'always' | 'everysec'): Promise<void> {
  const connection = redis.connect();
  try {
    await connection.config('SET', 'appendfsync', policy);
  } finally {
    connection.disconnect();
  }
}
