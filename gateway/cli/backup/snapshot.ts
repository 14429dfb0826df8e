import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises';
import { connect, isIP, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { Redis } from 'ioredis';
import type { Config } from '#infra/config.ts';
import { assertHomeFree, claimHome } from '#infra/home.ts';
import { openLog } from '#infra/log.ts';
import { privateRedis, snapshotRedis } from '#infra/processes.ts';
import { redisOptions } from '#infra/redis.ts';
import { type RedisSettings, shownRedis } from '#infra/redis-settings.ts';
import type { ChildSpec } from '#infra/supervisor/child.ts';
import { Supervisor } from '#infra/supervisor/supervisor.ts';
import { tryConnect } from '../connect.ts';
import { EXIT, Failure } from '../failure.ts';

/** Longest silence before the connection counts as broken. Redis sends a byte every ten seconds while it prepares the snapshot. */
const SILENCE_MS = 60_000;
const COMMAND_MS = 60_000;
/** Length of the mark by which Redis ends a snapshot of unknown length. */
const MARK_BYTES = 40;
const MAX_LINE_BYTES = 4096;

/**
 * Runs `work` on a copy of a Redis as of one moment. A temporary private Redis holds the copy, so no client changes it meanwhile. The file of
 * the snapshot lies in a temporary folder inside `directory`.
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
  // Without automatic pipelining, the commands keep their order.
  const orderedOptions = { ...options, enableAutoPipelining: false };
  const redis = new Redis(redisOptions({ redis: settings }, { ...orderedOptions, ...(db !== undefined && { db }) }));
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
  const socket = await openSocket(settings, signal);
  try {
    const stream = socket.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
    const nextChunk = async (): Promise<Buffer> => {
      const { value, done } = await stream.next().catch((cause: unknown) => {
        throw signal.aborted ? signal.reason : brokenOff(cause);
      });
      if (done) throw brokenOff();
      return value;
    };
    let unreadBytes: Buffer = Buffer.alloc(0);
    const readLine = async (): Promise<string> => {
      for (;;) {
        const end = unreadBytes.indexOf('\n');
        if (end >= 0) {
          const text = unreadBytes.toString('latin1', 0, end).trim();
          unreadBytes = unreadBytes.subarray(end + 1);
          return text;
        }
        if (unreadBytes.length > MAX_LINE_BYTES)
          throw new Failure(`The answer of ${shownRedis(settings)} is not that of a Redis.`, {
            exitCode: EXIT.refused,
            code: 'no-snapshot',
            why: `It has a line of more than ${MAX_LINE_BYTES} bytes.`,
            advice: 'Check the address: REDIS_URL, or url below [redis] in pie.toml.',
          });
        unreadBytes = Buffer.concat([unreadBytes, await nextChunk()]);
      }
    };
    const { username, password } = redisOptions({ redis: settings });
    const greeting = [
      ...(password ? [['AUTH', ...(username ? [username] : []), password]] : []),
      // With this capability, Redis sends the snapshot while it makes it, without writing a file first, and ends the snapshot with a mark.
      ['REPLCONF', 'capa', 'eof'],
      ['REPLCONF', 'rdb-only', '1'],
    ];
    // Redis refuses SYNC while it still owes an answer to an earlier command.
    for (const words of greeting) {
      socket.write(command(...words));
      const text = await readLine();
      // A Redis before version 7 does not know `rdb-only`, and goes on sending after the snapshot.
      if (text.startsWith('-') && !text.startsWith('-ERR Unrecognized REPLCONF option')) throw refused(text);
    }
    socket.write(command('SYNC'));
    const mark = await readAnnouncement(readLine);
    if (typeof mark === 'number') {
      for (let remainingBytes = mark; remainingBytes > 0; ) {
        if (unreadBytes.length === 0) unreadBytes = await nextChunk();
        const part = unreadBytes.subarray(0, remainingBytes);
        await file.writeFile(part);
        remainingBytes -= part.length;
        unreadBytes = unreadBytes.subarray(part.length);
      }
      return;
    }
    for (;;) {
      if (unreadBytes.length >= MARK_BYTES && unreadBytes.subarray(-MARK_BYTES).equals(mark)) break;
      // Keep the last bytes: the mark may begin in them.
      const safeLength = Math.max(0, unreadBytes.length - MARK_BYTES);
      await file.writeFile(unreadBytes.subarray(0, safeLength));
      unreadBytes = Buffer.concat([unreadBytes.subarray(safeLength), await nextChunk()]);
    }
    await file.writeFile(unreadBytes.subarray(0, -MARK_BYTES));
  } finally {
    socket.destroy();
  }
}

/** Reads how Redis announces the snapshot: by its length in bytes, or by the mark that will end it. */
async function readAnnouncement(readLine: () => Promise<string>): Promise<number | Buffer> {
  for (;;) {
    const text = await readLine();
    // While it prepares the snapshot, Redis sends empty lines.
    if (text === '') continue;
    const [, mark, bytes] = /^\$(?:EOF:(.{40})|(\d+))$/.exec(text) ?? [];
    if (mark !== undefined) return Buffer.from(mark, 'latin1');
    if (bytes === undefined) throw refused(text);
    return Number(bytes);
  }
}

const brokenOff = (cause?: unknown) =>
  new Failure('The connection to Redis broke before the snapshot was complete.', {
    exitCode: EXIT.unreachable,
    code: 'no-snapshot',
    why: cause instanceof Error ? cause.message : 'Redis ended the connection.',
    advice: 'Check that Redis runs, read its log, then run this again.',
    cause,
  });

const refused = (text: string) =>
  new Failure('Redis refused to send a snapshot.', {
    exitCode: EXIT.refused,
    code: 'no-snapshot',
    why: text.replace(/^-/, ''),
    advice:
      'Run this on the first machine, with the operator’s Redis user. That user needs the permissions SYNC and REPLCONF.',
  });

async function openSocket(settings: RedisSettings, signal: AbortSignal): Promise<Socket> {
  const { path: socketPath, host = 'localhost', port = 6379, tls } = redisOptions({ redis: settings });
  const endpoint = socketPath === undefined ? { host, port } : { path: socketPath };
  // Node refuses an IP address as a server name.
  const serverNameOption = isIP(host) === 0 && { servername: host };
  const socket = tls === undefined ? connect(endpoint) : connectTls({ ...endpoint, ...tls, ...serverNameOption });
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
    advice:
      settings.kind === 'external'
        ? 'Check that this Redis runs, and the address: REDIS_URL, or url below [redis] in pie.toml.'
        : 'Run this again; if it fails again, `pie doctor` looks for the cause.',
    cause,
  });
}

/** Prefix of the keys of every platform that `pie up` starts. */
export const PREFIX = 'pie';
const CONNECT_DEADLINE_MS = 1000;

/**
 * Runs the work with the Redis of the platform in this home. Starts a stopped private Redis for the time of the work.
 * @param create true to create a missing private Redis
 * @param signal ends a private Redis that is not ready yet
 */
export async function withOwnRedis<T>(
  config: Config,
  { create, signal }: { readonly create: boolean; readonly signal: AbortSignal },
  work: (settings: RedisSettings) => Promise<T>,
): Promise<T> {
  const { redis, home } = config;
  if (redis.kind === 'external' || (await tryConnect({ path: redis.socket }, CONNECT_DEADLINE_MS)) === null)
    return work(redis);
  assertHomeFree(config);
  if (!create && !hasPrivateRedis(home))
    throw new Failure(`There is no platform in ${home}.`, {
      exitCode: EXIT.refused,
      code: 'no-platform',
      advice: 'Set PIE_HOME to the home of the platform.',
    });
  // A restore (`create`) has claimed the home already; a backup claims it here, so that no `pie up` starts a second Redis on the same files.
  const release = create ? () => undefined : claimHome(config);
  const { logsDirectory } = config;
  try {
    return await withProcess(privateRedis(config, redis), { logsDirectory, signal }, () => work(redis));
  } finally {
    release();
  }
}

export function hasPrivateRedis(home: string): boolean {
  return existsSync(path.join(home, 'redis'));
}

/**
 * Starts a process, runs the work once the process is ready, and ends the process afterwards. An abort before the process is ready ends the
 * process; the work handles a later abort itself.
 * @throws the signal's reason, ChildStartError
 */
async function withProcess<T>(
  spec: ChildSpec,
  { logsDirectory, signal }: { readonly logsDirectory: string; readonly signal: AbortSignal },
  work: () => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const supervisor = new Supervisor({ logsDirectory, log: openLog('pie'), report: () => undefined });
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= supervisor.stop([]);
    return stopped;
  };
  signal.addEventListener('abort', stop, { once: true });
  try {
    await supervisor
      .start([spec])
      .catch((error: unknown) => {
        if (!signal.aborted) throw error;
      })
      .finally(() => signal.removeEventListener('abort', stop));
    signal.throwIfAborted();
    return await work();
  } finally {
    await stop();
  }
}
