import { randomBytes } from 'node:crypto';
import { renameSync, rmSync, statSync } from 'node:fs';
import { lstat, mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { type Artifact, GLUE_FILE, META_FILE, TYPE_FILE, TYPE_TEXT } from './artifact/artifact.ts';
import { type ArtifactMeta, artifactMetaSchema } from './artifact/meta-schema.ts';
import { MAX_DESCRIPTION_BYTES, moveDirectory, publishDirectory, readPlainFile } from './publish.ts';

/** Prefix of the names of unfinished files and folders; the writer's process id follows. */
const TEMPORARY = '.tmp-';
/** Maximum bytes of all files of an artifact together; several times the largest component. */
const MAX_ARTIFACT_BYTES = 256 * 2 ** 20;
/** Age at which a temporary folder counts as abandoned: many times a build's time limit. */
const STALE_MS = 60 * 60 * 1000;

const temporaryPath = (directory: string): string =>
  join(directory, `${TEMPORARY}${process.pid}-${randomBytes(6).toString('hex')}`);

/** Makes a folder inside `directory` for one build. The caller removes it. */
export async function makeTemporary(directory: string): Promise<string> {
  const path = temporaryPath(directory);
  await mkdir(path, { recursive: true });
  return path;
}

/** Removes a folder that an untrusted process may have written. */
export async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch {
    // `rmSync`, unlike `rm`, also removes paths that are too long for the kernel.
    rmSync(path, { recursive: true, force: true });
  }
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
    if (age > STALE_MS) await removeTree(path);
  }
}

/** Time of this process's last read of each artifact's folder, by `performance.now`. The folder's mtime shows reads by other processes. */
const readAt = new Map<string, number>();

/**
 * Notes that this process reads an artifact, so that it does not remove the artifact from here on. The caller calls the returned function when the
 * artifact is missing: `removeUnusedArtifact`, which also deletes notes, is called only for existing artifacts.
 */
export function noteRead(directory: string): () => void {
  const at = performance.now();
  readAt.set(directory, at);
  return () => {
    if (readAt.get(directory) === at) readAt.delete(directory);
  };
}

/** Reads an artifact for use, which protects it from removal for a while. Null when it is missing, incomplete, or has another hash. */
export async function readArtifact(store: string, hash: string): Promise<Artifact | null> {
  const directory = join(store, hash);
  const forget = noteRead(directory);
  const artifact = await readArtifactAsItIs(store, hash);
  if (artifact === null) {
    forget();
    return null;
  }
  const now = new Date();
  // Ignore errors: a process that may not write the folder cannot set its time.
  await utimes(directory, now, now).catch(() => undefined);
  return artifact;
}

/** Reads an artifact without protecting it from removal. */
export async function readArtifactAsItIs(store: string, hash: string): Promise<Artifact | null> {
  const directory = join(store, hash);
  try {
    const meta = await readMeta(directory);
    if (meta.hash !== hash || !(await isWhole(directory, meta))) return null;
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
 * True when every file has the length that the build wrote: after a power loss, some files of an artifact can be empty. The content is not
 * checked here; a launch checks the modules that it reads. Throws when a file is missing.
 */
async function isWhole(directory: string, { coreModules, glue }: ArtifactMeta): Promise<boolean> {
  const files = [...coreModules, glue, { file: TYPE_FILE, bytes: TYPE_TEXT.length }];
  const lengthChecks = files.map(async ({ file, bytes }) => (await lstat(join(directory, file))).size === bytes);
  return (await Promise.all(lengthChecks)).every(Boolean);
}

async function readMeta(directory: string): Promise<ArtifactMeta> {
  return artifactMetaSchema.parse(
    JSON.parse(String(await readPlainFile(join(directory, META_FILE), MAX_DESCRIPTION_BYTES))),
  );
}

/**
 * Moves the files of an artifact from the folder `from`, which an untrusted process wrote, to the new folder `to`. Other files stay behind.
 *
 * @throws Error when `from` is a link, a file of the artifact is missing or not a regular file, or the files have too many bytes
 */
export async function takeArtifactFiles(from: string, to: string): Promise<void> {
  // If `from` were a link, the files of another artifact would be moved.
  if (!(await lstat(from)).isDirectory()) throw new Error('the artifact is not a folder');
  const { coreModules } = await readMeta(from);
  await mkdir(to);
  let remainingBytes = MAX_ARTIFACT_BYTES;
  for (const name of new Set([META_FILE, GLUE_FILE, TYPE_FILE, ...coreModules.map(({ file }) => file)])) {
    const info = await lstat(join(from, name));
    if (!info.isFile()) throw new Error(`${name} of the artifact is not a regular file`);
    remainingBytes -= info.size;
    if (remainingBytes < 0) throw new Error(`the artifact has more than ${MAX_ARTIFACT_BYTES} bytes`);
    await rename(join(from, name), join(to, name));
  }
}

/**
 * Moves the finished artifact in the folder `from` to its place in the store. A whole artifact that is there already stays, because processes
 * may be reading it. A damaged one is first moved aside in one step, because another build could publish into a half-removed folder.
 */
export async function publishArtifact(from: string, store: string, hash: string): Promise<void> {
  const directory = join(store, hash);
  if (await moveDirectory(from, directory)) return;
  const aside = temporaryPath(store);
  if (!(await readArtifact(store, hash))) {
    await rename(directory, aside).catch((error: NodeJS.ErrnoException) => {
      // Another build has moved it.
      if (error.code !== 'ENOENT') throw error;
    });
  }
  await publishDirectory(from, directory);
  await removeTree(aside);
}

/**
 * Removes an artifact that no process has read for `unusedMs`, and returns true if it did. The folder is first renamed in one step, so that a
 * reader in this process gets the whole artifact, or none and builds it again. An artifact that another process began to use is put back.
 */
export async function removeUnusedArtifact(store: string, hash: string, unusedMs: number): Promise<boolean> {
  const directory = join(store, hash);
  const aside = temporaryPath(store);
  const wasUsedRecently = (path: string) =>
    Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0) < unusedMs;
  // No await stands between this check and the rename, so no read of this process can begin between them.
  const lastReadMs = readAt.get(directory);
  if (lastReadMs !== undefined && performance.now() - lastReadMs < unusedMs) return false;
  readAt.delete(directory);
  if (wasUsedRecently(directory)) return false;
  try {
    renameSync(directory, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
  if (wasUsedRecently(aside)) {
    await publishDirectory(aside, directory);
    return false;
  }
  await rm(aside, { recursive: true, force: true });
  return true;
}
