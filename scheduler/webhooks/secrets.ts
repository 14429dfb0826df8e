import type { MasterKeys } from '../secrets/master-keys.ts';
import { seal, unseal } from '../secrets/sealing.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';
import { newWebhookSecret } from './signature.ts';

const RESEAL = loadScript(new URL('./scripts/reseal.lua', import.meta.url));

/** The secrets with which the webhooks of tenants are signed, one each, sealed where they are stored. */
export class WebhookSecrets {
  readonly #store: Store;
  readonly #masterKeys: MasterKeys | undefined;

  /** Without master keys nothing can be signed. */
  constructor(store: Store, masterKeys?: MasterKeys) {
    this.#store = store;
    this.#masterKeys = masterKeys;
  }

  /** The tenant's secret; made when it has none. */
  async get(tenant: string): Promise<string> {
    const key = this.#store.keys.webhookSecret(tenant);
    const known = await this.#store.call((redis) => redis.get(key));
    if (known !== null) return this.#open(tenant, known);
    const fresh = await this.#sealed(tenant, newWebhookSecret());
    // Another gateway may have been quicker.
    await this.#store.call((redis) => redis.set(key, fresh, 'NX'));
    const stored = await this.#store.call((redis) => redis.get(key));
    return this.#open(tenant, stored ?? fresh);
  }

  /** A new secret; from here on every attempt is signed with it. */
  async rotate(tenant: string): Promise<string> {
    const fresh = newWebhookSecret();
    const sealed = await this.#sealed(tenant, fresh);
    await this.#store.call((redis) => redis.set(this.#store.keys.webhookSecret(tenant), sealed));
    return fresh;
  }

  /** Seals the tenant's secret anew when it is not sealed under the first master key. */
  async reseal(tenant: string): Promise<void> {
    const key = this.#store.keys.webhookSecret(tenant);
    const sealed = await this.#store.call((redis) => redis.get(key));
    if (sealed === null || sealed.startsWith(`${(await this.#keys().first()).id}.`)) return;
    const anew = await this.#sealed(tenant, await this.#open(tenant, sealed));
    await this.#store.script(RESEAL, [key], [sealed, anew]);
  }

  async #sealed(tenant: string, secret: string): Promise<string> {
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

/** The name is none that a secret of a function can have. */
const owner = (tenant: string) => ({ tenant, name: 'webhook-secret' });
