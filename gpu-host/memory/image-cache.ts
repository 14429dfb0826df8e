import { createHash } from 'node:crypto';

/** Values of one tenant's images by their keys, the least recently used first. */
interface Shelf {
  readonly images: Map<string, Float32Array>;
  bytes: number;
}

/**
 * Embeddings of images by one model's encoder, by tenant and content. A tenant finds only what its own inferlets encoded, so that no hit
 * tells about another tenant's images. The cache evicts from the tenant that holds most, the least recently used first: a tenant that keeps
 * little loses nothing to those that keep much.
 */
export class ImageCache {
  readonly #maxBytes: number;
  readonly #shelves = new Map<string, Shelf>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of all values. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The key of an image by its pixels. */
  static keyOf(pixels: Uint8Array): string {
    return createHash('sha256').update(pixels).digest('base64');
  }

  /** The values of an image, which the caller must not change; undefined when the cache has none. Counts as a use. */
  get(tenant: string, key: string): Float32Array | undefined {
    const images = this.#shelves.get(tenant)?.images;
    const values = images?.get(key);
    if (!images || !values) return undefined;
    images.delete(key);
    images.set(key, values);
    return values;
  }

  /** Keeps `values` (not copied) if they fit. */
  put(tenant: string, key: string, values: Float32Array): void {
    const { byteLength } = values;
    if (byteLength > this.#maxBytes) return;
    const shelf = this.#shelves.get(tenant) ?? { images: new Map<string, Float32Array>(), bytes: 0 };
    if (shelf.images.has(key)) return;
    this.#shelves.set(tenant, shelf);
    shelf.images.set(key, values);
    shelf.bytes += byteLength;
    this.#bytes += byteLength;
    while (this.#bytes > this.#maxBytes) this.#evict();
  }

  #evict(): void {
    const [tenant, shelf] = [...this.#shelves].reduce((largest, each) =>
      each[1].bytes > largest[1].bytes ? each : largest,
    );
    for (const [key, { byteLength }] of shelf.images) {
      shelf.images.delete(key);
      shelf.bytes -= byteLength;
      this.#bytes -= byteLength;
      break;
    }
    if (shelf.images.size === 0) this.#shelves.delete(tenant);
  }
}
