import { statfs } from 'node:fs/promises';
import { type DefaultLimits, diskShareBytes, redisShareBytes } from '#scheduler/quotas/limits.ts';
import { DEFAULT_SCHEDULES } from '#scheduler/schedules/rules.ts';
import type { Store } from '#scheduler/store/store.ts';

/**
 * Limits of a tenant where `pie.toml` sets none: shares of the memory of Redis and of the disk of the home, and the number of schedules.
 * The class `Schedules` enforces the number of schedules even without this entry; with it, lists of limits show the number.
 */
export async function defaultLimits(store: Store, home: string): Promise<DefaultLimits> {
  const [{ maxBytes, systemBytes }, { bsize, blocks }] = await Promise.all([store.memory(), statfs(home)]);
  return {
    // A Redis without a memory limit shares its machine's memory with other processes, so only half of that memory counts.
    'redis-bytes': redisShareBytes(maxBytes ?? systemBytes / 2),
    'disk-bytes': diskShareBytes(bsize * blocks),
    schedules: DEFAULT_SCHEDULES,
  };
}
