import { type Message, toBytes, toJson, toText } from '../bytes.ts';
import { InferletError } from '../errors.ts';
import { runtime, settle, store as wire } from '../raw.ts';

/** A value and the version that {@link store.compareAndSet} compares. */
export interface StoreEntry {
  readonly value: Uint8Array;
  readonly version: number;
}

/** Options for writing a value. */
export interface SetOptions {
  /** Seconds until the value expires; without it, the value never expires. */
  readonly ttlSeconds?: number;
}

const KEYS_AT_ONCE = 500;
const UPDATE_ATTEMPTS = 64;
/** Longest wait between two attempts of an update; waits grow from 1 ms. */
const MAX_BACKOFF_MS = 32;

/**
 * Durable values by key. The tenant's functions with the grant `store` (manifest: `grants.store`) share them; other functions get `unsupported`.
 * Keys have 1 to 512 bytes, values at most 1 MiB. A call costs one round trip to the platform's store, about 0.2 ms.
 *
 * @example
 * const visits = await store.update<number>('visits', (count = 0) => count + 1);
 */
export const store = {
  /** The value of a key, if it has one. */
  async get(key: string): Promise<Uint8Array | undefined> {
    return (await settle(wire.get(key)))?.value;
  },

  /** A value with its version. */
  async entry(key: string): Promise<StoreEntry | undefined> {
    return (await settle(wire.get(key))) ?? undefined;
  },

  async getText(key: string): Promise<string | undefined> {
    const value = await store.get(key);
    return value && toText(value);
  },

  /** A value parsed as JSON. Throws `invalid-argument` when the value is not JSON. */
  async getJson<T = unknown>(key: string): Promise<T | undefined> {
    const value = await store.get(key);
    return value && parse<T>(key, value);
  },

  /** Writes a value unconditionally. @returns its version */
  set(key: string, value: Message, { ttlSeconds }: SetOptions = {}): Promise<number> {
    return settle(wire.set(key, toBytes(value), ttlSeconds));
  },

  /** Writes a value as JSON unconditionally. @returns its version */
  setJson(key: string, value: unknown, options: SetOptions = {}): Promise<number> {
    return store.set(key, toJson(value), options);
  },

  /**
   * Writes a value if the key's version is `expected` (`undefined`: if there is no value). Keeps the key's time to live, if it has one.
   * @returns the new version, or `undefined` when the version differs
   */
  async compareAndSet(key: string, expected: number | undefined, value: Message): Promise<number | undefined> {
    return (await settle(wire.compareAndSet(key, expected, toBytes(value)))) ?? undefined;
  },

  /**
   * Replaces a JSON value (`undefined` if missing) by the result of `change`, and returns the result. If another inferlet writes meanwhile,
   * calls `change` again with the new value. Keeps the key's time to live. Throws `unavailable` after 64 lost attempts.
   */
  async update<T>(key: string, change: (value: T | undefined) => T | Promise<T>): Promise<T> {
    for (let attempt = 0; attempt < UPDATE_ATTEMPTS; attempt++) {
      const entry = await store.entry(key);
      const next = await change(entry && parse<T>(key, entry.value));
      if ((await store.compareAndSet(key, entry?.version, toJson(next))) !== undefined) return next;
      // A random wait, so that competing inferlets do not all retry at once.
      await settle(runtime.sleep(Math.ceil(Math.random() * Math.min(MAX_BACKOFF_MS, 2 ** attempt))));
    }
    throw new InferletError('unavailable', `"${key}" was written by others ${UPDATE_ATTEMPTS} times: try again later.`);
  },

  /** Deletes a value. @returns true if there was one */
  delete(key: string): Promise<boolean> {
    return settle(wire.deleteKey(key));
  },

  exists(key: string): Promise<boolean> {
    return settle(wire.exists(key));
  },

  /** Keys that begin with `prefix`, in byte order. Keys that are written or deleted during the iteration may be missing or included. */
  async *keys(prefix = ''): AsyncGenerator<string, void, void> {
    let after: string | undefined;
    for (;;) {
      const keys = await settle(wire.listKeys(prefix, after, KEYS_AT_ONCE));
      yield* keys;
      if (keys.length < KEYS_AT_ONCE) return;
      after = keys.at(-1);
    }
  },
} as const;

function parse<T>(key: string, value: Uint8Array): T {
  try {
    return JSON.parse(toText(value)) as T;
  } catch {
    throw new InferletError(
      'invalid-argument',
      `The value of "${key}" was not written as JSON: read it with store.get.`,
    );
  }
}
