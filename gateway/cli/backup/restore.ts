import { existsSync, rmSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Redis } from 'ioredis';
import { missingRedisServer } from '#infra/bootstrap/redis-server.js';
import { type Config, loadConfig } from '#infra/config.ts';
import { assertHomeFree, claimHome, markRestoring } from '#infra/home.ts';
import { createKeys } from '#scheduler/keys.ts';
import { listMachines } from '#scheduler/machines/machines.ts';
import { MOST_WORDS, RestoreLost, RestoreMark, RestoreRuns } from '#scheduler/machines/restore-mark.ts';
import { Quotas } from '#scheduler/quotas/quotas.ts';
import { openMasterKeys } from '#scheduler/secrets/master-keys.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { Store } from '#scheduler/store/store.ts';
import { EXIT, Failure } from '../failure.ts';
import { ArchiveFault, readArchive } from './archive.ts';
import { assertRoom, type Contents, checkArchive } from './check.ts';
import { entryCommands, isIndexFile, isKept, pagesOf } from './entries.ts';
import { FileRestorer, keptFiles, removeFiles } from './home-files.ts';
import { hasPrivateRedis, PREFIX, withOwnRedis, withRedis } from './snapshot.ts';

/** Limits of the records that are on their way to Redis at once. */
const IN_FLIGHT_BYTES = 8 << 20;
const IN_FLIGHT_PARTS = 1000;
/** Keys of one UNLINK command: the command's name is a word, too. */
const UNLINKED_KEYS = MOST_WORDS - 1;

export interface RestoreRequest {
  readonly file: string;
  /** Replaces an existing platform. */
  readonly force: boolean;
  readonly environment?: NodeJS.ProcessEnv;
  readonly onProgress: (text: string) => void;
  readonly signal: AbortSignal;
}

/**
 * Restores a backup into this machine's home and its Redis. Reads and checks the whole file first, so a refused file changes nothing. A failed
 * restore removes what it has written. Throws {@link Failure}.
 */
export async function restore(request: RestoreRequest): Promise<Contents> {
  const config = loadConfig(request.environment);
  const file = await open(request.file, 'r').catch((cause: NodeJS.ErrnoException) => {
    throw unreadable(request.file, cause);
  });
  try {
    const contents = await checkedContents(file, request);
    await assertMasterKeys(config.home, contents, request.environment);
    assertHomeFree(config);
    const problem = config.redis.kind === 'private' ? missingRedisServer() : null;
    if (problem !== null) throw new Failure('The private Redis of the home cannot start.', { advice: problem });
    // If the home has no private Redis yet, check its files before `withOwnRedis` creates one: a refusal then leaves the home as it was.
    if (config.redis.kind === 'private' && !hasPrivateRedis(config.home)) await assertEmpty(config, null, request);
    const isNewHome = !existsSync(config.home);
    try {
      await withClaimedHome(config, () =>
        withOwnRedis(config, { create: true, signal: request.signal }, (settings) =>
          withRedis(settings, undefined, async (redis) => {
            const mark = await beginMark(redis);
            try {
              // Since `beginMark` took the lease, no further machine can start. `assertStopped` finds those that started before.
              await assertStopped(redis);
              await assertEmpty(config, redis, request);
              await assertRoom(config, redis, contents);
              await replace(config, redis, file, contents, { ...request, mark });
            } finally {
              await mark.release();
            }
          }),
        ),
      );
    } catch (error) {
      if (isNewHome) rmSync(config.home, { recursive: true, force: true });
      throw error instanceof RestoreLost ? lostFailure(error) : error;
    }
    return contents;
  } finally {
    await file.close();
  }
}

async function checkedContents(
  file: FileHandle,
  { file: name, onProgress, signal }: RestoreRequest,
): Promise<Contents> {
  try {
    return await checkArchive(file, (bytes) => {
      signal.throwIfAborted();
      onProgress(`Checking ${name}: ${Math.round(bytes / 1e6)} MB`);
    });
  } catch (error) {
    // Opening a folder succeeds; only reading it fails.
    if ((error as NodeJS.ErrnoException).syscall === 'read') throw unreadable(name, error as Error);
    if (!(error instanceof ArchiveFault)) throw error;
    throw new Failure(`${name} cannot be restored.`, {
      exitCode: EXIT.refused,
      code: 'bad-backup',
      why: error.message,
      advice: 'Nothing was changed. Use another backup.',
    });
  }
}

const unreadable = (file: string, cause: Error): Failure =>
  new Failure(`${file} cannot be read.`, {
    why: cause.message,
    advice: 'Name a backup that this user may read.',
    cause,
  });

/** Refuses a backup with secrets that no known master key opens: they would be lost without notice. */
async function assertMasterKeys(
  home: string,
  { masterKeys }: Contents,
  environment: NodeJS.ProcessEnv | undefined,
): Promise<void> {
  const known = openMasterKeys(home, { create: false, ...(environment && { environment }) });
  for (const id of masterKeys)
    if ((await known.byId(id)) === null)
      throw new Failure(`The secrets of the backup are sealed under the master key ${id}, which this home lacks.`, {
        exitCode: EXIT.refused,
        code: 'no-master-key',
        advice: `Put the master.key of the platform into ${home} (mode 0600), or set PIE_MASTER_KEY. A backup does not contain it.`,
      });
}

/** Claims the home, so that no platform starts in it meanwhile. */
async function withClaimedHome<T>(config: Config, work: () => Promise<T>): Promise<T> {
  const release = claimHome(config);
  try {
    return await work();
  } finally {
    release();
  }
}

async function beginMark(redis: Redis): Promise<RestoreMark> {
  try {
    return await RestoreMark.begin(new Store(redis, { prefix: PREFIX }), `${hostname()} (process ${process.pid})`);
  } catch (error) {
    if (!(error instanceof RestoreRuns)) throw error;
    throw new Failure(error.message, {
      exitCode: EXIT.refused,
      code: 'restore-runs',
      advice: 'Wait until it has ended, then run this again.',
    });
  }
}

function lostFailure(cause: RestoreLost): Failure {
  return new Failure(cause.message, {
    exitCode: EXIT.refused,
    code: 'restore-lost',
    advice: 'When no other restore runs, run this one again.',
    cause,
  });
}

async function assertStopped(redis: Redis): Promise<void> {
  const alive = (await listMachines(new Store(redis, { prefix: PREFIX }))).filter((machine) => machine.alive);
  if (alive.length === 0) return;
  throw new Failure(`The platform still runs: ${alive.map(({ name }) => name).join(', ')}.`, {
    exitCode: EXIT.refused,
    code: 'platform-runs',
    why: 'A restore replaces the records that its machines use.',
    advice: 'First stop `pie up` on every machine.',
  });
}

async function assertEmpty({ home }: Config, redis: Redis | null, { force }: RestoreRequest): Promise<void> {
  if (force) return;
  let occupiedPlace: string;
  if (await hasAny(keptFiles(home))) occupiedPlace = home;
  else if (redis !== null && (await hasAny(keptKeys(redis)))) occupiedPlace = 'its Redis';
  else return;
  throw new Failure(`There is a platform already: ${occupiedPlace} has records of it.`, {
    exitCode: EXIT.refused,
    code: 'not-empty',
    advice: 'Restore into a new home (PIE_HOME) and an empty Redis, or replace this platform for good with --force.',
  });
}

async function hasAny(items: AsyncIterable<unknown>): Promise<boolean> {
  for await (const _ of items) return true;
  return false;
}

async function* keptKeys(redis: Redis): AsyncGenerator<Buffer> {
  for await (const page of pagesOf(redis, PREFIX))
    yield* page.filter((key) => isKept(key.toString('utf8', PREFIX.length + 1)));
}

async function replace(
  config: Config,
  redis: Redis,
  file: FileHandle,
  contents: Contents,
  { onProgress, signal, mark }: RestoreRequest & { readonly mark: RestoreMark },
): Promise<void> {
  await mark.set();
  const unmark = markRestoring(config);
  const removeMarks = () => {
    unmark();
    mark.noteWhole();
  };
  await clear(config, redis, mark);
  try {
    await write(config, mark, file, AbortSignal.any([signal, mark.signal]), (records, files) =>
      onProgress(`${records} of ${contents.records} records, ${files} of ${contents.files} files`),
    );
    // A backup lacks the counts of tenants' bytes in Redis: without this repair, a tenant at its limit could store the same amount again.
    await new Quotas(new Store(redis)).repairRestored();
    await mark.renew();
  } catch (error) {
    // Remove the written data. If that fails, or another restore has begun, the marks stay: no machine starts on an incomplete platform.
    await mark
      .renew()
      .then(() => clear(config, redis, mark))
      .then(removeMarks, () => undefined);
    if (error instanceof StoreError && error.full)
      throw new Failure('Redis has too little memory for the backup.', {
        exitCode: EXIT.refused,
        code: 'redis-full',
        advice: 'Raise max_memory_mb below [redis] in pie.toml, or maxmemory of your Redis, then run this again.',
      });
    throw error;
  }
  removeMarks();
}

async function write(
  { home, machine }: Config,
  mark: RestoreMark,
  file: FileHandle,
  signal: AbortSignal,
  onProgress: (records: number, files: number) => void,
): Promise<void> {
  let [records, files, bytes] = [0, 0, 0];
  let hasIndexes = false;
  let sent: Promise<unknown>[] = [];
  const awaitSent = async () => {
    const batch = sent;
    [sent, bytes] = [[], 0];
    await Promise.all(batch);
  };
  const restorer = new FileRestorer(home);
  try {
    for await (const { header, body } of readArchive(file)) {
      signal.throwIfAborted();
      if (header.kind === 'entry') {
        const written = Promise.all(entryCommands(PREFIX, header, body).map((command) => mark.run(command)));
        // `awaitSent` handles a rejection. This handler keeps a rejection before then from ending the process.
        written.catch(() => undefined);
        sent.push(written);
        bytes += body.length;
        if (bytes > IN_FLIGHT_BYTES || sent.length >= IN_FLIGHT_PARTS) await awaitSent();
        if (header.first) records += 1;
        onProgress(records, files);
      } else if (header.kind === 'file') {
        await restorer.begin(header.path);
        hasIndexes ||= isIndexFile(header.path);
        files += 1;
        onProgress(records, files);
      } else if (header.kind === 'part') await restorer.write(body);
    }
    await awaitSent();
    // Make this machine the owner of the restored indexes. Otherwise, the first machine whose runtime uses an index would become
    // the owner, and begin with empty indexes.
    if (hasIndexes && machine.roles.includes('runtime'))
      await mark.run(['SET', createKeys(PREFIX).indexOwner, machine.name]);
  } finally {
    await Promise.allSettled(sent);
    await restorer.end();
  }
}

/** Removes all records of the platform from its Redis, and removes the folders that a backup contains from its home. */
async function clear({ home }: Config, redis: Redis, mark: RestoreMark): Promise<void> {
  for await (const page of pagesOf(redis, PREFIX)) {
    mark.signal.throwIfAborted();
    const keysToRemove = page.filter((key) => !mark.keys.includes(key.toString('utf8')));
    for (let at = 0; at < keysToRemove.length; at += UNLINKED_KEYS)
      await mark.run(['UNLINK', ...keysToRemove.slice(at, at + UNLINKED_KEYS)]);
  }
  mark.signal.throwIfAborted();
  await removeFiles(home);
}
