import { createHash } from 'node:crypto';
import { FairCache } from '#scheduler/policies/fair-cache.ts';

/**
 * Embeddings of images by one model's encoder, by tenant and content. A tenant finds only what its own inferlets encoded, so that no hit
 * tells about another tenant's images. The cache evicts from the tenant that holds most, the least recently used first: a tenant that keeps
 * little loses nothing to those that keep much.
 */
export class ImageCache {
  readonly #cache: FairCache<Float32Array>;

  constructor(maxBytes: number) {
    this.#cache = new FairCache(maxBytes);
  }

  /** Bytes of all values. */
  get bytes(): number {
    return this.#cache.size;
  }

  /** The key of an image by its pixels. */
  static keyOf(pixels: Uint8Array): string {
    return createHash('sha256').update(pixels).digest('base64');
  }

  /** The values of an image, which the caller must not change; undefined when the cache has none. Counts as a use. */
  get(tenant: string, key: string): Float32Array | undefined {
    return this.#cache.get(tenant, key);
  }

  /** Keeps `values` (not copied) if they fit and the cache has none. Counts as a use. */
  put(tenant: string, key: string, values: Float32Array): void {
    if (this.#cache.get(tenant, key) !== undefined) return;
    this.#cache.set(tenant, key, values, values.byteLength);
  }
}
