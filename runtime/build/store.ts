import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Artifact, type ArtifactMeta, GLUE_FILE, META_FILE } from './artifact/artifact.ts';

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

/** The artifact of that hash; null when it is not there or not whole. */
export async function readArtifact(store: string, hash: string): Promise<Artifact | null> {
  const directory = join(store, hash);
  try {
    const meta = JSON.parse(await readFile(join(directory, META_FILE), 'utf8')) as ArtifactMeta;
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
