import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { parseConfig } from './config.ts';
import { readEncoderConfig } from './encoder/load.ts';
import { kindOf, MODEL_KINDS, type ModelKind } from './kind.ts';
import { readJson } from './load.ts';

/** `publish` writes this file last into a model's directory: a directory without it is not a finished model. */
const MANIFEST = 'pie-model.json';
/** Raise this version when conversions change, so that pulls convert older models again. */
const LAYOUT_VERSION = 1;

/** Suffix of the name that `publish` gives the old directory of a model while it moves the new directory into place. */
const REPLACED = '-replaced';

/** Name of such an old directory, with six random characters of `mkdtemp`; the group is the model's name. */
const MOVED_ASIDE = /^\.staging-(.+)\.[A-Za-z0-9]{6}-replaced$/;

/** Age at which `prepareDownloads` removes the partial download of any model. */
const ABANDONED_AFTER_MS = 14 * 24 * 3_600_000;

const originSchema = z.object({
  name: z.string(),
  source: z.string(),
  /** Checksum of the download, as `sha512-…` or `sha256:…`; null when the source gave none. */
  checksum: z.string().nullable(),
  /** ISO 8601. */
  pulledAt: z.string(),
  /** The kind that the pull has checked; absent in older manifests. */
  kind: z.enum(MODEL_KINDS).optional(),
});
const manifestSchema = z.looseObject({ layoutVersion: z.literal(LAYOUT_VERSION), ...originSchema.shape });

/** Origin of a cached model. */
export type ModelManifest = Readonly<z.infer<typeof originSchema>>;

/** A model of the cache, for lists. */
export interface CachedModel extends ModelManifest {
  readonly directory: string;
  readonly kind: ModelKind;
  readonly family: string;
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** Bytes of all files. */
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

/** The directory that the newest pull of exactly this source text published in the cache, or null. */
export async function findPulled(source: string, cacheDirectory: string): Promise<string | null> {
  let newest: { readonly directory: string; readonly pulledAt: string } | null = null;
  for (const directory of await modelDirectories(cacheDirectory)) {
    const manifest = await readManifest(directory);
    if (manifest?.source !== source || (newest !== null && manifest.pulledAt <= newest.pulledAt)) continue;
    newest = { directory, pulledAt: manifest.pulledAt };
  }
  return newest?.directory ?? null;
}

/** The finished models of the cache, by name, without unreadable directories. */
export async function listCached(cacheDirectory = defaultCacheDirectory()): Promise<CachedModel[]> {
  const models = await Promise.all((await modelDirectories(cacheDirectory)).map(describe));
  return models.filter((model) => model !== null).sort((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * Clears up after killed pulls of a model: removes their staging directories. If a killed pull had moved the old model aside but not yet moved
 * the new model into place, puts the old model back. The caller holds the model's lock, so no other pull uses these directories.
 */
export async function recover(name: string, cacheDirectory: string): Promise<void> {
  const directory = join(cacheDirectory, name);
  for (const entry of await readdir(cacheDirectory)) {
    if (!isStagingOf(name, entry)) continue;
    const leftover = join(cacheDirectory, entry);
    if (entry.endsWith(REPLACED) && !existsSync(directory)) await rename(leftover, directory);
    else await rm(leftover, { recursive: true, force: true });
  }
}

/** Names of models that a pull moved aside but did not replace: `publish` is between its two renames, or was killed between them. */
export async function listMovedAside(cacheDirectory: string): Promise<string[]> {
  const entries = await readdir(cacheDirectory).catch(() => []);
  const names = new Set(entries.flatMap((entry) => MOVED_ASIDE.exec(entry)?.[1] ?? []));
  return [...names].filter((name) => !existsSync(join(cacheDirectory, name)));
}

/** Makes a directory of the cache in which a pull prepares a model; the caller must publish or remove the directory. */
export async function createStaging(name: string, cacheDirectory: string): Promise<string> {
  await mkdir(cacheDirectory, { recursive: true });
  return mkdtemp(join(cacheDirectory, stagingPrefix(name)));
}

/**
 * Removes abandoned downloads of all models, and returns the path prefix for this model's downloads, which a later pull resumes. Every model
 * has its own prefix, and the caller holds the model's lock, so no other pull writes these files.
 */
export async function prepareDownloads(name: string, cacheDirectory: string): Promise<string> {
  const downloads = join(cacheDirectory, '.downloads');
  await mkdir(downloads, { recursive: true });
  for (const part of await readdir(downloads)) {
    const file = join(downloads, part);
    const stats = await stat(file).catch(() => null);
    if (stats !== null && Date.now() - stats.mtimeMs > ABANDONED_AFTER_MS) await rm(file, { force: true });
  }
  return join(downloads, `${createHash('sha256').update(name).digest('hex').slice(0, 16)}-`);
}

/** Removes the downloads with the prefix of `prepareDownloads`, once their model is published or refused. */
export async function removeDownloads(partPrefix: string): Promise<void> {
  const downloads = dirname(partPrefix);
  for (const file of await readdir(downloads)) {
    if (file.startsWith(basename(partPrefix))) await rm(join(downloads, file), { force: true });
  }
}

/** Publishes a staged directory as the model `manifest.name`. Readers never see a half-written model. */
export async function publish(staging: string, manifest: ModelManifest, cacheDirectory: string): Promise<string> {
  await writeFile(
    join(staging, MANIFEST),
    `${JSON.stringify({ layoutVersion: LAYOUT_VERSION, ...manifest }, null, 2)}\n`,
  );
  // mkdtemp makes directories readable by one user only; a published model must be as readable as the cache.
  await chmod(staging, 0o755);
  const directory = join(cacheDirectory, manifest.name);
  const replaced = `${staging}${REPLACED}`;
  await rename(directory, replaced).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'ENOENT') throw cause;
  });
  try {
    await rename(staging, directory);
  } catch (error) {
    await rename(replaced, directory).catch(() => undefined);
    throw error;
  }
  await rm(replaced, { recursive: true, force: true });
  return directory;
}

async function modelDirectories(cacheDirectory: string): Promise<string[]> {
  const names = await readdir(cacheDirectory).catch(() => []);
  return names.filter((name) => !name.startsWith('.')).map((name) => join(cacheDirectory, name));
}

function stagingPrefix(name: string): string {
  return `.staging-${name}.`;
}

/**
 * True for the directories that `createStaging` and `publish` make for this model. The text after the prefix must match, too: the name of another
 * model may begin with this name and a dot.
 */
function isStagingOf(name: string, entry: string): boolean {
  const prefix = stagingPrefix(name);
  return entry.startsWith(prefix) && /^[A-Za-z0-9]{6}(-replaced)?$/.test(entry.slice(prefix.length));
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
    const json = await readJson(join(directory, 'config.json'));
    const kind = manifest.kind ?? kindOf(json);
    const config = kind === 'causal' ? parseConfig(json) : await readEncoderConfig(directory, kind);
    const { name, source, checksum, pulledAt } = manifest;
    const { family, contextLength, vocabularySize } = config;
    const bytes = await bytesOf(directory);
    return { name, source, checksum, pulledAt, directory, kind, family, contextLength, vocabularySize, bytes };
  } catch {
    return null;
  }
}

async function bytesOf(directory: string): Promise<number> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const sizes = await Promise.all(files.map(async ({ parentPath, name }) => (await stat(join(parentPath, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}
