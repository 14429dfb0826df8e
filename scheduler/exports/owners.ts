import { z } from 'zod';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

const SCRIPTS = {
  claim: loadScript(new URL('./exports.lua', import.meta.url), 'claim'),
  release: loadScript(new URL('./exports.lua', import.meta.url), 'release'),
};

/** Exports and KV files have separate name spaces. */
export type NamedKind = 'export' | 'file';

/** A name of a tenant, for one model. */
export interface OwnedName {
  readonly tenant: string;
  readonly model: string;
  readonly kind: NamedKind;
  readonly name: string;
}

const ownerSchema = z.object({
  /** The GPU host, by its name in the configuration. */
  host: z.string(),
  /** The process of the host that stored the content. Content that is not persistent is lost when this process ends. */
  hostId: z.string(),
  persistent: z.boolean(),
  /** Random text, new for each save, so that no two entries are equal. */
  claim: z.string(),
});

/** The owner of a name. */
export type NameOwner = Readonly<z.infer<typeof ownerSchema>>;

/** The owners of the tenants' exports and KV files. Every method throws `StoreError`. */
export class NameOwners {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** The owner of a name; null when none is noted. */
  async of(name: OwnedName): Promise<NameOwner | null> {
    const text = await this.#store.call((redis) => redis.hget(this.#key(name), fieldOf(name)));
    return text === null ? null : parse(text);
  }

  /** The owners of a tenant's names of one kind, by name. */
  async list({ tenant, model, kind }: Omit<OwnedName, 'name'>): Promise<ReadonlyMap<string, NameOwner>> {
    const entries = await this.#store.call((redis) => redis.hgetall(this.#key({ tenant, model })));
    const prefix = fieldOf({ kind, name: '' });
    return new Map(
      Object.entries(entries).flatMap(([field, text]) =>
        field.startsWith(prefix) ? [[field.slice(prefix.length), parse(text)] as const] : [],
      ),
    );
  }

  /**
   * Notes the owner of a name.
   * @param replaced the noted owner that may be replaced, if any
   * @returns the owner that keeps the name; null when the claim succeeded
   */
  async claim(name: OwnedName, owner: NameOwner, replaced: NameOwner | null): Promise<NameOwner | null> {
    const args = [fieldOf(name), format(owner), replaced ? format(replaced) : ''];
    const other = await this.#store.script(SCRIPTS.claim, [this.#key(name)], args);
    return typeof other === 'string' ? parse(other) : null;
  }

  /** Forgets the owner of a name, if it is still `owner`. */
  async release(name: OwnedName, owner: NameOwner): Promise<void> {
    await this.#store.script(SCRIPTS.release, [this.#key(name)], [fieldOf(name), format(owner)]);
  }

  #key({ tenant, model }: Pick<OwnedName, 'tenant' | 'model'>): string {
    return this.#store.keys.nameOwners(tenant, model);
  }
}

/** Field of a name in the hash of owners. */
export function fieldOf({ kind, name }: Pick<OwnedName, 'kind' | 'name'>): string {
  return `${kind}/${name}`;
}

/** The text of an entry. Scripts compare it, so the order of the fields is fixed. */
export function format({ host, hostId, persistent, claim }: NameOwner): string {
  return JSON.stringify({ host, hostId, persistent, claim });
}

function parse(text: string): NameOwner {
  try {
    return ownerSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The entry of the owner of a name cannot be read.', { cause });
  }
}
