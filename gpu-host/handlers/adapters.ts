import { setImmediate } from 'node:timers/promises';
import type { Backend, DeviceAdapter } from '../backends/backend.ts';
import { type CallFault, fault } from '../memory/fault.ts';
import type { LoadedAdapter } from '../models/adapter.ts';
import { ModelError } from '../models/errors.ts';
import type { AdapterInfo } from '../protocol/calls.ts';
import { AdapterLine, type AdapterWant } from './adapter-line.ts';

const MIB = 1024 * 1024;

/** An adapter on the device, and by how many calls it is held there. */
interface Resident {
  readonly adapter: DeviceAdapter;
  holds: number;
  /** What bringing it has cost and nobody has paid yet. */
  unpaidMs: number;
}

/**
 * The low-rank adapters of one model: which there are, and those of them that are on the device. They come one after the other, in an order
 * that gives every tenant its turn. When their memory passes its bound the least recently used ones leave it, once whoever holds them is done;
 * meanwhile nobody else gets hold of these, so that all who have come to use one are served before it changes places with another.
 */
export class Adapters {
  readonly #backend: Pick<Backend, 'loadAdapter'>;
  readonly #known: ReadonlyMap<string, LoadedAdapter>;
  readonly #maxBytes: number;
  readonly #charge: (ms: number, wants: readonly AdapterWant[]) => void;
  /** The least recently used first. */
  readonly #residents = new Map<string, Resident>();
  /** Residents that make room as soon as nobody holds them. */
  readonly #leaving = new Set<string>();
  readonly #line = new AdapterLine();
  /** Bytes on the device of those that have been there. */
  readonly #sizes = new Map<string, number>();
  /** Ends when nobody wants any; undefined then. */
  #work: Promise<void> | undefined;
  /** Told when there may be room, or nobody may want any. */
  #changed: () => void = () => undefined;

  constructor(
    backend: Pick<Backend, 'loadAdapter'>,
    known: ReadonlyMap<string, LoadedAdapter> = new Map(),
    maxBytes = Number.POSITIVE_INFINITY,
    charge: (ms: number, wants: readonly AdapterWant[]) => void = () => undefined,
  ) {
    this.#backend = backend;
    this.#known = known;
    this.#maxBytes = maxBytes;
    this.#charge = charge;
  }

  /** What those on the device take there. */
  get bytes(): number {
    let bytes = 0;
    for (const { adapter } of this.#residents.values()) bytes += adapter.bytes;
    return bytes;
  }

  /** By name. */
  list(): readonly AdapterInfo[] {
    return [...this.#known]
      .map(([name, { rank }]) => ({ name, rank, loaded: this.#residents.has(name) }))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Why there is no adapter of that name, `unsupported` when the model has none at all; undefined when there is one. */
  refuse(name: string): CallFault | undefined {
    if (this.#known.has(name)) return undefined;
    if (this.#known.size === 0) return fault('unsupported', 'this model has no adapters; ask runtime.model-traits');
    return fault('not-found', `this model has no adapter named ${name}; ask list-adapters`);
  }

  /**
   * The adapter when it is on the device, held there until it is released. Otherwise it is brought there, and `want` is told: that it is there
   * and held; or `unavailable` when it cannot be read, `limit-exceeded` when it is too large.
   */
  hold(want: AdapterWant): DeviceAdapter | undefined {
    const { name } = want;
    const resident = this.#residents.get(name);
    if (resident && !this.#leaving.has(name)) return this.#use(name, resident);
    this.#line.add(want);
    this.#work ??= this.#bringAll();
    return undefined;
  }

  /** One of those who hold it is done. */
  release(name: string): void {
    const resident = this.#residents.get(name);
    if (resident) resident.holds--;
    this.#changed();
  }

  /** It is not wanted any more; `want` is not told. */
  drop(want: AdapterWant): void {
    this.#line.drop(want);
    this.#changed();
  }

  /**
   * Brings an adapter to the device ahead of its use; it may leave it again at once.
   * @param space whose inferlet wants it: see `forget`
   * @throws CallFault as `refuse` and `hold` say
   */
  load(name: string, space: AdapterWant['space']): Promise<void> {
    return new Promise((resolve, reject) => {
      const unknown = this.refuse(name);
      if (unknown) {
        reject(unknown);
        return;
      }
      const arrived = () => {
        this.release(name);
        resolve();
      };
      if (this.hold({ name, space, arrived, failed: reject })) arrived();
    });
  }

  /** Drops all that an inferlet wants, since it has ended. */
  forget(space: AdapterWant['space']): void {
    for (const want of this.#line.dropAll(space)) want.failed(fault('cancelled', 'the inferlet has ended'));
    this.#changed();
  }

  /** Nobody is told of anything any more; resolves when none is being read. */
  async close(): Promise<void> {
    this.#line.clear();
    this.#changed();
    await this.#work;
  }

  async #bringAll(): Promise<void> {
    // Whoever asks may be in the middle of something.
    await setImmediate();
    for (let name = this.#line.next(); name !== undefined; name = this.#line.next()) {
      try {
        const resident = await this.#bring(name);
        if (resident) this.#hand(name, resident);
      } catch (error) {
        for (const want of this.#line.take(name)) want.failed(error);
      }
    }
    this.#work = undefined;
  }

  /** Whoever has waited for it has it, and pays for its coming. */
  #hand(name: string, resident: Resident): void {
    const wants = this.#line.take(name);
    if (wants.length === 0) return;
    this.#charge(resident.unpaidMs, wants);
    resident.unpaidMs = 0;
    for (const want of wants) want.arrived(this.#use(name, resident));
  }

  /** Undefined when nobody wants it any more. */
  async #bring(name: string): Promise<Resident | undefined> {
    const resident = this.#residents.get(name);
    if (resident) return resident;
    const known = this.#known.get(name);
    if (!known) throw this.refuse(name);
    const expected = this.#sizes.get(name) ?? known.bytes;
    if (!(await this.#makeRoom(name, expected))) return undefined;
    const adapter = await this.#read(name, known);
    this.#sizes.set(name, adapter.bytes);
    let kept = false;
    try {
      // It may take more there than was thought.
      kept = await this.#makeRoom(name, adapter.bytes);
    } finally {
      if (!kept) adapter.release?.();
    }
    if (!kept) return undefined;
    const made = { adapter, holds: 0, unpaidMs: adapter.loadMs };
    this.#residents.set(name, made);
    return made;
  }

  async #read(name: string, known: LoadedAdapter): Promise<DeviceAdapter> {
    try {
      return await this.#backend.loadAdapter(known);
    } catch (error) {
      if (!(error instanceof ModelError)) throw error;
      throw fault('unavailable', `the adapter ${name} cannot be read: ${error.message}`);
    }
  }

  #use(name: string, resident: Resident): DeviceAdapter {
    resident.holds++;
    this.#residents.delete(name);
    this.#residents.set(name, resident);
    return resident.adapter;
  }

  /** Waits until `bytes` more fit, or nobody wants the adapter any more; whether they fit. @throws CallFault when they never will */
  async #makeRoom(name: string, bytes: number): Promise<boolean> {
    if (bytes > this.#maxBytes) {
      throw fault(
        'limit-exceeded',
        `the adapter ${name} takes ${mib(bytes)} MiB on the device and all together may take ${mib(this.#maxBytes)}; the operator can raise adapter_memory_mb`,
      );
    }
    let fits = false;
    while (this.#line.wants(name)) {
      fits = this.#evict(bytes);
      if (fits) break;
      // Calls that hold an adapter have had their turn: they end, by the device or with their inferlet.
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
    this.#leaving.clear();
    return fits;
  }

  /** Lets the least recently used ones go until `bytes` more fit, or notes that they are to go; whether the bytes fit now. */
  #evict(bytes: number): boolean {
    this.#leaving.clear();
    let held = this.bytes;
    for (const [name, { adapter, holds }] of this.#residents) {
      if (held + bytes <= this.#maxBytes) break;
      held -= adapter.bytes;
      if (holds > 0) {
        this.#leaving.add(name);
        continue;
      }
      this.#residents.delete(name);
      adapter.release?.();
    }
    return this.#leaving.size === 0;
  }
}

function mib(bytes: number): number {
  return Math.ceil(bytes / MIB);
}
