import { copyFile, mkdtemp, open, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Redis } from 'ioredis';
import { ArchiveWriter, type Header, listBody, listOf, readArchive } from '#gateway/cli/backup/archive.ts';
import { withOwnRedis } from '#gateway/cli/backup/own-redis.ts';
import { restore } from '#gateway/cli/backup/restore.ts';
import { withRedis } from '#gateway/cli/backup/snapshot.ts';
import { loadConfig } from '#infra/config.ts';
import { SPANS, type Span, spanNumber } from '#scheduler/quotas/names.ts';
import { type Client, json, type StreamEvent } from '../harness/events.ts';

/** Folder of the stored states: one folder for each version of Pie that wrote one. */
export const FOLDER = path.dirname(fileURLToPath(import.meta.url));

/** A record of Redis as text. */
export interface StoredRecord {
  readonly key: string;
  readonly type: string;
  /** Texts in the answer to the command that reads a record of this type (`GET`, `HGETALL`, `ZRANGE`, `XRANGE`). */
  readonly items: readonly string[];
}

/** The platform's answers when the state was recorded. */
export interface Expected {
  /** API key of the operator, valid in this fixture alone. */
  readonly operatorKey: string;
  /** API key of the tenant, valid in this fixture alone. */
  readonly tenantKey: string;
  /** Id of an ended invocation. */
  readonly invocation: string;
  readonly events: readonly StreamEvent[];
  readonly answers: Readonly<Record<string, unknown>>;
}

/** The tenant's routes. Later versions must give the same answers. `{invocation}` stands for the id of the ended invocation. */
export const ROUTES = [
  '/v1/functions/keeper',
  '/v1/functions/keeper/versions',
  '/v1/functions/keeper/aliases',
  '/v1/functions/keeper/aliases/live/history',
  '/v1/keys',
  '/v1/secrets',
  '/v1/webhooks/secret',
  '/v1/schedules',
  '/v1/usage?by=month',
  '/v1/quotas',
  '/v1/invocations/{invocation}',
  '/v1/invocations/{invocation}/input',
  '/v1/invocations',
] as const;

/** Members that depend on the time of the request. */
const CHANGING = ['nextAt', 'resetsAt', 'lastUsedAt', 'at'];

/** The answers to `ROUTES`, without members that change and without limits that are the platform's defaults. */
export async function answersOf(client: Client, invocation: string): Promise<Record<string, unknown>> {
  const answers: Record<string, unknown> = {};
  for (const route of ROUTES)
    answers[route] = withoutChangingMembers(await json(await client.fetch(route.replace('{invocation}', invocation))));
  return answers;
}

function withoutChangingMembers(answer: unknown): unknown {
  const text = JSON.stringify(answer, (name, member) => {
    if (name === 'quotas') return (member as { source: string }[]).filter(({ source }) => source !== 'default');
    return CHANGING.includes(name) ? undefined : member;
  });
  return JSON.parse(text);
}

export const expectedOf = async (version: string): Promise<Expected> =>
  JSON.parse(await readFile(path.join(FOLDER, version, 'expected.json'), 'utf8')) as Expected;

/** Restores the state that a version stored into a home, as if it had been written a moment ago. */
export async function restoreState(version: string, home: string): Promise<void> {
  const stored = path.join(FOLDER, version);
  const environment = { PATH: process.env.PATH, PIE_HOME: home };
  await copyFile(path.join(stored, 'master.key'), path.join(home, 'master.key'));
  const folder = await mkdtemp(path.join(os.tmpdir(), 'pie-state-'));
  try {
    const file = path.join(folder, 'backup');
    await renew(path.join(stored, 'backup'), file, Date.now());
    const signal = AbortSignal.timeout(60_000);
    await restore({ file, force: false, environment, onProgress: () => undefined, signal });
  } finally {
    await rm(folder, { recursive: true });
  }
  const records = JSON.parse(await readFile(path.join(stored, 'invocations.json'), 'utf8')) as StoredRecord[];
  const signal = AbortSignal.timeout(60_000);
  await withOwnRedis(loadConfig(environment), { create: false, signal }, (settings) =>
    withRedis(settings, undefined, (redis) => write(redis, records)),
  );
}

/** Copies a backup. Moves expiry times and the windows of counters forward by the backup's age, since a restore drops expired records. */
async function renew(from: string, to: string, now: number): Promise<void> {
  const [source, target] = [await open(from, 'r'), await open(to, 'wx')];
  try {
    const archive = new ArchiveWriter(target);
    let writtenAt = now;
    for await (const { header, body } of readArchive(source)) {
      if (header.kind === 'backup') {
        writtenAt = Date.parse(header.createdAt);
        await archive.add({ ...header, createdAt: new Date(now).toISOString() });
      } else if (header.kind === 'end') await archive.end();
      else if (header.kind === 'entry') await archive.add(...renewed(header, body, writtenAt, now));
      else await archive.add(header, body);
    }
  } finally {
    await Promise.all([source.close(), target.close()]);
  }
}

/** Moves an entry's expiry time forward, and the span of usage counters. The key holds the span's number, but the values hold the latest minute's. */
function renewed(header: Header & { kind: 'entry' }, body: Buffer, writtenAt: number, now: number): [Header, Buffer] {
  const { expiresAt } = header;
  const moved = { ...header, ...(expiresAt !== undefined && { expiresAt: expiresAt + now - writtenAt }) };
  const [name, ...items] = listOf(body);
  const key = String(name);
  const [, keyPrefix = '', window = '', number = ''] = /^(account:.+:usage:)(\w+)(?::(\d+))?$/s.exec(key) ?? [];
  const shiftOf = (span: Span): number => spanNumber(span, now) - spanNumber(span, writtenAt);
  if (window === 'latest') {
    const minutes = items.map((item, i) => (i % 2 === 0 ? item : laterMinute(item, shiftOf('minute'))));
    return [moved, listBody([Buffer.from(key), ...minutes])];
  }
  const span = SPANS.find((each) => each === window);
  if (span === undefined) return [moved, body];
  return [moved, listBody([Buffer.from(`${keyPrefix}${span}:${Number(number) + shiftOf(span)}`), ...items])];
}

/** The byte before an unsigned number of 32 bits in MessagePack. */
const MESSAGE_PACK_UINT32 = 0xce;

/** Moves the minute of packed counts forward. It is the last element of a MessagePack array, an unsigned number of 32 bits. */
function laterMinute(packed: Buffer, minutes: number): Buffer {
  const copy = Buffer.from(packed);
  const at = copy.length - 4;
  if (copy[at - 1] !== MESSAGE_PACK_UINT32)
    throw new Error('The counts of the last minute end with no number of 32 bits.');
  copy.writeUInt32BE(copy.readUInt32BE(at) + minutes, at);
  return copy;
}

/** The records of all invocations, which must be those of `tenant`, and the lists of its invocations. A backup has none of them. */
export async function readRecords(redis: Redis, tenant: string): Promise<StoredRecord[]> {
  const keys = [...(await redis.keys('pie:invocation:*')), ...(await redis.keys(`pie:listing:${tenant}*`))];
  return Promise.all(keys.sort().map((key) => readRecord(redis, key)));
}

async function readRecord(redis: Redis, key: string): Promise<StoredRecord> {
  const type = await redis.type(key);
  switch (type) {
    case 'string':
      return { key, type, items: [(await redis.get(key)) ?? ''] };
    case 'hash':
      return { key, type, items: Object.entries(await redis.hgetall(key)).flat() };
    case 'zset':
      return { key, type, items: await redis.zrange(key, 0, '-1', 'WITHSCORES') };
    case 'stream':
      return { key, type, items: (await redis.xrange(key, '-', '+')).map((entry) => JSON.stringify(entry)) };
    default:
      throw new Error(`${key} has the type ${type}.`);
  }
}

async function write(redis: Redis, records: readonly StoredRecord[]): Promise<void> {
  for (const { key, type, items } of records) {
    if (type === 'string') await redis.set(key, items.join(''));
    else if (type === 'hash') await redis.hset(key, ...items);
    else if (type === 'zset') {
      // `items` alternate between member and score; ZADD takes the score first.
      await redis.zadd(key, ...items.flatMap((item, i) => (i % 2 === 0 ? [items[i + 1] ?? '', item] : [])));
    } else {
      for (const entry of items) {
        const [id, fields] = JSON.parse(entry) as [string, string[]];
        await redis.xadd(key, id, ...fields);
      }
    }
  }
}
