import { existsSync } from 'node:fs';
import { type FileHandle, mkdtemp, open, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Redis } from 'ioredis';
import { missingRedisServer } from '#infra/bootstrap/redis-server.js';
import { type Config, loadConfig } from '#infra/config.ts';
import { assertRestored } from '#infra/home.ts';
import { createKeys } from '#scheduler/keys.ts';
import { PlatformRestoring } from '#scheduler/machines/lease.ts';
import { holderOf } from '#scheduler/machines/restore-mark.ts';
import { EXIT, Failure } from '../failure.ts';
import { ARCHIVE_VERSION, ArchiveWriter } from './archive.ts';
import { keptEntries } from './entries.ts';
import { addFile, keptFiles } from './home-files.ts';
import { PREFIX, withOwnRedis, withSnapshot } from './snapshot.ts';

export interface BackupRequest {
  readonly file: string;
  readonly release: string;
  readonly environment?: NodeJS.ProcessEnv;
  readonly onProgress: (text: string) => void;
  readonly signal: AbortSignal;
}

export interface BackupSummary {
  readonly file: string;
  readonly records: number;
  readonly files: number;
  readonly bytes: number;
}

/**
 * Writes a backup of the platform in this machine's home: the records of Redis as of one moment, then the files of the home. Each file is
 * complete, as of a later moment. The backup has a temporary name until it is complete, and a failure removes it. Throws {@link Failure}.
 */
export async function backUp(request: BackupRequest): Promise<BackupSummary> {
  const file = path.resolve(request.file);
  if (existsSync(file))
    throw new Failure(`${file} already exists.`, { advice: 'Name a new file, or remove this one.' });
  const problem = missingRedisServer();
  if (problem !== null)
    throw new Failure('A backup needs the program redis-server, which is missing.', { advice: problem });
  const config = loadConfig(request.environment);
  assertRestored(config);
  const draft = `${file}.partial-${process.pid}`;
  const handle = await open(draft, 'wx', 0o600).catch((cause: NodeJS.ErrnoException) => {
    throw new Failure(`${file} cannot be written.`, {
      why: cause.message,
      advice: 'Name a file in a folder that this user may write.',
      cause,
    });
  });
  try {
    const summary = await withOwnRedis(config, { create: false, signal: request.signal }, (settings) =>
      write(config, settings, handle, request, path.dirname(file)),
    );
    // A restore may have begun meanwhile.
    assertRestored(config);
    await rename(draft, file);
    return { file, ...summary };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    throw new Failure(`The disk of ${path.dirname(file)} is full.`, {
      exitCode: EXIT.refused,
      code: 'disk-full',
      advice: 'Free some space, or name a file on another disk.',
    });
  } finally {
    await handle.close();
    await rm(draft, { force: true });
  }
}

async function write(
  config: Config,
  redis: Config['redis'],
  handle: FileHandle,
  { release, onProgress, signal }: BackupRequest,
  directory: string,
): Promise<Omit<BackupSummary, 'file'>> {
  const archive = new ArchiveWriter(handle);
  let [records, files] = [0, 0];
  const reportProgress = () => onProgress(`${records} records, ${files} files, ${Math.round(archive.bytes / 1e6)} MB`);
  await archive.add({
    kind: 'backup',
    version: ARCHIVE_VERSION,
    release,
    createdAt: new Date().toISOString(),
    machine: config.machine.name,
  });
  onProgress('Taking a snapshot of Redis');
  await withSnapshot(redis, directory, signal, async (snapshot) => {
    await assertWhole(snapshot);
    for await (const { header, body } of keptEntries(snapshot, PREFIX)) {
      signal.throwIfAborted();
      await archive.add(header, body);
      // A long record comes in several parts.
      if (header.first) records += 1;
      reportProgress();
    }
  });
  const scratch = await mkdtemp(path.join(directory, '.pie-backup-'));
  try {
    for await (const relativePath of keptFiles(config.home)) {
      signal.throwIfAborted();
      if (await addFile(archive, config.home, relativePath, scratch)) files += 1;
      reportProgress();
    }
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
  await archive.end();
  return { records, files, bytes: archive.bytes };
}

/** Refuses a snapshot with incomplete records: a restore, on any machine, is writing them or has broken off. */
async function assertWhole(snapshot: Redis): Promise<void> {
  const mark = await snapshot.get(createKeys(PREFIX).restoreMark);
  if (mark === null) return;
  throw new Failure(new PlatformRestoring(holderOf(mark)).message, {
    exitCode: EXIT.refused,
    code: 'restore-runs',
    advice: 'Wait until the restore has ended. If it broke off, run `pie restore FILE --force` again.',
  });
}
