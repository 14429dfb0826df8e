import { statfs } from 'node:fs/promises';
import type { DefaultLimits } from '#scheduler/quotas/limits.ts';
import { diskShareBytes, redisShareBytes } from '#scheduler/quotas/shares.ts';
import type { Store } from '#scheduler/store/store.ts';

/** Default limits on a tenant's stored data: shares of the memory of Redis and of the disk of the home. */
export async function defaultShares(store: Store, home: string): Promise<DefaultLimits> {
  const [{ maxBytes, systemBytes }, { bsize, blocks }] = await Promise.all([store.memory(), statfs(home)]);
  return {
    // A Redis without a memory limit shares its machine's memory with other processes.
    'redis-bytes': redisShareBytes(maxBytes ?? systemBytes / 2),
    'disk-bytes': diskShareBytes(bsize * blocks),
  };
}
