import { createHash, type Hash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { type FileHandle, stat, statfs } from 'node:fs/promises';
import path from 'node:path';
import type { Redis } from 'ioredis';
import { z } from 'zod';
import type { Config } from '#infra/config.ts';
import { EXIT, Failure } from '../failure.ts';
import { ArchiveFault, type Description, type EntryType, readArchive } from './archive.ts';
import { CHUNK_BYTES, checkedItems, componentHash, holdsSealed, holdsVersions, isKeptFile } from './entries.ts';
import { keptFiles } from './home-files.ts';

/** Maximum files of one backup, since the check keeps their paths to find duplicates. */
const MAX_FILES = 1_000_000;
/** A sealed value begins with the id of its master key. */
const SEALED = /^([0-9a-f]{8})\.[\w-]+$/;
/** The part of a function version that is sealed. */
const versionSchema = z.object({ environment: z.record(z.string(), z.string()) });

/** Contents of a completely checked backup. */
export interface Contents extends Description {
  readonly records: number;
  readonly files: number;
  readonly recordBytes: number;
  readonly fileBytes: number;
  /** Memory that Redis takes for the records, approximately. */
  readonly memoryBytes: number;
  /** Ids of the master keys under which its secrets and the environments of its functions are sealed. */
  readonly masterKeys: ReadonlySet<string>;
}

/**
 * Reads a whole file and checks what a restore relies on: its format, its checksum, every record and path, and the hashes of components.
 * @throws ArchiveFault
 */
export async function checkArchive(file: FileHandle, onBytes: (bytes: number) => void): Promise<Contents> {
  let description: Description | undefined;
  const masterKeys = new Set<string>();
  const paths = new Set<string>();
  const component = new ComponentCheck();
  let [records, recordBytes, memoryBytes, fileBytes, bytes] = [0, 0, 0, 0, 0];
  /** Bytes of the present file of the home that its parts have not brought yet. */
  let remainingBytes = 0;
  /** Type and key of the record that the last frame belongs to; empty when the last frame was no part of a record. */
  let previousEntry = '';
  for await (const { header, body } of readArchive(file)) {
    if (header.kind !== 'part' && remainingBytes > 0)
      throw new ArchiveFault('A file in the backup is shorter than it says.');
    if (header.kind !== 'entry') {
      component.end();
      previousEntry = '';
    }
    switch (header.kind) {
      case 'backup':
        description = header;
        break;
      case 'entry': {
        const { key, items } = checkedItems(header, body);
        // The parts of a record must follow each other, the first part first: its restore deletes whatever was written under the key before.
        if (!header.first && previousEntry !== `${header.type} ${key}`)
          throw new ArchiveFault(`A part of ${key} is missing.`);
        previousEntry = `${header.type} ${key}`;
        if (header.first) records += 1;
        recordBytes += body.length;
        memoryBytes += body.length + overheadBytes(header.type, header.first, items);
        component.take(key, header.first, items);
        if (holdsSealed(key)) for (const item of items) addMasterKeyOf(item.toString('utf8'), masterKeys);
        if (holdsVersions(key)) for (const item of items) addMasterKeysOfVersion(item.toString('utf8'), masterKeys);
        break;
      }
      case 'file':
        if (!isKeptFile(header.path)) throw new ArchiveFault('The file has a path that no backup has.');
        if (paths.has(header.path)) throw new ArchiveFault(`The file has ${header.path} twice.`);
        if (paths.size >= MAX_FILES) throw new ArchiveFault(`The file has more than ${MAX_FILES} files.`);
        paths.add(header.path);
        remainingBytes = header.bytes;
        fileBytes += header.bytes;
        break;
      case 'part':
        if (body.length === 0 || body.length > remainingBytes)
          throw new ArchiveFault('A file in the backup is longer than it says.');
        remainingBytes -= body.length;
        break;
      case 'end':
        break;
    }
    bytes += body.length;
    onBytes(bytes);
  }
  if (description === undefined) throw new ArchiveFault('The file is not a backup of Pie.');
  return { ...description, records, files: paths.size, recordBytes, fileBytes, memoryBytes, masterKeys };
}

function addMasterKeyOf(text: string, masterKeys: Set<string>): void {
  const id = SEALED.exec(text)?.[1];
  if (id !== undefined) masterKeys.add(id);
}

/**
 * Adds the master keys of a function version's environment. Other items of the record (names of versions, states of
 * aliases) have no sealed values, so they add none.
 */
function addMasterKeysOfVersion(text: string, masterKeys: Set<string>): void {
  if (!text.startsWith('{')) return;
  try {
    const version = versionSchema.safeParse(JSON.parse(text));
    for (const sealed of Object.values(version.data?.environment ?? {})) addMasterKeyOf(sealed, masterKeys);
  } catch {
    // Not JSON: the platform cannot read such a version, whatever master keys it has.
  }
}

/** Compares the bytes of components with the hashes that name them. */
class ComponentCheck {
  #expected: string | undefined;
  #hash: Hash | undefined;

  take(key: string, first: boolean, items: readonly Buffer[]): void {
    if (first) {
      this.end();
      this.#expected = componentHash(key);
      this.#hash = this.#expected === undefined ? undefined : createHash('sha256');
    }
    for (const item of items) this.#hash?.update(item);
  }

  end(): void {
    const expected = this.#expected;
    this.#expected = undefined;
    if (expected !== undefined && this.#hash?.digest('hex') !== expected)
      throw new ArchiveFault(`The component ${expected} has other bytes than its name says.`);
  }
}

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
function overheadBytes(type: EntryType, first: boolean, items: readonly Buffer[]): number {
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
