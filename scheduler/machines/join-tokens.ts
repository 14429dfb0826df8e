import type { MasterKeys } from '../secrets/master-keys.ts';
import { seal, unseal } from '../secrets/sealing.ts';
import type { Store } from '../store/store.ts';
import { newJoinToken } from './join-token.ts';

/**
 * The tokens that operators have made and no machine has used (`RedisUsers.grant`). Redis forgets them at their ends. Their keys are sealed under
 * the master key: a machine that may write to Redis, but lacks the master key, can neither read a token nor make one.
 */
export class JoinTokens {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Makes a token. Returns its text, which is kept nowhere. */
  async create(masterKeys: MasterKeys, ttlMs: number): Promise<string> {
    const { id, key, text } = newJoinToken();
    const sealed = seal(await masterKeys.first(), ownerOf(id), key.toString('base64'));
    await this.#store.call((redis) => redis.set(this.#store.keys.joinToken(id), sealed, 'PX', ttlMs));
    return text;
  }

  /** The key of an unused token; null for any other id, and for an entry that no gateway has sealed. */
  async key(masterKeys: MasterKeys, id: string): Promise<Buffer | null> {
    const sealed = await this.#store.call((redis) => redis.get(this.#store.keys.joinToken(id)));
    if (sealed === null) return null;
    try {
      return Buffer.from(await unseal(masterKeys, ownerOf(id), sealed), 'base64');
    } catch {
      return null;
    }
  }
}

/** No secret of a tenant has such a name. */
const ownerOf = (id: string) => ({ tenant: '', name: `join ${id}` });
