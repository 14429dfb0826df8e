import { createHash } from 'node:crypto';
import { throwBytesQuota } from '../quotas/exceeded.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

/** Lifetime of a blob without a function version: long enough for a build and a slow deploy. */
const UNUSED_BLOB_MS = 15 * 60_000;
/** Maximum bytes of a component. */
export const MAX_COMPONENT_BYTES = 64 * 1024 * 1024;
/** A component of `MAX_COMPONENT_BYTES` takes seconds to transfer on a busy machine. */
const BLOB_DEADLINE_MS = 45_000;

const SCRIPTS = {
  put: loadScript(new URL('./functions.lua', import.meta.url), 'put-blob'),
  remove: loadScript(new URL('./functions.lua', import.meta.url), 'remove-blob'),
};

/** Components by the sha256 of their bytes, in hexadecimal. */
export class Blobs {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Stores bytes for `unusedMs`, or for as long as a function version uses them. While no version uses them, they count towards this tenant's
   * bytes; later they count as the version's.
   *
   * @throws QuotaExceeded when the tenant may keep no more bytes in Redis.
   */
  async put(tenant: string, bytes: Uint8Array, unusedMs = UNUSED_BLOB_MS): Promise<string> {
    if (bytes.length > MAX_COMPONENT_BYTES) {
      throw new StoreError(
        'invalid-argument',
        `A component has at most ${MAX_COMPONENT_BYTES} bytes; this one has ${bytes.length}.`,
      );
    }
    const hash = createHash('sha256').update(bytes).digest('hex');
    const payload = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const now = this.#store.clock();
    const reply = await this.#store.script(
      SCRIPTS.put,
      this.#keys(hash),
      [payload, unusedMs, now, this.#store.keys.account(tenant), hash],
      BLOB_DEADLINE_MS,
    );
    throwBytesQuota(reply, now);
    return hash;
  }

  /** The bytes, or null when they are not stored (any more). */
  async get(hash: string): Promise<Uint8Array | null> {
    return this.#store.call((redis) => redis.getBuffer(this.#store.keys.blob(hash)), BLOB_DEADLINE_MS);
  }

  async has(hash: string): Promise<boolean> {
    return (await this.#store.call((redis) => redis.exists(this.#store.keys.blob(hash)))) === 1;
  }

  /** Removes bytes that neither a function version nor another tenant's upload needs; false when they are needed or not there. */
  async remove(tenant: string, hash: string, deadlineMs?: number): Promise<boolean> {
    const args = [this.#store.keys.account(tenant), hash, this.#store.clock()];
    return (await this.#store.script(SCRIPTS.remove, this.#keys(hash), args, deadlineMs)) === 1;
  }

  #keys(hash: string): string[] {
    const { keys } = this.#store;
    return [keys.blob(hash), keys.blobUsers(hash), keys.blobUploads(hash)];
  }
}
