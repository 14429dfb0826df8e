import { z } from 'zod';
import type { MasterKeys } from '../secrets/master-keys.ts';
import { seal, unseal } from '../secrets/sealing.ts';
import type { Store } from '../store/store.ts';
import { newJoinToken } from './join-token.ts';
import { ROLES } from './types.ts';

const entry = z.object({
  key: z.base64(),
  /** Roles that the machine may have. */
  roles: z.array(z.enum(ROLES)).readonly(),
  /** Id of the API key that made the token, for the audit log. */
  by: z.string(),
  /** Tenant of that API key. */
  tenant: z.string(),
});

/** Rights that an operator gave a token. */
export type JoinPermission = Readonly<Omit<z.output<typeof entry>, 'key'>>;

/**
 * Tokens that operators have made and that no machine has used yet; `RedisUsers.grant` uses a token up. Redis deletes a token when it expires. Tokens
 * are sealed under the master key: a machine that may write to Redis, but lacks the master key, can neither read a token nor make or change one.
 */
export class JoinTokens {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Makes a token. Returns its text, which the platform does not store. */
  async create(masterKeys: MasterKeys, ttlMs: number, permission: JoinPermission): Promise<string> {
    const { id, key, text } = newJoinToken();
    const newEntry: z.output<typeof entry> = { ...permission, key: key.toString('base64') };
    const sealed = seal(await masterKeys.first(), ownerOf(id), JSON.stringify(newEntry));
    await this.#store.call((redis) => redis.set(this.#store.keys.joinToken(id), sealed, 'PX', ttlMs));
    return text;
  }

  /**
   * Key and permission of an unused token; null for the id of no such token, and for an entry that cannot be unsealed.
   * @throws when the master keys cannot be read
   */
  async find(masterKeys: MasterKeys, id: string): Promise<(JoinPermission & { readonly key: Buffer }) | null> {
    const sealed = await this.#store.call((redis) => redis.get(this.#store.keys.joinToken(id)));
    if (sealed === null) return null;
    // The text before the first dot is the id of the master key. This look-up is outside the `try`, because the token is not at fault when the
    // master keys cannot be read.
    const masterKeyId = sealed.slice(0, Math.max(0, sealed.indexOf('.')));
    if ((await masterKeys.byId(masterKeyId)) === null) return null;
    try {
      const { key, ...permission } = entry.parse(JSON.parse(await unseal(masterKeys, ownerOf(id), sealed)));
      return { ...permission, key: Buffer.from(key, 'base64') };
    } catch {
      return null;
    }
  }
}

/** The owner that `seal` binds a token to; no secret of a tenant has such an owner. */
const ownerOf = (id: string) => ({ tenant: '', name: `join ${id}` });
