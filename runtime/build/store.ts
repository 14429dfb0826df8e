import { randomBytes } from 'node:crypto';
import { renameSync, statSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Artifact, artifactMetaSchema, GLUE_FILE, META_FILE } from './artifact/artifact.ts';

/** Names of what is being written start with this; whoever writes them has the process id in the name. */
const TEMPORARY = '.tmp-';
/** Age from which a temporary folder is taken for left behind: many times a build's time limit. */
const STALE_MS = 60 * 60 * 1000;

/** A folder of its own inside `directory`, for one build. The caller removes it. */
export async function makeTemporary(directory: string): Promise<string> {
  const path = join(directory, `${TEMPORARY}${process.pid}-${randomBytes(6).toString('hex')}`);
  await mkdir(path, { recursive: true });
  return path;
}

/** Removes temporary folders whose builder must be dead. */
export async function sweep(directory: string): Promise<void> {
  for (const name of await readdir(directory).catch(() => [])) {
    if (!name.startsWith(TEMPORARY)) continue;
    const path = join(directory, name);
    const age = await stat(path).then(
      ({ mtimeMs }) => Date.now() - mtimeMs,
      () => 0,
    );
    if (age > STALE_MS) await rm(path, { recursive: true, force: true });
  }
}

/** When this process read artifacts, by folder, by `performance.now`; of those that other processes read the folder's time tells. */
const readAt = new Map<string, number>();

/** The artifact of that hash, for use: it stays for a while from now on. Null when it is not there, not whole, or another's. */
export async function readArtifact(store: string, hash: string): Promise<Artifact | null> {
  const directory = join(store, hash);
  // Before anything is waited for, so that nothing of this process removes it from here on.
  readAt.set(directory, performance.now());
  const artifact = await readArtifactAsItIs(store, hash);
  const now = new Date();
  // A folder that only others may write is not theirs to remove either.
  if (artifact) await utimes(directory, now, now).catch(() => undefined);
  return artifact;
}

/** The same without using it. */
export async function readArtifactAsItIs(store: string, hash: string): Promise<Artifact | null> {
  const directory = join(store, hash);
  try {
    const meta = artifactMetaSchema.parse(JSON.parse(await readFile(join(directory, META_FILE), 'utf8')));
    if (meta.hash !== hash) return null;
    return {
      hash,
      directory,
      glue: join(directory, GLUE_FILE),
      coreModules: meta.coreModules.map(({ file }) => file),
      meta,
    };
  } catch {
    return null;
  }
}

/**
 * Removes an artifact that nothing has read for `unusedMs`, and says whether it did. It is taken out of its place in one step: a reader of this
 * process has it whole or finds none, which makes it be built again. What another process began to use in between is put back.
 */
export async function removeUnusedArtifact(store: string, hash: string, unusedMs: number): Promise<boolean> {
  const directory = join(store, hash);
  const aside = join(store, `${TEMPORARY}${process.pid}-${randomBytes(6).toString('hex')}`);
  const usedSince = (path: string) => Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0) < unusedMs;
  // Nothing is waited for between this look and the renaming.
  const used = readAt.get(directory);
  if (used !== undefined && performance.now() - used < unusedMs) return false;
  readAt.delete(directory);
  if (usedSince(directory)) return false;
  try {
    renameSync(directory, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
  if (usedSince(aside)) {
    await publishDirectory(aside, directory);
    return false;
  }
  await rm(aside, { recursive: true, force: true });
  return true;
}

/** Puts a finished folder where it belongs, in one step. When another process was first, its result stays: both are the same. */
export async function publishDirectory(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
    await rm(from, { recursive: true, force: true });
  }
}

/** Writes a file in one step. */
export async function publishFile(path: string, bytes: Uint8Array): Promise<void> {
  const temporary = `${path}.${process.pid}-${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(temporary, bytes);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}
