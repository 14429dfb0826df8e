import { createHash } from 'node:crypto';
import { FairCache } from '#scheduler/policies/fair-cache.ts';
import type { InferletShare } from '#scheduler/policies/shares.ts';
import type { HandlerError } from '../protocol/errors.ts';
import { dependencyFault, Failures, fault } from './fault.ts';

/**
 * Content of an embed: nothing yet, a token, or values. An embed is an input of the model that has an address. The values are a state, which a
 * forward computed, or a part of an image.
 */
export type Embed =
  | { readonly kind: 'empty' }
  | { readonly kind: 'token'; readonly token: number; readonly position: number }
  | { readonly kind: 'state' | 'image'; readonly values: Float32Array; readonly position: number };

const EMPTY: Embed = { kind: 'empty' };

export interface EmbedLimits {
  readonly maxEmbeds: number;
  /** Maximum bytes of values of states and images. */
  readonly maxStateBytes: number;
}

/** The shares that the embeds of one inferlet have of the host memory that all tenants use together. */
export interface EmbedBytes {
  /** Share of JavaScript's heap, in bytes, for the table of embeds. */
  readonly heap: InferletShare;
  /** Share of the memory for values of states and images, in bytes. */
  readonly values: InferletShare;
}

/** Approximate bytes of the heap for one embed: the map's slot, and the object of a token. */
const EMBED_BYTES = 100;

/** The embeds of one inferlet on one model, by address. An embed of a token takes two numbers: the device looks up its values at each use. */
export class EmbedSpace {
  #embeds = new Map<number, Embed>();
  /** For addresses that a failed call should have filled, the cause of its failure. */
  readonly failures = new Failures();
  #stateBytes = 0;
  #limits: EmbedLimits;
  readonly #memoryShares: EmbedBytes | undefined;

  /** @param memoryShares bounds the embeds together with those of the tenant's other inferlets; no bound by default */
  constructor(limits: EmbedLimits, memoryShares?: EmbedBytes) {
    this.#limits = limits;
    this.#memoryShares = memoryShares;
  }

  get count(): number {
    return this.#embeds.size;
  }

  get stateBytes(): number {
    return this.#stateBytes;
  }

  /** @throws CallFault `limit-exceeded` or `invalid-argument`; allocates nothing then. */
  allocate(first: number, count: number): void {
    if (first + count > 0x1_0000_0000) throw fault('invalid-argument', 'embed addresses past 2^32');
    if (this.#embeds.size + count > this.#limits.maxEmbeds) {
      throw fault(
        'limit-exceeded',
        `${this.#embeds.size} embeds are held and ${count} more were requested; the limit is ${this.#limits.maxEmbeds}`,
      );
    }
    for (let i = 0; i < count; i++) {
      if (this.#embeds.has(first + i)) throw fault('invalid-argument', `embed address ${first + i} is in use`);
    }
    if (this.#memoryShares?.heap.fits(count * EMBED_BYTES) === false) throw this.#shareFault();
    this.#memoryShares?.heap.add(count * EMBED_BYTES);
    for (let i = 0; i < count; i++) this.#embeds.set(first + i, EMPTY);
  }

  /**
   * Marks the content of these addresses as never computed: a call of the queue `source` failed with `cause`. Ignores
   * addresses not held.
   */
  fail(addresses: Uint32Array, cause: HandlerError, source: object): void {
    for (const address of addresses) if (this.#embeds.has(address)) this.failures.mark(address, cause, source);
  }

  /** @throws CallFault `not-owned` or `invalid-argument`; frees nothing then. */
  free(addresses: Uint32Array): void {
    if (new Set(addresses).size !== addresses.length)
      throw fault('invalid-argument', 'an embed is named twice in one free');
    this.checkHeld(addresses);
    for (const address of addresses) {
      this.#forget(address);
      this.#embeds.delete(address);
    }
    this.#memoryShares?.heap.add(-addresses.length * EMBED_BYTES);
  }

  releaseAll(): void {
    this.#embeds.clear();
    this.#stateBytes = 0;
    this.failures.clear();
    this.#memoryShares?.heap.close();
    this.#memoryShares?.values.close();
  }

  /** @throws CallFault `not-owned` when an address is not held */
  checkHeld(addresses: Uint32Array): void {
    for (const address of addresses) if (!this.#embeds.has(address)) throw this.#missingFault(address);
  }

  /** Content of an address. @throws CallFault `not-owned`, `dependency-failed`, or `invalid-argument` when nothing was written to the address. */
  get(address: number): Exclude<Embed, { kind: 'empty' }> {
    const embed = this.#embeds.get(address);
    if (!embed) throw this.#missingFault(address);
    const failure = this.failures.of(address);
    if (failure) throw dependencyFault(failure);
    if (embed.kind === 'empty')
      throw fault(
        'invalid-argument',
        `embed ${address} is empty: embed-text, embed-image or a forward must write it first`,
      );
    return embed;
  }

  setToken(address: number, token: number, position: number): void {
    this.#set(address, { kind: 'token', token, position });
  }

  /** Keeps `values` (not copied). */
  setState(address: number, values: Float32Array, position: number): void {
    this.#set(address, { kind: 'state', values, position });
  }

  /** Keeps `values` (not copied). */
  setImage(address: number, values: Float32Array, position: number): void {
    this.#set(address, { kind: 'image', values, position });
  }

  /** @throws CallFault `limit-exceeded` when `bytes` more bytes of states and images would pass a limit */
  checkStateRoom(bytes: number): void {
    if (this.#stateBytes + bytes > this.#limits.maxStateBytes) {
      throw fault(
        'limit-exceeded',
        `embeds hold ${this.#stateBytes} bytes of states and images, and ${bytes} more are needed; ${this.#limits.maxStateBytes} is the limit`,
      );
    }
    if (this.#memoryShares?.values.fits(bytes) === false) throw this.#shareFault();
  }

  /**
   * Copies the content of each source to the destination at the same index; both share the values.
   * @throws CallFault, and copies none then
   */
  copy(sources: Uint32Array, destinations: Uint32Array): void {
    if (sources.length !== destinations.length) {
      throw fault(
        'invalid-argument',
        `${sources.length} source and ${destinations.length} destination embeds; give one destination for each source`,
      );
    }
    this.checkHeld(destinations);
    const embeds = Array.from(sources, (source) => this.get(source));
    let bytes = 0;
    for (const embed of embeds) if ('values' in embed) bytes += embed.values.byteLength;
    this.checkStateRoom(bytes);
    for (let i = 0; i < embeds.length; i++) this.#set(destinations[i] as number, embeds[i] as Embed);
  }

  #set(address: number, embed: Embed): void {
    this.#forget(address);
    if ('values' in embed) this.#countState(embed.values.byteLength);
    this.#embeds.set(address, embed);
  }

  #forget(address: number): void {
    const oldEmbed = this.#embeds.get(address);
    if (oldEmbed && 'values' in oldEmbed) this.#countState(-oldEmbed.values.byteLength);
    this.failures.forget(address);
  }

  #countState(bytes: number): void {
    this.#stateBytes += bytes;
    this.#memoryShares?.values.add(bytes);
  }

  #shareFault(): Error {
    return fault('limit-exceeded', "the embeds of the tenant's inferlets take their share of this host's memory");
  }

  #missingFault(address: number): Error {
    const failure = this.failures.of(address);
    if (failure) return dependencyFault(failure);
    return fault('not-owned', `embed ${address} is not held: never allocated, or freed`);
  }
}

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
