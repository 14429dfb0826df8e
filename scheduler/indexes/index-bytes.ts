import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

const SCRIPTS = {
  room: loadScript(new URL('./indexes.lua', import.meta.url), 'room'),
  note: loadScript(new URL('./indexes.lua', import.meta.url), 'note'),
};

/** The sum of the bytes of a tenant's indexes at one time. */
export interface IndexSum {
  readonly bytes: number;
  /** Id of one run of the index host. */
  readonly life: string;
  /** Orders the sums of one run: a later one has a larger number. */
  readonly sequence: number;
}

/**
 * The records in Redis of the tenants' indexes: the sum of a tenant's bytes, which its index host reports after each write, and the machine that has them.
 * The index host itself checks the quota, in the transaction of a write; Redis counts the reported sum against writes of other kinds of storage.
 * Every method throws `StoreError`.
 */
export class IndexBytes {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Bytes that the tenant's indexes may have together under its quota of storage; null without a limit. */
  async room(tenant: string): Promise<number | null> {
    const { keys, clock } = this.#store;
    const usageKeys = [keys.storedUsage(tenant), keys.fileUsage(tenant), keys.fileExpiries(tenant)];
    const bytes = Number(await this.#store.script(SCRIPTS.room, usageKeys, [keys.account(tenant), clock()]));
    return bytes < 0 ? null : bytes;
  }

  /** Stores a sum, unless a later one is stored already. Sums of a new run replace those of the run before. */
  async note(tenant: string, { bytes, life, sequence }: IndexSum): Promise<void> {
    await this.#store.script(SCRIPTS.note, [this.#store.keys.indexSum(tenant)], [bytes, life, sequence]);
  }

  /** Name of the machine whose index host has the indexes: the first one for which this method was called. */
  async owner(machine: string): Promise<string> {
    const { indexOwner } = this.#store.keys;
    await this.#store.call((redis) => redis.set(indexOwner, machine, 'NX'));
    return (await this.#store.call((redis) => redis.get(indexOwner))) ?? machine;
  }
}
