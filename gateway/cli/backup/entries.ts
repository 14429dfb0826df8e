import type { Redis } from 'ioredis';
import { MOST_WORDS, type RestoreCommand } from '#scheduler/machines/restore-mark.ts';
import { ArchiveFault, type EntryType, type Header, listBody, listOf } from './archive.ts';

type EntryHeader = Header & { readonly kind: 'entry' };

/** Bytes of items at which a frame is complete. Its last item may exceed this size. */
export const CHUNK_BYTES = 1 << 20;
/** Items per read command; few, since each may have up to a mebibyte. */
const PAGE = 16;
/** Maximum items of one command, beside its name and its key. Even, so that two commands never share a pair. */
const MAX_ITEMS_PER_COMMAND = MOST_WORDS - 2;
const ADDS = { hash: 'HSET', set: 'SADD', list: 'RPUSH', zset: 'ZADD' } as const;

interface EntryPart {
  readonly header: EntryHeader;
  readonly body: Buffer;
}

/** The records that a backup keeps, in parts. The Redis must not change meanwhile. SCAN may repeat a key; its record then comes twice, completely. */
export async function* keptEntries(redis: Redis, prefix: string): AsyncGenerator<EntryPart> {
  for await (const page of pagesOf(redis, prefix)) {
    const keptKeys = page.filter((key) => isKept(nameOf(key, prefix)));
    const queries = redis.pipeline();
    for (const key of keptKeys) queries.type(key).call('PEXPIRETIME', key);
    const replies = (await queries.exec()) ?? [];
    for (const [i, key] of keptKeys.entries()) {
      // The pipeline has two queries for each key.
      const [[typeError, type] = [], [timeError, time] = []] = replies.slice(2 * i);
      if (typeError || timeError) throw typeError ?? timeError;
      const expiresAtMs = Number(time);
      // A component has an expiry only until a function version uses it. This one belongs to an unfinished upload.
      if (expiresAtMs > 0 && componentHash(nameOf(key, prefix)) !== undefined) continue;
      yield* entryParts(redis, key, prefix, String(type), expiresAtMs);
    }
  }
}

async function* entryParts(
  redis: Redis,
  key: Buffer,
  prefix: string,
  type: string,
  expiresAtMs: number,
): AsyncGenerator<EntryPart> {
  let first = true;
  for await (const items of itemsOf(redis, key, type)) {
    const header = {
      kind: 'entry',
      type: type as EntryType,
      first,
      ...(expiresAtMs > 0 && { expiresAt: expiresAtMs }),
    } as const;
    yield { header, body: listBody([key.subarray(prefix.length + 1), ...items]) };
    first = false;
  }
}

const nameOf = (key: Buffer, prefix: string): string => key.toString('utf8', prefix.length + 1);

/** All keys below a prefix, in pages. */
export async function* pagesOf(redis: Redis, prefix: string): AsyncGenerator<Buffer[]> {
  const match = `${prefix.replace(/[*?[\]\\^]/g, '\\$&')}:*`;
  for (let cursor = '0', first = true; first || cursor !== '0'; first = false) {
    const [next, keys] = (await redis.scanBuffer(cursor, 'MATCH', match, 'COUNT', 1000)) as [Buffer, Buffer[]];
    yield keys;
    cursor = next.toString();
  }
}

async function* itemsOf(redis: Redis, key: Buffer, type: string): AsyncGenerator<Buffer[]> {
  switch (type) {
    case 'string':
      return yield* stringParts(redis, key);
    case 'hash':
      return yield* chunksOf(scanItems(redis, 'HSCAN', key), 2);
    case 'set':
      return yield* chunksOf(scanItems(redis, 'SSCAN', key), 1);
    case 'zset':
      return yield* chunksOf(scanItems(redis, 'ZSCAN', key), 2);
    case 'list':
      return yield* chunksOf(listItems(redis, key), 1);
    case 'stream':
      return yield* streamEntries(redis, key);
    default:
      // The record has expired since the listing.
      return;
  }
}

async function* stringParts(redis: Redis, key: Buffer): AsyncGenerator<Buffer[]> {
  for (let at = 0; ; at += CHUNK_BYTES) {
    const part = await redis.getrangeBuffer(key, at, at + CHUNK_BYTES - 1);
    if (part.length > 0 || at === 0) yield [part];
    if (part.length < CHUNK_BYTES) return;
  }
}

async function* scanItems(redis: Redis, command: 'HSCAN' | 'SSCAN' | 'ZSCAN', key: Buffer): AsyncGenerator<Buffer> {
  for (let cursor = '0', first = true; first || cursor !== '0'; first = false) {
    const [next, items] = (await redis.callBuffer(command, key, cursor, 'COUNT', PAGE)) as [Buffer, Buffer[]];
    yield* items;
    cursor = next.toString();
  }
}

async function* listItems(redis: Redis, key: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; ; at += PAGE) {
    const items = await redis.lrangeBuffer(key, at, at + PAGE - 1);
    yield* items;
    if (items.length < PAGE) return;
  }
}

/** Each entry of a stream goes in a part of its own: its id, then its fields. */
async function* streamEntries(redis: Redis, key: Buffer): AsyncGenerator<Buffer[]> {
  for (let after = '-'; ; ) {
    const entries = (await redis.xrangeBuffer(key, after, '+', 'COUNT', PAGE)) as [Buffer, Buffer[]][];
    for (const [id, fields] of entries) yield [id, ...fields];
    const last = entries.at(-1);
    if (last === undefined || entries.length < PAGE) return;
    after = `(${last[0].toString()}`;
  }
}

/** Gathers items into chunks. A chunk has whole groups of `group` items: 2 for pairs. */
async function* chunksOf(items: AsyncIterable<Buffer>, group: number): AsyncGenerator<Buffer[]> {
  let chunk: Buffer[] = [];
  let bytes = 0;
  for await (const item of items) {
    chunk.push(item);
    bytes += item.length;
    if (bytes < CHUNK_BYTES || chunk.length % group !== 0) continue;
    yield chunk;
    chunk = [];
    bytes = 0;
  }
  if (chunk.length > 0) yield chunk;
}

/** The key of a part, without the platform's prefix, and its items. @throws ArchiveFault for a part that no backup has */
export function checkedItems({ type }: EntryHeader, body: Buffer): { readonly key: string; readonly items: Buffer[] } {
  const [name, ...items] = listOf(body);
  const key = name?.toString('utf8') ?? '';
  const isWellFormed = {
    string: items.length === 1,
    hash: items.length > 0 && items.length % 2 === 0,
    zset: items.length > 0 && items.length % 2 === 0 && items.every((item, i) => i % 2 === 0 || isScore(item)),
    set: items.length > 0,
    list: items.length > 0,
    stream: items.length > 2 && items.length % 2 === 1 && /^\d+-\d+$/.test(items[0]?.toString() ?? ''),
  }[type];
  // The last condition refuses a name that is not UTF-8.
  if (!isKept(key) || !name?.equals(Buffer.from(key)))
    throw new ArchiveFault('The file has a record that no backup has.');
  if (!isWellFormed) throw new ArchiveFault(`The record ${key} of the file is malformed.`);
  return { key, items };
}

const isScore = (item: Buffer): boolean =>
  item.length > 0 && !Number.isNaN(Number(item.toString().replace('inf', 'Infinity')));

/** Commands that write one part of a record. The caller runs the parts in their order. */
export function entryCommands(prefix: string, header: EntryHeader, body: Buffer): RestoreCommand[] {
  const { key: name, items } = checkedItems(header, body);
  const key = `${prefix}:${name}`;
  const { type, first, expiresAt } = header;
  const commands: RestoreCommand[] = [];
  if (first) commands.push(['DEL', key]);
  if (type === 'string') commands.push([first ? 'SET' : 'APPEND', key, ...items]);
  else if (type === 'stream') commands.push(['XADD', key, ...items]);
  else {
    // In a backup, a score follows its member. ZADD takes the score first.
    const words =
      type === 'zset' ? items.flatMap((item, i) => (i % 2 === 0 ? [items[i + 1] as Buffer, item] : [])) : items;
    for (let at = 0; at < words.length; at += MAX_ITEMS_PER_COMMAND)
      commands.push([ADDS[type], key, ...words.slice(at, at + MAX_ITEMS_PER_COMMAND)]);
  }
  // Redis deletes the record at once if this time has already passed.
  if (expiresAt !== undefined) commands.push(['PEXPIREAT', key, String(expiresAt)]);
  return commands;
}

/**
 * The records that a backup contains: objects that operators and tenants made, and counters. A backup leaves out
 * invocations, their queues, logs and files, leases, metrics and data that the platform recreates. Keys are without the
 * platform's prefix, see `scheduler/keys.ts`.
 */
const KEPT = [
  /^(functions|tenant|tenant-keys|schedules|webhook-secret):[^:]+$/,
  /^function:[^:]+:[^:]+(:removed|:history:[^:]+|:conduct:[^:]+)?$/,
  /^(deployed|engines|removals|tenants|store-sweeps|scheduled-tenants|master-key|drained|shared-folder|audit|guarded-audit)$/,
  /^blob:[0-9a-f]{64}(:users)?$/,
  /^key:[0-9a-f]{64}$/,
  /^(audit|guarded-audit):[^:]+$/,
  /^secrets:[^:]+(:values)?$/,
  // A restore brings back no invocations, files or logs, so a backup leaves out the counters of them.
  /^account:[^:]+:(?!(open|redis|redis-ends|latency|grants)$).+$/s,
  /^store:[^:]+:(values|names|expiries|usage)$/,
  // Message queues. Their names may contain any characters.
  /^line:[^:]+:.+:(messages|state)$/s,
  /^lines:[^:]+:(usage|expiries)$/,
  /^machines:(removed|joined)$/,
  /^name-owners:[^:]+:.+$/s,
  /^durable-names:[^:]+$/,
];

/** True for a record that a backup has. Pure. */
export function isKept(key: string): boolean {
  return KEPT.some((pattern) => pattern.test(key));
}

/** The SHA-256 that the bytes of a component must have, by its key; undefined for other keys. */
export function componentHash(key: string): string | undefined {
  return /^blob:([0-9a-f]{64})$/.exec(key)?.[1];
}

/** True for the key of a record with sealed values. */
export function holdsSealed(key: string): boolean {
  return /^secrets:[^:]+:values$/.test(key) || key.startsWith('webhook-secret:');
}

/** True for the key of a record with function versions, whose environments are sealed. */
export function holdsVersions(key: string): boolean {
  return /^function:[^:]+:[^:]+(:removed)?$/.test(key);
}

/** Databases of vector indexes, by tenant. A backup leaves out the graphs, which are rebuilt from the databases. */
const INDEX_FILE = /^indexes\/[0-9a-f]{32}\/[\w.-]+\/records\.db$/;

const FILES = [
  // Persistent exports and KV files of a GPU host's model, by tenant.
  /^kv\/[^/\0]+\/[^/\0]+\/[0-9a-f]{40}\/[a-z]+-[0-9a-f]{40}\.kv$/,
  INDEX_FILE,
];

/** True for a file of the home that a backup has, by its path relative to the home, with slashes. Pure. */
export function isKeptFile(path: string): boolean {
  const hasPlainParts = !path.split('/').some((part) => /^\.*$/.test(part));
  return FILES.some((pattern) => pattern.test(path)) && hasPlainParts;
}

/** True for the database of a vector index, by its path as for {@link isKeptFile}. Pure. */
export function isIndexFile(path: string): boolean {
  return INDEX_FILE.test(path);
}
