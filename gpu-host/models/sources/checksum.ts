import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { ModelError } from '../errors.ts';

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
