import { statfs } from 'node:fs/promises';
import type { DefaultLimits } from '#scheduler/quotas/limits.ts';
import { diskShareBytes, redisShareBytes } from '#scheduler/quotas/shares.ts';
import type { Store } from '#scheduler/store/store.ts';

/** What a tenant may keep for which the configuration says nothing: shares of the memory of Redis and of the disk of the home. */
export async function defaultShares(store: Store, home: string): Promise<DefaultLimits> {
  const [{ maxBytes, systemBytes }, { bsize, blocks }] = await Promise.all([store.memory(), statfs(home)]);
  return {
    // A Redis without a bound shares its machine's memory with others.
    'redis-bytes': redisShareBytes(maxBytes ?? systemBytes / 2),
    'disk-bytes': diskShareBytes(bsize * blocks),
  };
}
