import { createHash, randomBytes } from 'node:crypto';
import type { Store } from '#scheduler/store/store.ts';
import { type Principal, SCOPES, type Scope } from '../app/control.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const KEY_PREFIX = 'pie_';
const KEY_LENGTH = 32;
const KEY = /^pie_[0-9A-Za-z]{32}$/;

/** How long a key that was seen is believed without asking again: a removed key works at most this much longer. */
const BELIEF_MS = 2000;
/** Keys believed at once. */
const MAX_BELIEVED = 10_000;

/**
 * Tenants and their API keys, in Redis. Only the sha256 of a key is stored; a key has 190 random bits, so nothing slower is needed.
 */
export class Keys {
  readonly #store: Store;
  readonly #believed = new Map<string, { principal: Principal; until: number }>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** Whose key this is, or null. Throws `StoreError`. */
  async authenticate(apiKey: string): Promise<Principal | null> {
    if (!KEY.test(apiKey)) return null;
    const hash = hashKey(apiKey);
    const believed = this.#believed.get(hash);
    const now = this.#store.clock();
    if (believed !== undefined && believed.until > now) return believed.principal;
    const principal = toPrincipal(hash, await this.#store.call((redis) => redis.hgetall(this.#key(hash))));
    this.#believed.delete(hash);
    if (principal === null) return null;
    if (this.#believed.size >= MAX_BELIEVED) this.#believed.clear();
    this.#believed.set(hash, { principal, until: now + BELIEF_MS });
    return principal;
  }

  /** Creates the tenant when it is new. */
  async ensureTenant(tenant: string): Promise<void> {
    const createdAt = new Date(this.#store.clock()).toISOString();
    await this.#store.call((redis) => redis.hsetnx(this.#at('tenant', tenant), 'createdAt', createdAt));
  }

  /** Makes a key and stores its hash. The key itself is nowhere but in what this returns. */
  async create(tenant: string, scopes: readonly Scope[]): Promise<{ apiKey: string; keyId: string }> {
    const apiKey = KEY_PREFIX + randomText(KEY_LENGTH);
    const hash = hashKey(apiKey);
    await this.#store.call((redis) =>
      redis.hset(this.#key(hash), {
        tenant,
        scopes: scopes.join(' '),
        createdAt: new Date(this.#store.clock()).toISOString(),
      }),
    );
    return { apiKey, keyId: keyIdOf(hash) };
  }

  /** Forgets a key. */
  async remove(apiKey: string): Promise<boolean> {
    const hash = hashKey(apiKey);
    this.#believed.delete(hash);
    return (await this.#store.call((redis) => redis.del(this.#key(hash)))) > 0;
  }

  #key(hash: string): string {
    return this.#at('key', hash);
  }

  #at(...parts: string[]): string {
    return [this.#store.keys.prefix, ...parts].join(':');
  }
}

function hashKey(apiKey: string): string {
  return createHash('sha256').update(apiKey).digest('hex');
}

/** Enough of the hash to tell keys apart, and nothing of the key. */
function keyIdOf(hash: string): string {
  return `key_${hash.slice(0, 12)}`;
}

function toPrincipal(hash: string, fields: Record<string, string>): Principal | null {
  if (fields.tenant === undefined) return null;
  const granted = new Set(fields.scopes?.split(' '));
  return { tenant: fields.tenant, keyId: keyIdOf(hash), scopes: SCOPES.filter((scope) => granted.has(scope)) };
}

/** Uniform: bytes past the last multiple of the alphabet's length are thrown away. */
function randomText(length: number): string {
  const usable = 256 - (256 % ALPHABET.length);
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      if (byte < usable && text.length < length) text += ALPHABET[byte % ALPHABET.length];
    }
  }
  return text;
}
