import type { DeviceAdapter } from '../backends/backend.ts';
import type { Payer } from './meter.ts';

/** Somebody who waits for an adapter to be on the device. */
export interface AdapterWant {
  readonly name: string;
  /** On whose behalf. */
  readonly space: { readonly owner: { readonly tenant: string }; readonly port: { readonly meter: Payer } };
  /** It is there, and held for this one until it is released. */
  arrived(adapter: DeviceAdapter): void;
  failed(why: unknown): void;
}

/** Which adapters are wanted, and which comes next: tenants take turns, and whoever wants the same one is served with it. */
export class AdapterLine {
  /** Who wants what, by tenant and name; the tenant whose turn it is first. */
  readonly #tenants = new Map<string, Map<string, Set<AdapterWant>>>();

  add(want: AdapterWant): void {
    const { name } = want;
    const { tenant } = want.space.owner;
    const names = this.#tenants.get(tenant) ?? new Map<string, Set<AdapterWant>>();
    const wants = names.get(name) ?? new Set();
    this.#tenants.set(tenant, names.set(name, wants.add(want)));
  }

  /** The name that the tenant whose turn it is has wanted longest; then it is the next tenant's turn. Undefined when nobody wants any. */
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

  /** Takes out everybody who wants it. */
  take(name: string): AdapterWant[] {
    const taken: AdapterWant[] = [];
    for (const [tenant, names] of this.#tenants) {
      taken.push(...(names.get(name) ?? []));
      names.delete(name);
      if (names.size === 0) this.#tenants.delete(tenant);
    }
    return taken;
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

  /** Takes out all that is wanted on behalf of one inferlet. */
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
