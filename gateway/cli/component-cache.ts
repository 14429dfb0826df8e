import { readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';

/** Maximum bytes of compiled components on a user's disk. A component has about 2 MB. */
const MAX_CACHE_BYTES = 512 * 2 ** 20;
/** Components used within this time stay, since another command may still need them. */
const IN_USE_MS = 10 * 60_000;

/**
 * Removes the least recently used components until the rest takes at most `maxBytes`. Other commands may do so at the same time. Skips
 * an unreadable or read-only folder, because no build depends on the removal.
 */
export function trimComponentCache(folder: string, maxBytes = MAX_CACHE_BYTES, now = Date.now()): void {
  try {
    const files = readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .flatMap(({ name }) => {
        const file = path.join(folder, name);
        const stat = statSync(file, { throwIfNoEntry: false });
        return stat === undefined ? [] : [{ file, bytes: stat.size, usedAt: stat.mtimeMs }];
      })
      .sort((a, b) => a.usedAt - b.usedAt);
    let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    for (const { file, bytes: size, usedAt } of files) {
      if (bytes <= maxBytes || now - usedAt < IN_USE_MS) return;
      rmSync(file, { force: true });
      bytes -= size;
    }
  } catch {
    // The folder does not exist, or belongs to another user.
  }
}
