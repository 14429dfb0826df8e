import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import { REPLY_MS, type Store } from '../store/store.ts';
import { actArguments } from './audit.ts';
import { EXPIRED_KEPT_MS, KEY_ID, KEY_NAME, LASTING_MS, MAX_KEYS, SCOPES, type Scope } from './rules.ts';

const SCRIPTS = {
  create: loadScript(new URL('./tenants.lua', import.meta.url), 'create-key'),
  rotate: loadScript(new URL('./tenants.lua', import.meta.url), 'rotate-key'),
  remove: loadScript(new URL('./tenants.lua', import.meta.url), 'remove-key'),
  touch: loadScript(new URL('./tenants.lua', import.meta.url), 'touch-key'),
};

/** Time for which a gateway caches a valid key. A key removed on another gateway works at most this much longer on this one. */
const CACHED_MS = 1500;
/** Maximum cached keys; the next one clears the cache. */
const MAX_CACHED = 10_000;
const MINUTE_MS = 60_000;

/** The tenant, id and scopes of a key. */
export interface KeyHolder {
  readonly tenant: string;
  /** Names the key in logs without revealing it. */
  readonly keyId: string;
  readonly scopes: readonly Scope[];
}

export type Authentication =
  | { readonly kind: 'valid'; readonly holder: KeyHolder }
  | { readonly kind: 'unknown' }
  /** `at` is in milliseconds since the Unix epoch. */
  | { readonly kind: 'expired'; readonly at: number }
  | { readonly kind: 'suspended'; readonly tenant: string };

/** A key as stored. Times in milliseconds since the Unix epoch. */
export interface ApiKey {
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly createdAt: number;
  readonly expiresAt: number | null;
  /** Rounded down to the minute; null when it was never used. */
  readonly lastUsedAt: number | null;
}

export interface NewApiKey {
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly expiresAt?: number | undefined;
}

/** `apiKey` is the key itself, which is returned only here. */
export type CreateKeyOutcome =
  | { readonly kind: 'created'; readonly apiKey: string; readonly key: ApiKey }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'full' };

interface CachedKey {
  readonly holder: KeyHolder;
  /** When Redis was asked. Before this time the entry is not valid: a clock that steps back must not prolong it. */
  readonly from: number;
  readonly until: number;
  /** Minute of the last use that was stored. */
  usedMinute: number;
}

/** API keys of tenants. Only the sha256 of a key is stored. */
export class ApiKeys {
  readonly #store: Store;
  readonly #cached = new Map<string, CachedKey>();
  readonly #pendingQueries = new Map<string, Promise<Authentication>>();
  /** Number of changes to keys by this process. A query that was under way during a change is not cached. */
  #changes = 0;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Identifies a key's holder, from a short cache or from Redis. Throws `StoreError`. */
  async authenticate(apiKey: string): Promise<Authentication> {
    if (!isApiKey(apiKey)) return { kind: 'unknown' };
    const sha256 = hashKey(apiKey);
    const cached = this.#cached.get(sha256);
    const now = this.#store.clock();
    if (cached !== undefined && cached.from <= now && now < cached.until) {
      this.#noteUse(sha256, cached);
      return { kind: 'valid', holder: cached.holder };
    }
    // Concurrent requests with one key share one query.
    let query = this.#pendingQueries.get(sha256);
    if (query === undefined) {
      query = this.#ask(sha256);
      this.#pendingQueries.set(sha256, query);
    }
    try {
      return await query;
    } finally {
      if (this.#pendingQueries.get(sha256) === query) this.#pendingQueries.delete(sha256);
    }
  }

  /** Keys of a tenant, oldest first, including recently expired ones. */
  async list(tenant: string): Promise<ApiKey[]> {
    const hashes = await this.#store.call((redis) => redis.hvals(this.#store.keys.apiKeys(tenant)));
    const records = await Promise.all(hashes.map((sha256) => this.#record(sha256)));
    return records.filter((key) => key !== null).sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1));
  }

  async get(tenant: string, id: string): Promise<ApiKey | null> {
    const sha256 = await this.#hashOf(tenant, id);
    return sha256 === null ? null : this.#record(sha256);
  }

  /**
   * Creates a key. `unknown` when there is no such tenant, `full` when the tenant has `MAX_KEYS` keys. With an `actor`
   * (here and below), one script stores the key and its audit entry, so that neither exists without the other.
   */
  async create(tenant: string, { name, scopes, expiresAt }: NewApiKey, actor?: string): Promise<CreateKeyOutcome> {
    if (!KEY_NAME.test(name)) throw new StoreError('invalid-argument', 'The name of a key has 1 to 64 characters.');
    const { keys } = this.#store;
    const apiKey = newApiKey();
    const sha256 = hashKey(apiKey);
    const now = this.#store.clock();
    const orderedScopes = SCOPES.filter((scope) => scopes.includes(scope));
    const fields = {
      tenant,
      name,
      scopes: orderedScopes.join(' '),
      createdAt: new Date(now).toISOString(),
      ...(expiresAt !== undefined && { expiresAt: String(expiresAt) }),
    };
    const forgottenAt = expiresAt === undefined ? '' : expiresAt + EXPIRED_KEPT_MS;
    const record = JSON.stringify(Object.entries(fields).flat());
    const id = keyIdOf(sha256);
    const act = this.#act(actor, tenant, 'key.create', id, {
      name,
      scopes: orderedScopes,
      expiresAt: isoOf(expiresAt),
    });
    const reply = await this.#store.script(
      SCRIPTS.create,
      [keys.apiKeys(tenant), keys.tenant(tenant), keys.apiKey(sha256), ...act.keys],
      [...this.#roomArguments(now), id, sha256, forgottenAt, record, ...act.fields],
    );
    if (reply !== 1) return { kind: reply === 0 ? 'unknown' : 'full' };
    const key = {
      id,
      tenant,
      name,
      scopes: orderedScopes,
      createdAt: now,
      expiresAt: expiresAt ?? null,
      lastUsedAt: null,
    };
    return { kind: 'created', apiKey, key };
  }

  /**
   * Creates a key with the same name, scopes and expiry; the old key works for `graceMs` longer, at most until its own expiry. `unknown`:
   * the old key does not exist, or has expired.
   */
  async rotate(tenant: string, id: string, graceMs: number, actor?: string): Promise<CreateKeyOutcome> {
    const { keys } = this.#store;
    const oldSha256 = await this.#hashOf(tenant, id);
    // The outcome needs this record. It is read before the script: a read after it could fail, and the caller would never get the new key.
    const record = oldSha256 === null ? null : await this.#record(oldSha256);
    if (oldSha256 === null || record === null) return { kind: 'unknown' };
    const apiKey = newApiKey();
    const sha256 = hashKey(apiKey);
    const now = this.#store.clock();
    const act = this.#act(actor, tenant, 'key.rotate', id, { by: keyIdOf(sha256), graceMs });
    const reply = await this.#store.script(
      SCRIPTS.rotate,
      [keys.apiKeys(tenant), keys.apiKey(oldSha256), keys.apiKey(sha256), ...act.keys],
      [
        ...this.#roomArguments(now),
        ...[id, keyIdOf(sha256), sha256, new Date(now).toISOString()],
        ...[now + graceMs, EXPIRED_KEPT_MS, ...act.fields],
      ],
    );
    this.#forget(oldSha256);
    if (reply !== 1) return { kind: reply === 0 ? 'unknown' : 'full' };
    const key = { ...record, id: keyIdOf(sha256), createdAt: now, lastUsedAt: null };
    return { kind: 'created', apiKey, key };
  }

  /**
   * Deletes a key; within 2 s every gateway refuses it. With `keepLast`, a key that administers its tenant is not
   * deleted (`last`) unless another such key works for more than a day.
   */
  async remove(
    tenant: string,
    id: string,
    options: { readonly keepLast?: boolean; readonly actor?: string } = {},
  ): Promise<'removed' | 'unknown' | 'last'> {
    const { keys } = this.#store;
    const sha256 = await this.#hashOf(tenant, id);
    if (sha256 === null) return 'unknown';
    const name = await this.#store.call((redis) => redis.hget(keys.apiKey(sha256), 'name'));
    const act = this.#act(options.actor, tenant, 'key.remove', id, { name: name ?? '' });
    const reply = await this.#store.script(
      SCRIPTS.remove,
      [keys.apiKeys(tenant), keys.apiKey(sha256), keys.reply(randomUUID()), ...act.keys],
      [
        ...this.#roomArguments(this.#store.clock()),
        ...[id, options.keepLast === true ? LASTING_MS : '', REPLY_MS, ...act.fields],
      ],
    );
    this.#forget(sha256);
    if (reply === -1) return 'last';
    return reply === 1 ? 'removed' : 'unknown';
  }

  /** Called after a key has changed: later requests ask Redis again, instead of sharing a query from before the change. */
  #forget(sha256: string): void {
    this.#cached.delete(sha256);
    this.#pendingQueries.delete(sha256);
    this.#changes += 1;
  }

  async #ask(sha256: string): Promise<Authentication> {
    // The lifetime of the cached key begins before the query, so that a slow reply is cached for less time.
    const askedAt = this.#store.clock();
    const earlier = this.#cached.get(sha256);
    this.#cached.delete(sha256);
    const changes = this.#changes;
    const key = await this.#record(sha256);
    if (key === null) return { kind: 'unknown' };
    if (key.expiresAt !== null && key.expiresAt <= askedAt) return { kind: 'expired', at: key.expiresAt };
    const suspended = await this.#store.call((redis) => redis.hget(this.#store.keys.tenant(key.tenant), 'suspended'));
    if (suspended === '1') return { kind: 'suspended', tenant: key.tenant };
    const holder: KeyHolder = { tenant: key.tenant, keyId: key.id, scopes: key.scopes };
    const until = Math.min(askedAt + CACHED_MS, key.expiresAt ?? Number.POSITIVE_INFINITY);
    const usedMinute = earlier?.usedMinute ?? minuteOf(key.lastUsedAt ?? 0);
    const cached: CachedKey = { holder, from: askedAt, until, usedMinute };
    if (changes === this.#changes) {
      if (this.#cached.size >= MAX_CACHED) this.#cached.clear();
      this.#cached.set(sha256, cached);
    }
    this.#noteUse(sha256, cached);
    return { kind: 'valid', holder };
  }

  /** Stores the last use, once a minute and without delaying the request. */
  #noteUse(sha256: string, cached: CachedKey): void {
    const minute = minuteOf(this.#store.clock());
    if (minute <= cached.usedMinute) return;
    cached.usedMinute = minute;
    this.#store
      .script(SCRIPTS.touch, [this.#store.keys.apiKey(sha256)], [minute * MINUTE_MS])
      // A failure must not fail the request. The key's first use in a later minute is stored again.
      .catch(() => undefined);
  }

  async #hashOf(tenant: string, id: string): Promise<string | null> {
    if (!KEY_ID.test(id)) return null;
    return this.#store.call((redis) => redis.hget(this.#store.keys.apiKeys(tenant), id));
  }

  async #record(sha256: string): Promise<ApiKey | null> {
    const fields = await this.#store.call((redis) => redis.hgetall(this.#store.keys.apiKey(sha256)));
    if (fields.tenant === undefined) return null;
    const granted = new Set(fields.scopes?.split(' '));
    return {
      id: keyIdOf(sha256),
      tenant: fields.tenant,
      name: fields.name ?? '',
      scopes: SCOPES.filter((scope) => granted.has(scope)),
      createdAt: Date.parse(fields.createdAt ?? ''),
      expiresAt: fields.expiresAt === undefined ? null : Number(fields.expiresAt),
      lastUsedAt: fields.lastUsedAt === undefined ? null : Number(fields.lastUsedAt),
    };
  }

  #act(
    actor: string | undefined,
    tenant: string,
    action: string,
    target: string,
    details: Readonly<Record<string, unknown>>,
  ): ReturnType<typeof actArguments> {
    return actArguments(this.#store, actor === undefined ? null : { actor, tenant, action, target, details });
  }

  /** The arguments of `has_room` in `tenants.lua`; the first is the prefix under which Redis has the records of API keys. */
  #roomArguments(now: number): readonly (string | number)[] {
    return [this.#store.keys.apiKey(''), now, MAX_KEYS];
  }
}

const minuteOf = (ms: number): number => Math.floor(ms / MINUTE_MS);
const isoOf = (at: number | undefined): string | undefined =>
  at === undefined ? undefined : new Date(at).toISOString();

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const PREFIX = 'pie_';
const LENGTH = 32;
const KEY = /^pie_[0-9A-Za-z]{32}$/;

/** A new key with 190 random bits, so that storing a plain sha256 of it is safe. */
export function newApiKey(): string {
  return PREFIX + randomText(LENGTH);
}

export function isApiKey(text: string): boolean {
  return KEY.test(text);
}

/** The stored form of a key. */
export function hashKey(apiKey: string): string {
  return createHash('sha256').update(apiKey).digest('hex');
}

/** A part of the hash that tells keys apart and reveals nothing of the key. */
export function keyIdOf(hash: string): string {
  return `key_${hash.slice(0, 12)}`;
}

/**
 * A text in which every character of the alphabet is equally likely. Discards bytes from the largest multiple of the alphabet's length on, since
 * their remainders would favour the first characters.
 */
function randomText(length: number): string {
  const usableBytes = 256 - (256 % ALPHABET.length);
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      if (byte < usableBytes && text.length < length) text += ALPHABET[byte % ALPHABET.length];
    }
  }
  return text;
}
