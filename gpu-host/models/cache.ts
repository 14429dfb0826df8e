import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { parseConfig } from './config.ts';
import { readJson } from './load.ts';
import { cacheName, parseSource } from './source.ts';

/** Written last into a model's directory: a directory without it is not a finished model. */
const MANIFEST = 'pie-model.json';
/** Raised when conversions change, so that models converted before are made again. */
const LAYOUT_VERSION = 1;

const ABANDONED_AFTER_MS = 14 * 24 * 3_600_000;

const manifestSchema = z.looseObject({
  layoutVersion: z.literal(LAYOUT_VERSION),
  name: z.string(),
  source: z.string(),
  checksum: z.string().nullable(),
  pulledAt: z.string(),
});

/** Where a cached model came from. */
export interface ModelManifest {
  readonly name: string;
  readonly source: string;
  /** Of what was downloaded, as `sha512-…` or `sha256:…`; null when the source gave none. */
  readonly checksum: string | null;
  /** ISO 8601. */
  readonly pulledAt: string;
}

/** A model of the cache, for lists. */
export interface CachedModel extends ModelManifest {
  readonly directory: string;
  readonly family: string;
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** Of all files. */
  readonly bytes: number;
}

/** The cache that all clones and homes share: `$PIE_MODELS`, `$XDG_CACHE_HOME/pie/models` or `~/.cache/pie/models`. */
export function defaultCacheDirectory(env: NodeJS.ProcessEnv = process.env): string {
  if (env.PIE_MODELS) return resolve(env.PIE_MODELS);
  return join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'pie', 'models');
}

/** The directory of a finished model in the cache, or null. */
export async function findCached(name: string, cacheDirectory: string): Promise<string | null> {
  const directory = join(cacheDirectory, name);
  return (await readManifest(directory)) === null ? null : directory;
}

/**
 * The directory of a model source when it is here already, without touching the network: what a process that serves models asks. A
 * `file:` source in Hugging Face layout is its own directory.
 */
export async function findModel(source: string, cacheDirectory = defaultCacheDirectory()): Promise<string | null> {
  const parsed = parseSource(source);
  if (parsed.kind === 'file' && existsSync(join(parsed.path, 'config.json'))) {
    if (['model.safetensors', 'model.safetensors.index.json'].some((name) => existsSync(join(parsed.path, name)))) {
      return parsed.path;
    }
  }
  return findCached(cacheName(parsed), cacheDirectory);
}

/** The finished models of the cache, by name. Directories that are not, or no longer, readable are left out. */
export async function listCached(cacheDirectory = defaultCacheDirectory()): Promise<CachedModel[]> {
  const names = await readdir(cacheDirectory).catch(() => []);
  const models = await Promise.all(
    names.filter((name) => !name.startsWith('.')).map((name) => describe(join(cacheDirectory, name))),
  );
  return models.filter((model) => model !== null).sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A directory of the cache in which a model is made ready; publish it or remove it. */
export async function createStaging(name: string, cacheDirectory: string): Promise<string> {
  await mkdir(cacheDirectory, { recursive: true });
  // Left by a pull that was killed: the caller holds the model's lock, so nobody works in them.
  for (const entry of await readdir(cacheDirectory)) {
    if (entry.startsWith(stagingPrefix(name))) await rm(join(cacheDirectory, entry), { recursive: true, force: true });
  }
  return mkdtemp(join(cacheDirectory, stagingPrefix(name)));
}

/** Where broken downloads wait to be resumed. Those that nobody came back for are removed. */
export async function prepareDownloads(cacheDirectory: string): Promise<string> {
  const downloads = join(cacheDirectory, '.downloads');
  await mkdir(downloads, { recursive: true });
  for (const part of await readdir(downloads)) {
    const file = join(downloads, part);
    const stats = await stat(file).catch(() => null);
    if (stats !== null && Date.now() - stats.mtimeMs > ABANDONED_AFTER_MS) await rm(file, { force: true });
  }
  return downloads;
}

/** Makes a staged directory the model `manifest.name` in one step: readers see the old one, or the whole new one. */
export async function publish(staging: string, manifest: ModelManifest, cacheDirectory: string): Promise<string> {
  await writeFile(
    join(staging, MANIFEST),
    `${JSON.stringify({ layoutVersion: LAYOUT_VERSION, ...manifest }, null, 2)}\n`,
  );
  // Temporary directories are made for one user only; what is published is as readable as the cache.
  await chmod(staging, 0o755);
  const directory = join(cacheDirectory, manifest.name);
  const replaced = `${staging}-replaced`;
  await rename(directory, replaced).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT') throw cause;
  });
  await rename(staging, directory);
  await rm(replaced, { recursive: true, force: true });
  return directory;
}

function stagingPrefix(name: string): string {
  return `.staging-${name}.`;
}

async function readManifest(directory: string): Promise<ModelManifest | null> {
  if (!existsSync(join(directory, MANIFEST)) || !existsSync(join(directory, 'config.json'))) return null;
  const parsed = manifestSchema.safeParse(await readJson(join(directory, MANIFEST)).catch(() => null));
  return parsed.success ? parsed.data : null;
}

async function describe(directory: string): Promise<CachedModel | null> {
  const manifest = await readManifest(directory);
  if (manifest === null) return null;
  try {
    const config = parseConfig(await readJson(join(directory, 'config.json')));
    const sizes = await Promise.all(
      (await readdir(directory)).map(async (file) => (await stat(join(directory, file))).size),
    );
    const { name, source, checksum, pulledAt } = manifest;
    const { family, contextLength, vocabularySize } = config;
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    return { name, source, checksum, pulledAt, directory, family, contextLength, vocabularySize, bytes };
  } catch {
    return null;
  }
}
