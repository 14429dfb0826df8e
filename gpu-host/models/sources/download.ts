import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, link, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { causeText, ModelError } from '../errors.ts';

export interface DownloadProgress {
  readonly file: string;
  readonly doneBytes: number;
  /** Null when the server announced no length. */
  readonly totalBytes: number | null;
}

export interface DownloadOptions {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Path of the finished, verified file. Until then `partFile` holds the bytes, and a later call resumes from it. */
  readonly destination: string;
  /**
   * Path of the received bytes. The file must belong to this content alone, so the caller names it after the checksum; without a checksum, every
   * call starts over. The verified file also stays as `PARTFILE.complete`, which a later call uses instead of a request. The caller removes that
   * file.
   */
  readonly partFile: string;
  readonly checksum: Checksum | null;
  /** The download fails at once when the server announces another length. */
  readonly expectedBytes?: number | null;
  /** The file's name in messages. */
  readonly label: string;
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** A connection without new bytes for this long is closed and tried again. 30 s by default. */
  readonly idleTimeoutMs?: number;
  /** Tries in a row without a new byte before the download fails. 5 by default. */
  readonly attempts?: number;
  /** Wait before the second try; doubles up to 8 s. 500 ms by default. */
  readonly retryDelayMs?: number;
}

/** A server's error reply. `download` repeats the request only for temporary statuses. */
export class HttpStatusError extends Error {
  readonly status: number;

  constructor(status: number, label: string) {
    super(`${label}: the server answered ${status}`);
    this.status = status;
  }
}

/** Maximum tries, including those that received bytes: with a server that never resumes, these could go on for ever. */
const MAX_TRIES = 200;
/** Checks in a row without new bytes after which a connection is idle. A blocked thread delays the checks, so a live connection does not fail. */
const IDLE_CHECKS = 20;

/**
 * Downloads a file over HTTP and verifies it; resumes where an earlier try or an earlier process stopped.
 *
 * Tries again after a broken connection, with a growing pause; new bytes restart the count of tries. When a resumed file fails its
 * checksum, fetches the file once more from the start: its first bytes may come from other content.
 *
 * @throws ModelError `download-failed` and `cancelled` (the part is kept), `checksum-mismatch` (content with a wrong hash is removed);
 * HttpStatusError for replies such as 401 or 404; the system's error when the part cannot be written (it is kept)
 */
export async function download(options: DownloadOptions): Promise<void> {
  const { partFile, destination, checksum } = options;
  await mkdir(dirname(partFile), { recursive: true });
  if (checksum === null) {
    await rm(partFile, { force: true });
    await fetchAll(options);
    await rename(partFile, destination);
    return;
  }
  const completeFile = `${partFile}.complete`;
  if (!(await isDownloaded(completeFile, checksum, options))) {
    const wasResumed = await fetchAll(options);
    if (!(await isVerified(partFile, checksum, options, wasResumed))) {
      await fetchAll(options);
      // Throws when the checksum is wrong again.
      await isVerified(partFile, checksum, options, false);
    }
    await rename(partFile, completeFile);
  }
  // On a file system without hard links, move the file: a copy could fill the disk. The next pull then fetches the file again.
  await link(completeFile, destination).catch(() => rename(completeFile, destination));
}

/** True when an earlier call has left the verified file. */
async function isDownloaded(completeFile: string, checksum: Checksum, options: DownloadOptions): Promise<boolean> {
  const bytes = await partBytes(completeFile);
  if (bytes === 0 || !(await isVerified(completeFile, checksum, options, true))) return false;
  options.onProgress?.({ file: options.label, doneBytes: bytes, totalBytes: bytes });
  return true;
}

/** Returns true for a file with the right checksum. Removes a file with a wrong one, and then returns false if `mayRetry`, else throws. */
async function isVerified(
  file: string,
  checksum: Checksum,
  { label, signal }: DownloadOptions,
  mayRetry: boolean,
): Promise<boolean> {
  try {
    await verifyFile(file, checksum, label, signal);
    return true;
  } catch (error) {
    if (!(error instanceof ModelError) || error.code !== 'checksum-mismatch') throw error;
    await rm(file, { force: true });
    if (!mayRetry) throw error;
    return false;
  }
}

/** Fills the part file to the end. Returns true when an earlier call wrote its beginning. */
async function fetchAll(options: DownloadOptions): Promise<boolean> {
  const { label, signal, attempts = ATTEMPTS, retryDelayMs } = options;
  const wasResumed = (await partBytes(options.partFile)) > 0;
  for (let failures = 0, tries = 1; ; tries++) {
    const bytesBefore = await partBytes(options.partFile);
    try {
      await fetchRest(options);
      return wasResumed;
    } catch (cause) {
      if (signal?.aborted)
        throw new ModelError('cancelled', `${label}: cancelled`, { hint: 'the next pull goes on from here' });
      if (cause instanceof ModelError || isFileError(cause)) throw cause;
      if (cause instanceof HttpStatusError && !isTemporary(cause.status)) throw cause;
      failures = (await partBytes(options.partFile)) > bytesBefore ? 1 : failures + 1;
      if (failures >= attempts || tries >= MAX_TRIES) {
        throw new ModelError('download-failed', `${label}: the download broke off: ${causeText(cause)}`, {
          hint: 'run the same command again: the download resumes where it stopped',
          cause,
        });
      }
      await delay(pauseMs(failures, retryDelayMs), undefined, signal === undefined ? {} : { signal }).catch(() => {
        throw new ModelError('cancelled', `${label}: cancelled`);
      });
    }
  }
}

async function fetchRest(options: DownloadOptions): Promise<void> {
  const { label, idleTimeoutMs = 30_000 } = options;
  const idleAbort = new AbortController();
  let idleChecks = 0;
  const handle = await open(options.partFile, 'a');
  const timer = setInterval(() => {
    if (++idleChecks === IDLE_CHECKS) idleAbort.abort(new Error(`nothing arrived for ${idleTimeoutMs / 1000} s`));
  }, idleTimeoutMs / IDLE_CHECKS);
  try {
    const presentBytes = (await handle.stat()).size;
    const response = await fetch(options.url, {
      headers: {
        ...options.headers,
        // Byte positions must be positions in the file, not in a compressed stream.
        'accept-encoding': 'identity',
        ...(presentBytes > 0 ? { range: `bytes=${presentBytes}-` } : {}),
      },
      signal: options.signal === undefined ? idleAbort.signal : AbortSignal.any([options.signal, idleAbort.signal]),
    });
    const start = await startOf(response, presentBytes, handle, label);
    if (start === null) {
      await response.body?.cancel();
      return;
    }
    const length = response.headers.get('content-length');
    const totalBytes = length === null ? null : start + Number(length);
    const expectedBytes = options.expectedBytes ?? null;
    if (expectedBytes !== null && totalBytes !== null && totalBytes !== expectedBytes) {
      await response.body?.cancel();
      throw new ModelError(
        'checksum-mismatch',
        `${label}: the server offers ${totalBytes} bytes, expected ${expectedBytes}`,
        {
          hint: 'the server has another file under this name. Check the registry or endpoint in use',
        },
      );
    }
    let doneBytes = start;
    options.onProgress?.({ file: label, doneBytes, totalBytes });
    for await (const chunk of response.body ?? []) {
      // Do not count the time of the write as idle: NaN never reaches the limit.
      idleChecks = Number.NaN;
      await handle.writeFile(chunk);
      idleChecks = 0;
      doneBytes += chunk.byteLength;
      if (expectedBytes !== null && doneBytes > expectedBytes) {
        throw new ModelError(
          'checksum-mismatch',
          `${label}: the server sends more than the expected ${expectedBytes} bytes`,
        );
      }
      options.onProgress?.({ file: label, doneBytes, totalBytes });
    }
    if (totalBytes !== null && doneBytes !== totalBytes)
      throw new Error(`the response ended at byte ${doneBytes} of ${totalBytes}`);
  } finally {
    clearInterval(timer);
    await handle.close();
  }
}

/** Position in the file at which the body begins; null when the part is complete. Truncates the part when the server does not resume. */
async function startOf(
  response: Response,
  presentBytes: number,
  handle: FileHandle,
  label: string,
): Promise<number | null> {
  const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
  if (response.status === 206 && range !== null && Number(range[1]) === presentBytes) return presentBytes;
  if (response.status === 416) {
    const total = /^bytes \*\/(\d+)$/.exec(response.headers.get('content-range') ?? '')?.[1];
    if (Number(total) === presentBytes) return null;
    await handle.truncate(0);
    throw new Error('the part kept from an earlier try is longer than the file');
  }
  if (response.status === 200) {
    // The server does not resume: its body is the whole file.
    await handle.truncate(0);
    return 0;
  }
  await response.body?.cancel();
  if (response.ok) throw new Error(`the server answered ${response.status} to a range`);
  throw new HttpStatusError(response.status, label);
}

/** True for errors of the part file, such as a full disk. Errors of the network have no `syscall`: `fetch` wraps them in a TypeError. */
function isFileError(cause: unknown): boolean {
  return cause instanceof Error && 'syscall' in cause;
}

async function partBytes(file: string): Promise<number> {
  return (await stat(file).catch(() => null))?.size ?? 0;
}

/** Expected hash of a file. `git-blob` is git's SHA-1 of a file, which the hub gives as the etag of small files. */
export interface Checksum {
  readonly algorithm: 'sha256' | 'sha512' | 'sha1' | 'git-blob';
  /** Lower case hexadecimal. */
  readonly hex: string;
}

/** Reads a text of npm's format (`sha512-…` in base64). Of several hashes, takes the strongest; null when the text has no known hash. */
export function parseIntegrity(integrity: string): Checksum | null {
  for (const algorithm of ['sha512', 'sha256', 'sha1'] as const) {
    const entry = integrity.split(/\s+/).find((text) => text.startsWith(`${algorithm}-`));
    if (entry !== undefined) {
      return { algorithm, hex: Buffer.from(entry.slice(algorithm.length + 1), 'base64').toString('hex') };
    }
  }
  return null;
}

/** Formats a checksum as `sha256:abc…`, for messages and manifests. */
export function checksumText(checksum: Checksum): string {
  return `${checksum.algorithm}:${checksum.hex}`;
}

/** @throws ModelError `checksum-mismatch` when the file's hash differs */
export async function verifyFile(file: string, checksum: Checksum, label: string, signal?: AbortSignal): Promise<void> {
  const hash = createHash(checksum.algorithm === 'git-blob' ? 'sha1' : checksum.algorithm);
  if (checksum.algorithm === 'git-blob') hash.update(`blob ${(await stat(file)).size}\0`);
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) {
    if (signal?.aborted) throw new ModelError('cancelled', `${label}: cancelled`);
    hash.update(chunk as Buffer);
  }
  const found = hash.digest('hex');
  if (found !== checksum.hex) {
    throw new ModelError(
      'checksum-mismatch',
      `${label}: the download has ${checksum.algorithm} ${found}, expected ${checksum.hex}`,
      {
        hint: 'the file was discarded: it changed in transit or at its source. Check the registry or endpoint in use',
      },
    );
  }
}

/** Tries in a row without success before a request fails. */
export const ATTEMPTS = 5;
/** Wait before the second try, milliseconds. */
export const RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 8_000;

/** True when a response has a status after which the same request may succeed later. */
export function isTemporary(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

/** Wait after `failures` failures in a row, milliseconds. Each failure doubles the wait, up to 8 s. */
export function pauseMs(failures: number, retryDelayMs = RETRY_DELAY_MS): number {
  return Math.min(retryDelayMs * 2 ** (failures - 1), MAX_RETRY_DELAY_MS);
}
