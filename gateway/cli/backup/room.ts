import { existsSync } from 'node:fs';
import { stat, statfs } from 'node:fs/promises';
import path from 'node:path';
import type { Redis } from 'ioredis';
import type { Config } from '#infra/config.ts';
import { EXIT, Failure } from '../failure.ts';
import type { EntryType } from './archive.ts';
import type { Contents } from './check.ts';
import { CHUNK_BYTES } from './entries.ts';
import { keptFiles } from './home-files.ts';

/** Memory that Redis takes for a record beside its bytes. */
const RECORD_BYTES = 96;
/** Memory that Redis reserves behind a string to which a restore appends. */
const APPENDED_BYTES = 1 << 20;
/** Memory that Redis takes for commands under way, and for removed records that it frees later. */
const SPARE_BYTES = 4 << 20;
/** By default, Redis packs the items of a record into one block of memory if the record has at most `items`, each of at most `itemBytes`. */
const PACKED = {
  items: 128,
  itemBytes: 64,
  /** Bytes that Redis adds to each packed item. */
  moreBytes: 4,
};
/** Bytes, approximately, that Redis adds to each item that is not packed. */
const ITEM_BYTES: Readonly<Record<EntryType, number>> = { string: 0, list: 8, stream: 8, set: 56, hash: 36, zset: 56 };

/**
 * Memory, approximately, that Redis takes for a part of a record beside the bytes of its items. Pure.
 * @param first true for the first part, which also counts what the record takes as a whole
 */
export function overheadBytes(type: EntryType, first: boolean, items: readonly Buffer[]): number {
  const isAppended = type === 'string' && (items[0]?.length ?? 0) >= CHUNK_BYTES;
  const isPacked = items.length <= PACKED.items && items.every(({ length }) => length <= PACKED.itemBytes);
  return (
    (first ? RECORD_BYTES + (isAppended ? APPENDED_BYTES : 0) : 0) +
    items.length * (isPacked ? PACKED.moreBytes : ITEM_BYTES[type])
  );
}

/**
 * Checks, before the restore removes anything, that the backup fits in place of the present platform. Assumes that Redis has no data of other
 * programs. Throws {@link Failure}.
 */
export async function assertRoom(
  config: Config,
  redis: Redis,
  contents: Pick<Contents, 'recordBytes' | 'fileBytes' | 'memoryBytes'>,
): Promise<void> {
  const memory = await memoryOf(redis);
  const neededMemory = contents.memoryBytes + SPARE_BYTES;
  if (memory !== null && neededMemory > memory)
    throw new Failure('Redis has too little memory for the backup.', {
      exitCode: EXIT.refused,
      code: 'redis-full',
      why: `It needs about ${mb(neededMemory)}, and Redis takes ${mb(memory)}.`,
      advice: 'Nothing was changed. Raise max_memory_mb below [redis] in pie.toml, or maxmemory of your Redis.',
    });
  // A private Redis writes the records to the same disk. While it rewrites its append-only file, the old and the new file each contain them.
  const neededDisk = contents.fileBytes + (config.redis.kind === 'private' ? 2 * contents.recordBytes : 0);
  const freeDisk = (await freeBytes(config.home)) + (await keptBytes(config.home));
  if (neededDisk > freeDisk)
    throw new Failure(`The disk of ${config.home} has too little room for the backup.`, {
      exitCode: EXIT.refused,
      code: 'disk-full',
      why: `It needs ${mb(neededDisk)}, and ${mb(freeDisk)} are free.`,
      advice: 'Nothing was changed. Make room, or set PIE_HOME to a folder on another disk.',
    });
}

/** Bytes of data that Redis can store when it is empty; null without a limit. */
async function memoryOf(redis: Redis): Promise<number | null> {
  const infoText = await redis.info('memory');
  const field = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(infoText)?.[1] ?? 0);
  const limit = field('maxmemory');
  return limit === 0 ? null : limit - field('used_memory_startup');
}

/** Bytes free on the disk that has, or will have, the home. */
async function freeBytes(home: string): Promise<number> {
  let folder = home;
  while (!existsSync(folder)) folder = path.dirname(folder);
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

/** Bytes of the home's files that a backup contains. The restore frees at least these: it removes whole folders, which may have further files. */
async function keptBytes(home: string): Promise<number> {
  let bytes = 0;
  for await (const file of keptFiles(home)) bytes += (await stat(path.join(home, file))).size;
  return bytes;
}

const mb = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;
