import { cp, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { TestRedis } from '../../testing/redis.ts';

/** Runs `work`; what Redis answered for until its end is on disk, and a kill -9 cannot take it back. */
export async function durably<T>(redis: TestRedis, work: () => Promise<T>): Promise<T> {
  await setFsync(redis, 'always');
  const result = await work();
  await setFsync(redis, 'everysec');
  return result;
}

/**
 * Runs `work`, ends Redis with SIGKILL and starts it again without anything that it answered for in between: what a slow disk and a kill -9
 * do by chance with `appendfsync everysec`. What it had answered for before is there. Wants an append-only Redis.
 */
export async function losingWrites<T>(redis: TestRedis, work: () => Promise<T>): Promise<T> {
  const files = join(dirname(redis.socket), 'appendonlydir');
  const copy = `${files}-copy`;
  // With its answer, everything before is in the file.
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
