import type { Redis } from 'ioredis';

/** All records of a Redis with their values. */
export async function contents(
  redis: Redis,
  isWanted: (key: string) => boolean = () => true,
): Promise<Record<string, unknown>> {
  const keys = (await redis.keys('*')).sort().filter(isWanted);
  return Object.fromEntries(await Promise.all(keys.map(async (key) => [key, await contentOf(redis, key)])));
}

async function contentOf(redis: Redis, key: string): Promise<unknown> {
  const type = await redis.type(key);
  if (type === 'string') return redis.getBuffer(key);
  if (type === 'hash') return Object.entries(await redis.hgetallBuffer(key)).sort(byName);
  if (type === 'set') return (await redis.smembers(key)).sort();
  if (type === 'zset') return redis.zrange(key, '0', '-1', 'WITHSCORES');
  if (type === 'list') return redis.lrangeBuffer(key, 0, -1);
  return redis.xrangeBuffer(key, '-', '+');
}

const byName = ([a]: [string, unknown], [b]: [string, unknown]) => (a < b ? -1 : 1);
