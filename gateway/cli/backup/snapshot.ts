import { once } from 'node:events';
import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises';
import { connect, isIP, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { Redis } from 'ioredis';
import { snapshotRedis } from '#infra/processes.ts';
import { redisOptions } from '#infra/redis.ts';
import { type RedisSettings, shownRedis } from '#infra/redis-settings.ts';
import { EXIT, Failure } from '../failure.ts';
import { withProcess } from './with-process.ts';

/** Longest silence of Redis, which sends a byte every ten seconds while it prepares the snapshot. */
const SILENCE_MS = 60_000;
const COMMAND_MS = 60_000;
/** Length of the mark by which Redis ends a snapshot of unknown length. */
const MARK_BYTES = 40;
const MAX_LINE_BYTES = 4096;

/**
 * Runs `work` on a copy of a Redis as of one moment. A private Redis holds the copy, so nothing changes it meanwhile; its file lies in a
 * temporary folder inside `directory`.
 */
export async function withSnapshot<T>(
  settings: RedisSettings,
  directory: string,
  signal: AbortSignal,
  work: (snapshot: Redis) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(path.join(directory, '.pie-backup-'));
  // The backup's folder may have a path that is too long for a socket, or lie in a file system without sockets.
  const sockets = await mkdtemp(path.join(os.tmpdir(), 'pie-'));
  try {
    const file = await open(path.join(folder, 'snapshot.rdb'), 'wx', 0o600);
    try {
      await receiveSnapshot(settings, file, signal);
    } finally {
      await file.close();
    }
    const { spec, redis } = snapshotRedis(folder, path.join(sockets, 'redis.sock'));
    const { db = 0 } = redisOptions({ redis: settings });
    return await withProcess(spec, { logsDirectory: folder, signal }, () => withRedis(redis, db, work));
  } finally {
    for (const each of [folder, sockets]) await rm(each, { recursive: true, force: true });
  }
}

/** Runs `work` with a connection whose commands have a deadline, and closes it afterwards. */
export async function withRedis<T>(
  settings: RedisSettings,
  db: number | undefined,
  work: (redis: Redis) => Promise<T>,
): Promise<T> {
  const options = { maxRetriesPerRequest: 0, retryStrategy: () => null, commandTimeout: COMMAND_MS, lazyConnect: true };
  // Commands of one connection keep their order.
  const ordered = { ...options, enableAutoPipelining: false };
  const redis = new Redis(redisOptions({ redis: settings }, { ...ordered, ...(db !== undefined && { db }) }));
  redis.on('error', () => undefined); // The failing command reports the error.
  try {
    await redis.connect().catch((cause: unknown) => {
      throw unreachable(settings, cause);
    });
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}

/** Asks Redis for a snapshot, as a replica does, and writes it to a file. */
async function receiveSnapshot(settings: RedisSettings, file: FileHandle, signal: AbortSignal): Promise<void> {
  const socket = await connected(settings, signal);
  try {
    const stream = socket.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
    const next = async (): Promise<Buffer> => {
      const { value, done } = await stream.next();
      if (done) throw new Failure('Redis ended the connection before the snapshot was complete.', refusal(''));
      return value;
    };
    let held: Buffer = Buffer.alloc(0);
    const line = async (): Promise<string> => {
      for (;;) {
        const end = held.indexOf('\n');
        if (end >= 0) {
          const text = held.toString('latin1', 0, end).trim();
          held = held.subarray(end + 1);
          return text;
        }
        if (held.length > MAX_LINE_BYTES)
          throw new Failure(`Redis answered with a line of more than ${MAX_LINE_BYTES} bytes.`, refusal(''));
        held = Buffer.concat([held, await next()]);
      }
    };
    const { username, password } = redisOptions({ redis: settings });
    const greeting = [
      ...(password ? [['AUTH', ...(username ? [username] : []), password]] : []),
      // Redis then sends the snapshot while making it, without writing a file, and ends it with a mark.
      ['REPLCONF', 'capa', 'eof'],
      ['REPLCONF', 'rdb-only', '1'],
    ];
    // Redis refuses SYNC while it still owes an answer to an earlier command.
    for (const words of greeting) {
      socket.write(command(...words));
      const text = await line();
      // A Redis before version 7 does not know `rdb-only`: it goes on sending after the mark.
      if (text.startsWith('-') && !text.startsWith('-ERR Unrecognized REPLCONF option')) throw refused(text);
    }
    socket.write(command('SYNC'));
    const mark = await announced(line);
    if (typeof mark === 'number') {
      for (let left = mark; left > 0; ) {
        if (held.length === 0) held = await next();
        const part = held.subarray(0, left);
        await file.writeFile(part);
        left -= part.length;
        held = held.subarray(part.length);
      }
      return;
    }
    for (;;) {
      if (held.length >= MARK_BYTES && held.subarray(-MARK_BYTES).equals(mark)) break;
      // The mark may begin in the last bytes.
      const sure = Math.max(0, held.length - MARK_BYTES);
      await file.writeFile(held.subarray(0, sure));
      held = Buffer.concat([held.subarray(sure), await next()]);
    }
    await file.writeFile(held.subarray(0, -MARK_BYTES));
  } finally {
    socket.destroy();
  }
}

/** The length of the snapshot that Redis announces, or the mark at its end. */
async function announced(line: () => Promise<string>): Promise<number | Buffer> {
  for (;;) {
    const text = await line();
    // While it prepares the snapshot, Redis sends empty lines.
    if (text === '') continue;
    const [, mark, bytes] = /^\$(?:EOF:(.{40})|(\d+))$/.exec(text) ?? [];
    if (mark !== undefined) return Buffer.from(mark, 'latin1');
    if (bytes === undefined) throw refused(text);
    return Number(bytes);
  }
}

const refused = (text: string) => new Failure('Redis refused to send a snapshot.', refusal(text));

const refusal = (text: string) => ({
  exitCode: EXIT.refused,
  code: 'no-snapshot',
  ...(text !== '' && { why: text.replace(/^-/, '') }),
  advice:
    'Run this on the first machine, with the operator’s Redis user. That user needs the permissions SYNC and REPLCONF.',
});

async function connected(settings: RedisSettings, signal: AbortSignal): Promise<Socket> {
  const { path: at, host = 'localhost', port = 6379, tls } = redisOptions({ redis: settings });
  const to = at === undefined ? { host, port } : { path: at };
  // Node refuses an IP address as a server name.
  const named = isIP(host) === 0 && { servername: host };
  const socket = tls === undefined ? connect(to) : connectTls({ ...to, ...tls, ...named });
  socket.setTimeout(SILENCE_MS, () => socket.destroy(new Error(`Redis sent nothing for ${SILENCE_MS / 1000} s`)));
  signal.addEventListener('abort', () => socket.destroy(signal.reason as Error), { once: true });
  try {
    await once(socket, tls === undefined ? 'connect' : 'secureConnect', { signal });
  } catch (cause) {
    socket.destroy();
    throw signal.aborted ? signal.reason : unreachable(settings, cause);
  }
  return socket;
}

function command(...words: string[]): string {
  return `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`;
}

function unreachable(settings: RedisSettings, cause: unknown): Failure {
  return new Failure(`Redis at ${shownRedis(settings)} cannot be reached.`, {
    exitCode: EXIT.unreachable,
    code: 'connection-failed',
    why: cause instanceof Error ? cause.message : String(cause),
    cause,
  });
}
