import { setImmediate } from 'node:timers/promises';
import type { Backend, DeviceAdapter } from '../../backends/backend.ts';
import { CallFault, fault, unreadable } from '../../memory/fault.ts';
import type { LoadedAdapter } from '../../models/adapter.ts';
import { ModelError } from '../../models/errors.ts';
import type { AdapterInfo } from '../../protocol/calls.ts';
import type { DeviceTime, Payer } from './meter.ts';

const MIB = 1024 * 1024;

/** An adapter on the device, and the number of calls that hold it there. */
interface Resident {
  readonly adapter: DeviceAdapter;
  holds: number;
  /** Load time that no call has paid yet. */
  unpaidMs: number;
}

/**
 * The low-rank adapters of one model: all known ones, and those on the device (the residents). Adapters are loaded one after the other, and
 * the tenants that want one take turns. A new adapter that finds no room makes the least recently used residents leave, each once the calls
 * that hold it are done. A leaving adapter takes no further call, so a steady stream of calls cannot keep it on the device. An adapter that
 * has arrived serves all calls that waited for it before another takes its place.
 */
export class Adapters {
  readonly #backend: Pick<Backend, 'loadAdapter' | 'adapterBytes' | 'mixesAdapters'>;
  readonly #adapters: ReadonlyMap<string, LoadedAdapter>;
  readonly #maxBytes: number;
  readonly #time: Pick<DeviceTime, 'spendEvenly'> | undefined;
  /** Least recently used first. */
  readonly #residents = new Map<string, Resident>();
  /** Residents that leave as soon as no call holds them. */
  readonly #leavingNames = new Set<string>();
  readonly #queue = new AdapterQueue();
  /** Device bytes of every adapter loaded so far. */
  readonly #sizes = new Map<string, number>();
  /** The loading loop; undefined while no call wants an adapter. */
  #loading: Promise<void> | undefined;
  /** Wakes the loading loop: there may be room, or the want may be gone. */
  #wakeLoader: () => void = () => undefined;

  /** @param time charges the loading of adapters to the inferlets that wait for them */
  constructor(
    backend: Pick<Backend, 'loadAdapter' | 'adapterBytes' | 'mixesAdapters'>,
    adapters: ReadonlyMap<string, LoadedAdapter> = new Map(),
    maxBytes = Number.POSITIVE_INFINITY,
    time?: Pick<DeviceTime, 'spendEvenly'>,
  ) {
    this.#backend = backend;
    this.#adapters = adapters;
    this.#maxBytes = maxBytes;
    this.#time = time;
  }

  /** True when calls with different adapters may share a batch. */
  get mixesAdapters(): boolean {
    return this.#backend.mixesAdapters === true;
  }

  /** Device bytes of the resident adapters. */
  get bytes(): number {
    let bytes = 0;
    for (const { adapter } of this.#residents.values()) bytes += adapter.bytes;
    return bytes;
  }

  /** Sorted by name. */
  list(): readonly AdapterInfo[] {
    return [...this.#adapters]
      .map(([name, { rank }]) => ({ name, rank, loaded: this.#residents.has(name) }))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** The fault for an unknown adapter, `unsupported` when the model has none at all; undefined when the adapter exists. */
  refuse(name: string): CallFault | undefined {
    if (this.#adapters.has(name)) return undefined;
    if (this.#adapters.size === 0) return fault('unsupported', 'this model has no adapters; ask runtime.model-traits');
    return fault('not-found', `this model has no adapter named ${name}; ask list-adapters`);
  }

  /**
   * Returns the adapter when it is on the device, held there until `release`. Otherwise returns undefined and loads the adapter. After the load it
   * calls `want.arrived`, with the adapter held as well. When the load fails it calls `want.failed`: with `unavailable` if the adapter cannot be
   * read, with `limit-exceeded` if it is too large.
   */
  hold(want: AdapterWant): DeviceAdapter | undefined {
    const { name } = want;
    const resident = this.#residents.get(name);
    if (resident && !this.#leavingNames.has(name)) return this.#use(name, resident);
    this.#queue.add(want);
    this.#loading ??= this.#bringAll();
    return undefined;
  }

  /** Ends one hold. */
  release(name: string): void {
    const resident = this.#residents.get(name);
    if (resident) resident.holds--;
    this.#wakeLoader();
  }

  /** Drops a want and calls neither of its callbacks. */
  drop(want: AdapterWant): void {
    this.#queue.drop(want);
    this.#wakeLoader();
  }

  /**
   * Brings an adapter to the device ahead of its use, and does not hold it: the adapter may leave again at once.
   * @param space of the inferlet that wants the adapter: `forget` ends the wait when the inferlet ends
   * @throws CallFault what `refuse` returns, or what `hold` gives to `failed`
   */
  load(name: string, space: AdapterWant['space']): Promise<void> {
    return new Promise((resolve, reject) => {
      const refusal = this.refuse(name);
      if (refusal) {
        reject(refusal);
        return;
      }
      const arrived = () => {
        this.release(name);
        resolve();
      };
      if (this.hold({ name, space, arrived, failed: reject })) arrived();
    });
  }

  /** Fails all wants of an ended inferlet with the error `cancelled`. */
  forget(space: AdapterWant['space']): void {
    for (const want of this.#queue.dropAll(space)) want.failed(fault('cancelled', 'the inferlet has ended'));
    this.#wakeLoader();
  }

  /** Drops all wants and calls none of their callbacks; resolves when no adapter is being read. */
  async close(): Promise<void> {
    this.#queue.clear();
    this.#wakeLoader();
    await this.#loading;
  }

  async #bringAll(): Promise<void> {
    // Start after this turn of the event loop: the caller of `hold` may be in the middle of other work.
    await setImmediate();
    for (let name = this.#queue.next(); name !== undefined; name = this.#queue.next()) {
      try {
        const resident = await this.#bring(name);
        if (resident) this.#hand(name, resident);
      } catch (error) {
        for (const want of this.#queue.take(name)) want.failed(error);
      }
    }
    this.#loading = undefined;
  }

  /** Gives the adapter to all wants that waited for it; their inferlets pay for the load. */
  #hand(name: string, resident: Resident): void {
    const wants = this.#queue.take(name);
    if (wants.length === 0) return;
    const payers = wants.map(({ space }) => space.port.meter);
    if (resident.unpaidMs > 0) this.#time?.spendEvenly(resident.unpaidMs, payers);
    resident.unpaidMs = 0;
    for (const want of wants) want.arrived(this.#use(name, resident));
  }

  /** Makes room for the adapter and loads it. Undefined when no call wants it any more. */
  async #bring(name: string): Promise<Resident | undefined> {
    const resident = this.#residents.get(name);
    if (resident) return resident;
    const loadedAdapter = this.#adapters.get(name);
    if (!loadedAdapter) throw this.refuse(name);
    const expected = this.#sizes.get(name) ?? this.#backend.adapterBytes?.(loadedAdapter) ?? loadedAdapter.bytes;
    if (!(await this.#makeRoom(name, expected))) return undefined;
    const adapter = await this.#read(name, loadedAdapter);
    this.#sizes.set(name, adapter.bytes);
    let hasRoom = false;
    try {
      // Make room again: the loaded adapter may take more bytes than expected.
      hasRoom = await this.#makeRoom(name, adapter.bytes);
    } finally {
      if (!hasRoom) adapter.release?.();
    }
    if (!hasRoom) return undefined;
    const newResident = { adapter, holds: 0, unpaidMs: adapter.loadMs };
    this.#residents.set(name, newResident);
    return newResident;
  }

  async #read(name: string, loadedAdapter: LoadedAdapter): Promise<DeviceAdapter> {
    try {
      return await this.#backend.loadAdapter(loadedAdapter);
    } catch (error) {
      if (!(error instanceof ModelError)) throw error;
      throw new CallFault(unreadable(`the adapter ${name}`, error));
    }
  }

  #use(name: string, resident: Resident): DeviceAdapter {
    resident.holds++;
    this.#residents.delete(name);
    this.#residents.set(name, resident);
    return resident.adapter;
  }

  /** Waits until `bytes` more fit, or no call wants the adapter. @returns whether they fit. @throws CallFault when they never will */
  async #makeRoom(name: string, bytes: number): Promise<boolean> {
    if (bytes > this.#maxBytes) {
      throw fault(
        'limit-exceeded',
        `the adapter ${name} takes ${mib(bytes)} MiB on the device and all together may take ${mib(this.#maxBytes)}; the operator can raise adapter_memory_mb`,
      );
    }
    let fits = false;
    while (this.#queue.wants(name)) {
      fits = this.#evict(bytes);
      if (fits) break;
      // This wait ends: each call that holds a leaving adapter ends, or gives the adapter back while it waits for memory.
      await new Promise<void>((resolve) => {
        this.#wakeLoader = resolve;
      });
    }
    this.#leavingNames.clear();
    return fits;
  }

  /** Evicts the least recently used residents until `bytes` more fit; marks those that are held as leaving. @returns whether the bytes fit now */
  #evict(bytes: number): boolean {
    this.#leavingNames.clear();
    let residentBytes = this.bytes;
    for (const [name, { adapter, holds }] of this.#residents) {
      if (residentBytes + bytes <= this.#maxBytes) break;
      residentBytes -= adapter.bytes;
      if (holds > 0) {
        this.#leavingNames.add(name);
        continue;
      }
      this.#residents.delete(name);
      adapter.release?.();
    }
    return this.#leavingNames.size === 0;
  }
}

function mib(bytes: number): number {
  return Math.ceil(bytes / MIB);
}

/** A call or load that waits for an adapter to be on the device. */
export interface AdapterWant {
  readonly name: string;
  /** The inferlet that wants the adapter, and pays for it. */
  readonly space: { readonly owner: { readonly tenant: string }; readonly port: { readonly meter: Payer } };
  /** The adapter is on the device, and held for this want until it is released. */
  arrived(adapter: DeviceAdapter): void;
  failed(why: unknown): void;
}

/** Order in which adapters come to the device: tenants take turns, and all wants of one adapter are served together. */
export class AdapterQueue {
  /** Wants by tenant and name; the tenant whose turn it is comes first. */
  readonly #tenants = new Map<string, Map<string, Set<AdapterWant>>>();

  add(want: AdapterWant): void {
    const { name } = want;
    const { tenant } = want.space.owner;
    const names = this.#tenants.get(tenant) ?? new Map<string, Set<AdapterWant>>();
    const wants = names.get(name) ?? new Set();
    this.#tenants.set(tenant, names.set(name, wants.add(want)));
  }

  /** The oldest wanted name of the tenant whose turn it is; passes the turn to the next tenant. Undefined without wants. */
  next(): string | undefined {
    const [first] = this.#tenants;
    if (!first) return undefined;
    const [tenant, names] = first;
    this.#tenants.delete(tenant);
    this.#tenants.set(tenant, names);
    const [name] = names.keys();
    return name;
  }

  wants(name: string): boolean {
    for (const names of this.#tenants.values()) if (names.has(name)) return true;
    return false;
  }

  /** Removes and returns all wants of an adapter. */
  take(name: string): AdapterWant[] {
    const takenWants: AdapterWant[] = [];
    for (const [tenant, names] of this.#tenants) {
      takenWants.push(...(names.get(name) ?? []));
      names.delete(name);
      if (names.size === 0) this.#tenants.delete(tenant);
    }
    return takenWants;
  }

  drop(want: AdapterWant): void {
    const { name } = want;
    const { tenant } = want.space.owner;
    const names = this.#tenants.get(tenant);
    const wants = names?.get(name);
    if (!names || !wants?.delete(want) || wants.size > 0) return;
    names.delete(name);
    if (names.size === 0) this.#tenants.delete(tenant);
  }

  /** Removes and returns all wants of one inferlet. */
  dropAll(space: AdapterWant['space']): AdapterWant[] {
    const names = this.#tenants.get(space.owner.tenant);
    const dropped = [...(names?.values() ?? [])].flatMap((wants) => [...wants].filter((want) => want.space === space));
    for (const want of dropped) this.drop(want);
    return dropped;
  }

  clear(): void {
    this.#tenants.clear();
  }
}

/** One call's hold on its adapter. It begins at the call's turn or when the adapter arrives, and ends when the call is done or has to wait again. */
export class AdapterHold implements AdapterWant {
  readonly name: string;
  readonly space: AdapterWant['space'];
  readonly #adapters: Adapters;
  /** Called when the adapter has arrived or been refused. */
  readonly #onSettled: () => void;
  /** `unasked` at first, and again once the call has given the adapter back; `over` when the call is done or dropped. */
  #state: 'unasked' | 'waiting' | 'held' | 'refused' | 'over' = 'unasked';
  #adapter: DeviceAdapter | undefined;
  #failureReason: unknown;

  constructor(name: string, space: AdapterWant['space'], adapters: Adapters, onSettled: () => void) {
    this.name = name;
    this.space = space;
    this.#adapters = adapters;
    this.#onSettled = onSettled;
  }

  /**
   * The adapter's name on a backend that cannot mix adapters, since the batcher puts no two variants into one batch. Undefined, as for a call without
   * adapter, on a backend that mixes adapters, and for a refused adapter, since the call fails in every batch.
   */
  get variant(): string | undefined {
    return this.#state === 'refused' || this.#adapters.mixesAdapters ? undefined : this.name;
  }

  /** The adapter, once `acquire` returned true or `arrived` was called. @throws the reason why the adapter was refused */
  get adapter(): DeviceAdapter {
    if (this.#state === 'refused') throw this.#failureReason;
    if (!this.#adapter) throw new Error(`a call computes without its adapter ${this.name}`);
    return this.#adapter;
  }

  /** Asks for the adapter, unless the call has asked already. Returns false until the adapter has arrived or been refused. */
  acquire(): boolean {
    if (this.#state === 'unasked') {
      this.#adapter = this.#adapters.hold(this);
      this.#state = this.#adapter ? 'held' : 'waiting';
    }
    return this.#state !== 'waiting';
  }

  arrived(adapter: DeviceAdapter): void {
    this.#adapter = adapter;
    this.#state = 'held';
    this.#onSettled();
  }

  failed(why: unknown): void {
    this.#failureReason = why;
    this.#state = 'refused';
    this.#onSettled();
  }

  /** Gives the adapter back, or stops waiting for it, until the next `acquire`. A refusal stays. */
  giveBack(): void {
    const state = this.#state;
    if (state !== 'held' && state !== 'waiting') return;
    this.#state = 'unasked';
    this.#adapter = undefined;
    if (state === 'held') this.#adapters.release(this.name);
    else this.#adapters.drop(this);
  }

  /** Call when the call is done or dropped. */
  release(): void {
    this.giveBack();
    this.#state = 'over';
  }
}
