import type { Store } from '../store/store.ts';
import { newJoinToken } from './join-token.ts';

/** The tokens that operators have made and no machine has used (`RedisUsers.grant`). Redis forgets them at their ends. */
export class JoinTokens {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Makes a token. Returns its text, which is kept nowhere. */
  async create(ttlMs: number): Promise<string> {
    const { id, key, text } = newJoinToken();
    await this.#store.call((redis) => redis.set(this.#store.keys.joinToken(id), key.toString('base64'), 'PX', ttlMs));
    return text;
  }

  /** The key of an unused token; null for any other id. */
  async key(id: string): Promise<Buffer | null> {
    const key = await this.#store.call((redis) => redis.get(this.#store.keys.joinToken(id)));
    return key === null ? null : Buffer.from(key, 'base64');
  }
}
