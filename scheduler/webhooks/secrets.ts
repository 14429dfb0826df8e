import { createHmac, randomBytes } from 'node:crypto';
import { type MasterKeys, seal, unseal } from '../secrets/master-keys.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

const RESEAL = loadScript(new URL('./webhooks.lua', import.meta.url), 'reseal');

/** The secrets that sign tenants' webhooks, one per tenant, sealed in Redis. */
export class WebhookSecrets {
  readonly #store: Store;
  readonly #masterKeys: MasterKeys | undefined;

  /** Without master keys, webhooks cannot be signed. */
  constructor(store: Store, masterKeys?: MasterKeys) {
    this.#store = store;
    this.#masterKeys = masterKeys;
  }

  /** The tenant's secret; created when it has none. */
  async get(tenant: string): Promise<string> {
    const key = this.#store.keys.webhookSecret(tenant);
    const known = await this.#store.call((redis) => redis.get(key));
    if (known !== null) return this.#open(tenant, known);
    const fresh = await this.#seal(tenant, newWebhookSecret());
    // Another gateway may have stored its own new secret first; all gateways use that one.
    await this.#store.call((redis) => redis.set(key, fresh, 'NX'));
    const stored = await this.#store.call((redis) => redis.get(key));
    return this.#open(tenant, stored ?? fresh);
  }

  /** Creates a new secret, which signs all later attempts to deliver a webhook. */
  async rotate(tenant: string): Promise<string> {
    const fresh = newWebhookSecret();
    const sealed = await this.#seal(tenant, fresh);
    await this.#store.call((redis) => redis.set(this.#store.keys.webhookSecret(tenant), sealed));
    return fresh;
  }

  /** Reseals the tenant's secret when it is not under the first master key. */
  async reseal(tenant: string): Promise<void> {
    const key = this.#store.keys.webhookSecret(tenant);
    const sealed = await this.#store.call((redis) => redis.get(key));
    if (sealed === null || sealed.startsWith(`${(await this.#keys().first()).id}.`)) return;
    const resealed = await this.#seal(tenant, await this.#open(tenant, sealed));
    await this.#store.script(RESEAL, [key], [sealed, resealed]);
  }

  async #seal(tenant: string, secret: string): Promise<string> {
    return seal(await this.#keys().first(), owner(tenant), secret);
  }

  async #open(tenant: string, sealed: string): Promise<string> {
    try {
      return await unseal(this.#keys(), owner(tenant), sealed);
    } catch (cause) {
      throw new StoreError('store-corrupt', 'The secret for webhooks cannot be unsealed.', { cause });
    }
  }

  #keys(): MasterKeys {
    if (this.#masterKeys) return this.#masterKeys;
    throw new StoreError('invalid-argument', 'Without a master key no webhook can be signed.');
  }
}

/**
 * The owner for which a tenant's webhook secret is sealed; a sealed value opens only for its owner. The tenant's secrets for functions have names in
 * capitals (`VARIABLE_NAME`), so none of them has this owner or opens in place of the webhook secret.
 */
const owner = (tenant: string) => ({ tenant, name: 'webhook-secret' });

/** Precedes a secret's base64 text, as Standard Webhooks requires. */
const PREFIX = 'whsec_';
const SECRET_BYTES = 32;

export function newWebhookSecret(): string {
  return `${PREFIX}${randomBytes(SECRET_BYTES).toString('base64')}`;
}

/**
 * The headers that prove to a receiver that a webhook is recent and comes from Pie (Standard Webhooks 1.0: HMAC-SHA256
 * of `id.timestamp.body`). Receivers should refuse timestamps that are more than five minutes off, and repeated ids.
 *
 * @param id the same for every attempt at one notification.
 * @param nowMs time of this attempt.
 */
export function signedHeaders(secret: string, id: string, nowMs: number, body: string): Record<string, string> {
  const key = Buffer.from(secret.slice(PREFIX.length), 'base64');
  const timestamp = Math.floor(nowMs / 1000);
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': String(timestamp), 'webhook-signature': `v1,${signature}` };
}
