import type { DeviceAdapter } from '../../backends/backend.ts';
import type { Payer } from './meter.ts';

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
