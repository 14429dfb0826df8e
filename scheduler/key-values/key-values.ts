import { randomUUID } from 'node:crypto';
import type { AttemptName } from '../invocations/types.ts';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import { StoreError, staleAttempt } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { REPLY_MS, type Store } from '../store/store.ts';

/** A value and its version. */
export interface StoredValue {
  readonly value: Uint8Array;
  /** Grows with every write of the key, even after a deletion. */
  readonly version: bigint;
}

/**
 * `conflict`: the key has another version. `full`: the tenant's store, which now has `bytes` and `keys`, has no room.
 */
export type WriteOutcome =
  | { readonly kind: 'written'; readonly version: bigint }
  | { readonly kind: 'conflict' }
  | { readonly kind: 'full'; readonly bytes: number; readonly keys: number };

export interface WriteOptions {
  /** The version that the key must have now; null when it must have no value. When absent, the write replaces any value. */
  readonly expected?: bigint | null;
  /** Seconds until the value expires. When absent, the key keeps its expiry if `expected` names a version; else the value does not expire. */
  readonly timeToLiveSeconds?: number;
  /** The attempt that writes; after its end, the write is refused. */
  readonly by?: AttemptName | undefined;
}

export interface KeyValuesOptions {
  /** Maximum bytes of a tenant's keys and values, including 8 for the version of each value; 256 MiB by default. */
  readonly maxBytes?: number;
  /** Maximum keys of a tenant; 1,000,000 by default. */
  readonly maxKeys?: number;
}

/** Default bounds of a tenant's store. */
const MAX_STORE_BYTES = 256 * 2 ** 20;
const MAX_STORE_KEYS = 1_000_000;

const SCRIPTS = {
  write: loadScript(new URL('./key-values.lua', import.meta.url), 'write'),
  read: loadScript(new URL('./key-values.lua', import.meta.url), 'read'),
  delete: loadScript(new URL('./key-values.lua', import.meta.url), 'delete'),
  list: loadScript(new URL('./key-values.lua', import.meta.url), 'list'),
  sweep: loadScript(new URL('./key-values.lua', import.meta.url), 'sweep'),
};

const VERSION_BYTES = 8;
/** Maximum expired keys that one write drops. */
const SWEPT_BY_WRITE = 16;
/** Maximum expired keys of one tenant that a call of `sweep` drops. */
const SWEPT_AT_ONCE = 1000;
/** Maximum tenants in a call of `sweep`. */
const TENANTS_AT_ONCE = 16;
/** Keys that one call of the list script reads; it skips expired ones. */
const LOOKED_AT_ONCE = 1024;
/** Greater than every byte of UTF-8. */
const PAST_UTF8 = Buffer.from([0xff]);
/** First bytes of a bound of ZRANGEBYLEX. */
const EXCLUSIVE_BOUND = Buffer.from('(');
const INCLUSIVE_BOUND = Buffer.from('[');

/**
 * Durable values by key, a store for each tenant: a hash of values, sorted sets of names and of expiries, and a hash with the tenant's bytes and last
 * version. Versions only grow. Expiries follow the caller's clock; no call sees an expired value. A call that a reconnection sends twice takes effect
 * once, because the scripts remember successful changes for `REPLY_MS`. Every method may throw a `StoreError`.
 */
export class KeyValues {
  readonly #store: Store;
  readonly #maxBytes: number;
  readonly #maxKeys: number;

  constructor(store: Store, { maxBytes = MAX_STORE_BYTES, maxKeys = MAX_STORE_KEYS }: KeyValuesOptions = {}) {
    this.#store = store;
    this.#maxBytes = maxBytes;
    this.#maxKeys = maxKeys;
  }

  /** The value of a key, or null. */
  async get(tenant: string, key: string): Promise<StoredValue | null> {
    const [there, stored] = await this.#read(tenant, key, true);
    if (there !== 1) return null;
    if (!Buffer.isBuffer(stored) || stored.length < VERSION_BYTES) throw corrupt('read');
    return { value: stored.subarray(VERSION_BYTES), version: stored.readBigUInt64BE() };
  }

  async exists(tenant: string, key: string): Promise<boolean> {
    const [there] = await this.#read(tenant, key, false);
    return there === 1;
  }

  /**
   * Writes a value.
   *
   * @throws QuotaExceeded, StoreError `stale-attempt`: the value was not written. After any other error, it may have been written.
   */
  async write(tenant: string, key: string, value: Uint8Array, options: WriteOptions = {}): Promise<WriteOutcome> {
    const { expected, timeToLiveSeconds, by } = options;
    const now = this.#store.clock();
    const { keys } = this.#store;
    const [outcome, second, third, fourth] = await this.#store.scriptBuffers(
      SCRIPTS.write,
      [
        ...[...this.#keys(tenant), keys.reply(randomUUID())],
        ...[keys.fileUsage(tenant), keys.fileExpiries(tenant), keys.invocation(by?.id ?? '')],
      ],
      [
        ...[tenant, now, key, asBuffer(value), timeToLiveSeconds === undefined ? '' : now + timeToLiveSeconds * 1000],
        ...[expectedArgument(expected), this.#maxBytes, this.#maxKeys, SWEPT_BY_WRITE, REPLY_MS],
        ...[by?.epoch ?? '', keys.account(tenant)],
      ],
    );
    if (outcome === 0) return { kind: 'conflict' };
    if (outcome === -1) return { kind: 'full', bytes: Number(second), keys: Number(third) };
    if (outcome === -2) throw QuotaExceeded.ofBytes(second, third, fourth, now);
    if (outcome === -3) throw staleAttempt();
    if (outcome !== 1 || !Buffer.isBuffer(second)) throw corrupt('write');
    return { kind: 'written', version: second.readBigUInt64BE() };
  }

  /** Deletes a value; returns false when there was none. @throws StoreError `stale-attempt` */
  async delete(tenant: string, key: string, by?: AttemptName): Promise<boolean> {
    const { keys, clock } = this.#store;
    const reply = await this.#store.script(
      SCRIPTS.delete,
      [...this.#keys(tenant), keys.reply(randomUUID()), keys.invocation(by?.id ?? '')],
      [tenant, clock(), key, REPLY_MS, by?.epoch ?? '', keys.account(tenant)],
    );
    if (reply === -1) throw staleAttempt();
    return reply === 1;
  }

  /** Up to `limit` keys that begin with `prefix` and follow `after`, in byte order. */
  async list(tenant: string, prefix: string, after: string | undefined, limit: number): Promise<string[]> {
    const { keys, clock } = this.#store;
    const prefixBytes = Buffer.from(prefix);
    const upper = prefixBytes.length === 0 ? '+' : Buffer.concat([EXCLUSIVE_BOUND, prefixBytes, PAST_UTF8]);
    const cursor = after === undefined ? null : Buffer.from(after);
    let lower =
      cursor && cursor.compare(prefixBytes) >= 0
        ? Buffer.concat([EXCLUSIVE_BOUND, cursor])
        : Buffer.concat([INCLUSIVE_BOUND, prefixBytes]);
    const found: string[] = [];
    for (;;) {
      const [more, last, ...names] = await this.#store.scriptBuffers(
        SCRIPTS.list,
        [keys.storedNames(tenant), keys.storedExpiries(tenant)],
        [clock(), lower, upper, limit - found.length, LOOKED_AT_ONCE],
      );
      found.push(...names.map(String));
      if (more !== 1 || found.length >= limit || !Buffer.isBuffer(last)) return found;
      lower = Buffer.concat([EXCLUSIVE_BOUND, last]);
    }
  }

  /** Drops expired values that no write has dropped. Any number of processes may call it. */
  async sweep(): Promise<void> {
    const { keys, clock } = this.#store;
    const tenants = await this.#store.call((redis) =>
      redis.zrangebyscore(keys.storedSweeps, '-inf', clock(), 'LIMIT', 0, TENANTS_AT_ONCE),
    );
    for (const tenant of tenants) {
      await this.#store.script(SCRIPTS.sweep, this.#keys(tenant), [
        tenant,
        clock(),
        SWEPT_AT_ONCE,
        keys.account(tenant),
      ]);
    }
  }

  #read(tenant: string, key: string, withValue: boolean): Promise<unknown[]> {
    const { keys, clock } = this.#store;
    return this.#store.scriptBuffers(
      SCRIPTS.read,
      [keys.storedValues(tenant), keys.storedExpiries(tenant)],
      [clock(), key, withValue ? 1 : 0],
    );
  }

  #keys(tenant: string): string[] {
    const { keys } = this.#store;
    return [
      keys.storedValues(tenant),
      keys.storedNames(tenant),
      keys.storedExpiries(tenant),
      keys.storedUsage(tenant),
      keys.storedSweeps,
    ];
  }
}

/** `WriteOptions.expected` as `write` of `key-values.lua` takes it. */
function expectedArgument(expected: bigint | null | undefined): Buffer | string {
  if (expected === undefined) return '';
  return expected === null ? 'none' : versionBytes(expected);
}

function versionBytes(version: bigint): Buffer {
  const bytes = Buffer.alloc(VERSION_BYTES);
  bytes.writeBigUInt64BE(version);
  return bytes;
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

const corrupt = (script: string): StoreError =>
  new StoreError('store-corrupt', `The script ${script} returned a value of an unknown form.`);
