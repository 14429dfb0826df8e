import type { Backend, DeviceAdapter } from '../backends/backend.ts';
import { fault } from '../memory/fault.ts';
import type { LoadedAdapter } from '../models/adapter.ts';
import { ModelError } from '../models/errors.ts';
import type { AdapterInfo } from '../protocol/calls.ts';

const MIB = 1024 * 1024;

/**
 * The low-rank adapters of one model: which there are, and those of them that are on the device. When their memory passes its bound, the
 * least recently used ones leave it.
 */
export class Adapters {
  readonly #backend: Pick<Backend, 'loadAdapter'>;
  readonly #known: ReadonlyMap<string, LoadedAdapter>;
  readonly #maxBytes: number;
  /** The least recently used first. */
  readonly #loaded = new Map<string, DeviceAdapter>();
  readonly #loading = new Map<string, Promise<DeviceAdapter>>();
  /** Ends with the last load that was asked for ahead of its use. */
  #line: Promise<unknown> = Promise.resolve();

  constructor(
    backend: Pick<Backend, 'loadAdapter'>,
    known: ReadonlyMap<string, LoadedAdapter> = new Map(),
    maxBytes = Number.POSITIVE_INFINITY,
  ) {
    this.#backend = backend;
    this.#known = known;
    this.#maxBytes = maxBytes;
  }

  /** What the loaded ones take on the device. */
  get bytes(): number {
    let bytes = 0;
    for (const adapter of this.#loaded.values()) bytes += adapter.bytes;
    return bytes;
  }

  /** By name. */
  list(): readonly AdapterInfo[] {
    return [...this.#known]
      .map(([name, { rank }]) => ({ name, rank, loaded: this.#loaded.has(name) }))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /**
   * The adapter on the device, brought there if need be.
   * @throws CallFault `unsupported` when the model has none, `not-found` without such a name, `unavailable` when it cannot be read,
   *   `limit-exceeded` when it is too large
   */
  async use(name: string): Promise<DeviceAdapter> {
    const loaded = this.#loaded.get(name);
    if (loaded) {
      this.#loaded.delete(name);
      this.#loaded.set(name, loaded);
      return loaded;
    }
    const loading = this.#loading.get(name);
    if (loading) return loading;
    const made = this.#load(name).finally(() => this.#loading.delete(name));
    this.#loading.set(name, made);
    return made;
  }

  /** `use` ahead of time: one such load after the other, so that many of them do not take memory for all at once. */
  load(name: string): Promise<DeviceAdapter> {
    const made = this.#line.then(() => this.use(name));
    this.#line = made.catch(() => undefined);
    return made;
  }

  async #load(name: string): Promise<DeviceAdapter> {
    const known = this.#find(name);
    this.#makeRoom(known.bytes);
    let adapter: DeviceAdapter;
    try {
      adapter = await this.#backend.loadAdapter(known);
    } catch (error) {
      if (error instanceof ModelError)
        throw fault('unavailable', `the adapter ${name} cannot be read: ${error.message}`);
      throw error;
    }
    if (adapter.bytes > this.#maxBytes) {
      throw fault(
        'limit-exceeded',
        `the adapter ${name} takes ${mib(adapter.bytes)} MiB on the device and all together may take ${mib(this.#maxBytes)}; the operator can raise adapter_memory_mb`,
      );
    }
    this.#makeRoom(adapter.bytes);
    this.#loaded.set(name, adapter);
    return adapter;
  }

  #find(name: string): LoadedAdapter {
    const known = this.#known.get(name);
    if (known) return known;
    if (this.#known.size === 0) throw fault('unsupported', 'this model has no adapters; ask runtime.model-traits');
    throw fault('not-found', `this model has no adapter named ${name}; ask list-adapters`);
  }

  /** Lets the least recently used ones go until `bytes` more fit, or none is left. What a batch computes with is kept by it. */
  #makeRoom(bytes: number): void {
    let held = this.bytes;
    for (const [name, adapter] of this.#loaded) {
      if (held + bytes <= this.#maxBytes) return;
      this.#loaded.delete(name);
      held -= adapter.bytes;
    }
  }
}

function mib(bytes: number): number {
  return Math.ceil(bytes / MIB);
}
