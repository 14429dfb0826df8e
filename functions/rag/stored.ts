import {
  type IndexEntry,
  type IndexMatch,
  type IndexQuery,
  InferletError,
  log,
  store,
  VectorIndex,
} from '@pie/inferlet';

/** After this time, ms, an index to which no pointer leads counts as abandoned: the invocation that wrote it was lost. */
const ABANDONED_MS = 3_600_000;
/** Maximum attempts of a query. An attempt fails when another invocation replaces the passages meanwhile; the next one follows the new pointer. */
const ATTEMPTS = 4;

/**
 * The passages under a name. They are replaced as a whole: a new index is written, then a stored pointer moves to it, and the old index is dropped.
 * Until the pointer moves, and after a refused write, questions are answered from the old passages.
 */
export class StoredPassages {
  readonly #name: string;
  readonly #key: string;

  constructor(name: string) {
    this.#name = name;
    this.#key = `rag-index/${name}`;
  }

  /** Replaces all passages. @throws InferletError `limit-exceeded` when the tenant has no room for the old and the new ones */
  async replace(entries: readonly IndexEntry[]): Promise<void> {
    const [first] = entries;
    const next = first ? `rag.${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}.${this.#name}` : '';
    let previous: string | undefined;
    try {
      if (first) await (await VectorIndex.open(next, { dimensions: first.vector.length })).upsert(entries);
      await store.update<string>(this.#key, (current) => {
        previous = current;
        return next;
      });
    } catch (error) {
      // An update that failed as unavailable may have moved the pointer: drop the new index only if the pointer certainly names another one.
      const current = await store.getJson<string>(this.#key).catch(() => next);
      if (first && current !== next) await dropIndex(next);
      throw error;
    }
    if (previous) await dropIndex(previous);
    await this.#dropAbandoned();
  }

  /** @throws InferletError `not-found` when there are no passages */
  async query(query: IndexQuery): Promise<IndexMatch[]> {
    for (let attempt = 1; ; attempt++) {
      const current = await store.getJson<string>(this.#key);
      try {
        if (current) return await new VectorIndex(current).query(query);
      } catch (error) {
        if (InferletError.from(error).code !== 'not-found') throw error;
        // The index may have been dropped after the pointer was read: try again if the pointer has moved.
        if (attempt < ATTEMPTS && (await store.getJson<string>(this.#key)) !== current) continue;
      }
      throw new InferletError('not-found', `The index "${this.#name}" is empty: give it passages first.`);
    }
  }

  async #dropAbandoned(): Promise<void> {
    const current = await store.getJson<string>(this.#key);
    for (const { name } of await VectorIndex.list()) {
      const [, writtenAt, owner] = /^rag\.([0-9a-z]+)-[0-9a-z]+\.(.+)$/.exec(name) ?? [];
      const isOld = writtenAt !== undefined && Date.now() - Number.parseInt(writtenAt, 36) > ABANDONED_MS;
      if (isOld && owner === this.#name && name !== current) await dropIndex(name);
    }
  }
}

/** Drops an index that nothing points to. A failure only leaves the index until a later replacement drops it. */
async function dropIndex(name: string): Promise<void> {
  if (name === '') return;
  try {
    await new VectorIndex(name).drop();
  } catch (error) {
    log(`The index "${name}" could not be dropped: ${InferletError.from(error).message}`, 'warn');
  }
}
