import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

const SCRIPTS = {
  keep: loadScript(new URL('./exports.lua', import.meta.url), 'keep-copy'),
  remove: loadScript(new URL('./exports.lua', import.meta.url), 'remove-copy'),
  drop: loadScript(new URL('./exports.lua', import.meta.url), 'drop-field'),
  claim: loadScript(new URL('./exports.lua', import.meta.url), 'claim'),
  release: loadScript(new URL('./exports.lua', import.meta.url), 'release'),
};

const copySchema = z.object({
  /** Claim of the content that was copied. The copy counts only while the owner's entry has this claim. */
  claim: z.string(),
  /** Name of the file in the platform's folder. */
  file: z.string().regex(/^[0-9a-f]{32}$/),
  bytes: z.int().min(0),
  checksum: z.string(),
  /** Identifies the model and the settings that made the keys and values. */
  fingerprint: z.string(),
  /** KV slots (tokens) in a page. */
  pageSize: z.int().min(1),
  pageBytes: z.int().min(1),
  pages: z.int().min(0),
  tokens: z.int().min(0),
  nextPosition: z.int().min(0),
  /**
   * The rights are those of `wit/kv-files.wit`, which this folder may not import. Runtimes pass the contract's type, so
   * the compiler compares them.
   */
  access: z.object({ owner: z.string(), rights: z.enum(['private', 'readable', 'writable']) }).nullable(),
});

/** A copy, in the shared directory, of the content stored under a name. */
export type DurableCopy = Readonly<z.infer<typeof copySchema>>;

const removalSchema = z.object({
  /** Claim of the entry that was removed. */
  claim: z.string(),
  /** The function that owned the KV file; null for an export. */
  owner: z.string().nullable(),
});

/** A name that was removed while the GPU host that has its content was away. Content of this claim on that host is void. */
export type Removal = Readonly<z.infer<typeof removalSchema>>;

/** Bounds of one tenant's copies together. */
export interface CopyBounds {
  readonly copies: number;
  readonly bytes: number;
}

export type Kept =
  | { readonly is: 'kept'; readonly replaced: DurableCopy | null }
  /** The name was saved anew or removed since its owner was read. */
  | { readonly is: 'changed' }
  /** Nothing was noted: the tenant's other copies leave no room. `copies` and `bytes` count them. */
  | { readonly is: 'full'; readonly copies: number; readonly bytes: number };

/**
 * Names of exports and KV files whose content also has a copy in the directory that machines share; one hash for each tenant. Every save writes a new
 * random *claim* into the owner's entry. A copy notes the claim of the content that it was made of, and counts only while the owner's entry has that
 * claim. Its entry has checksum and length of the file, because the file itself is not trusted. The hash also has *removals*: names that were removed
 * while their host was away, and whose content on that host does not count. Every method throws `StoreError`.
 */
export class DurableNames {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** The platform's folder in the shared directory: random text, so that several platforms may share one. Null before `nameFolder`. */
  async folder(): Promise<string | null> {
    return folderOf(await this.#store.call((redis) => redis.get(this.#store.keys.sharedFolder)));
  }

  /** Notes a folder that the caller has made, unless another is noted. @returns the noted one */
  async nameFolder(folder: string): Promise<string> {
    const { sharedFolder } = this.#store.keys;
    await this.#store.call((redis) => redis.set(sharedFolder, folder, 'NX'));
    return (await this.folder()) ?? folder;
  }

  /** `copy`: the noted copy of a name, perhaps of earlier content. `removal`: set when the host must still forget the name. */
  async look(
    name: OwnedName,
    host: string,
  ): Promise<{ readonly copy: DurableCopy | null; readonly removal: Removal | null }> {
    const fields = [copyField(name), removalField(name, host)];
    const [copy = null, removal = null] = await this.#store.call((redis) => redis.hmget(this.#key(name), ...fields));
    return {
      copy: copy === null ? null : parse(copySchema, copy),
      removal: removal === null ? null : parse(removalSchema, removal),
    };
  }

  /** A tenant's copies of all models, and the names that a host must still forget. */
  async list(
    tenant: string,
    host: string,
  ): Promise<{
    readonly copies: readonly { readonly name: OwnedName; readonly copy: DurableCopy }[];
    readonly removals: readonly { readonly name: OwnedName; readonly removal: Removal }[];
  }> {
    const entries = Object.entries(await this.#store.call((redis) => redis.hgetall(this.#key({ tenant }))));
    const nameOf = (model: string, kind: NamedKind, name: string): OwnedName => ({ tenant, model, kind, name });
    return {
      copies: entries.flatMap(([field, text]) => {
        if (!field.startsWith(COPY)) return [];
        const [model, kind, name] = parse(copyFieldSchema, field.slice(COPY.length));
        return [{ name: nameOf(model, kind, name), copy: parse(copySchema, text) }];
      }),
      removals: entries.flatMap(([field, text]) => {
        if (!field.startsWith(REMOVED)) return [];
        const [model, kind, name, removalHost] = parse(removalFieldSchema, field.slice(REMOVED.length));
        return removalHost === host ? [{ name: nameOf(model, kind, name), removal: parse(removalSchema, text) }] : [];
      }),
    };
  }

  /** Notes a copy, if the owner of the name is still the given one. */
  async keep(name: OwnedName, owner: NameOwner, copy: DurableCopy, bounds: CopyBounds): Promise<Kept> {
    const text = formatCopy(copy);
    const args = [fieldOf(name), format(owner), copyField(name), text, copy.bytes, bounds.copies, bounds.bytes];
    const reply = await this.#store.script(SCRIPTS.keep, this.#keys(name), args);
    const [is, first, second] = Array.isArray(reply) ? reply : [];
    if (is === 'changed') return { is };
    if (is === 'full') return { is, copies: Number(first), bytes: Number(second) };
    if (is !== 'kept') throw new StoreError('store-corrupt', 'A script gave no answer about a durable name.');
    return { is, replaced: first === '' ? null : parse(copySchema, String(first)) };
  }

  /**
   * Forgets a name and its copy, if both are still the given ones.
   * @param isAway true when the owning host cannot be asked and may have the content: that host must forget the name when it is back
   * @returns false when the owner's entry or the copy has changed
   */
  async remove(name: OwnedName, owner: NameOwner, copy: DurableCopy, isAway: boolean): Promise<boolean> {
    const removal: Removal = { claim: owner.claim, owner: copy.access?.owner ?? null };
    const mark = isAway ? [removalField(name, owner.host), formatRemoval(removal)] : ['', ''];
    const args = [fieldOf(name), format(owner), copyField(name), formatCopy(copy), ...mark];
    const keys = [...this.#keys(name), this.#store.keys.reply(randomUUID())];
    return (await this.#store.script(SCRIPTS.remove, keys, args)) === 1;
  }

  /** Forgets the copy of a name that has other content now, or none. Returns false when another copy is noted. */
  async drop(name: OwnedName, copy: DurableCopy): Promise<boolean> {
    return (await this.#store.script(SCRIPTS.drop, [this.#key(name)], [copyField(name), formatCopy(copy)])) === 1;
  }

  /** Notes that a host has forgotten a name. */
  async forgotten(name: OwnedName, host: string, removal: Removal): Promise<void> {
    await this.#store.script(SCRIPTS.drop, [this.#key(name)], [removalField(name, host), formatRemoval(removal)]);
  }

  #keys(name: OwnedName): string[] {
    return [this.#store.keys.nameOwners(name.tenant, name.model), this.#key(name)];
  }

  #key({ tenant }: Pick<OwnedName, 'tenant'>): string {
    return this.#store.keys.durableNames(tenant);
  }
}

const COPY = 'copy/';
const REMOVED = 'removed/';
const kindSchema = z.enum(['export', 'file']);
const copyFieldSchema = z.tuple([z.string(), kindSchema, z.string()]);
const removalFieldSchema = z.tuple([z.string(), kindSchema, z.string(), z.string()]);

function copyField({ model, kind, name }: OwnedName): string {
  return COPY + JSON.stringify([model, kind, name]);
}

function removalField({ model, kind, name }: OwnedName, host: string): string {
  return REMOVED + JSON.stringify([model, kind, name, host]);
}

function folderOf(text: string | null): string | null {
  if (text === null || /^[0-9a-f]{32}$/.test(text)) return text;
  throw new StoreError('store-corrupt', 'The name of the folder in the shared directory cannot be read.');
}

/** The scripts compare the texts, so the order of the fields is fixed. */
function formatCopy(copy: DurableCopy): string {
  const { claim, file, bytes, checksum, fingerprint, pageSize, pageBytes, pages, tokens, nextPosition } = copy;
  const access = copy.access && { owner: copy.access.owner, rights: copy.access.rights };
  const content = { bytes, checksum, fingerprint, pageSize, pageBytes, pages, tokens, nextPosition };
  return JSON.stringify({ claim, file, ...content, access });
}

function formatRemoval({ claim, owner }: Removal): string {
  return JSON.stringify({ claim, owner });
}

function parse<T>(schema: z.ZodType<T>, text: string): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The entry of a durable name cannot be read.', { cause });
  }
}

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

/**
 * The owners of the tenants' exports and KV files: for each name, the GPU host that keeps its pages. An entry only names the host to ask; the host decides
 * on content, rights and locks. An entry whose host does not know the name is stale, and is replaced or released unless the name is durable. A change
 * succeeds only while the entry is the one that its caller has read, so of two hosts that save a name at once, the second learns of the first. The
 * entry names the host's process, with which a name that is not persistent ends. Every method throws `StoreError`.
 */
export class NameOwners {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** The owner of a name; null when none is noted. */
  async of(name: OwnedName): Promise<NameOwner | null> {
    const text = await this.#store.call((redis) => redis.hget(this.#key(name), fieldOf(name)));
    return text === null ? null : parseOwner(text);
  }

  /** The owners of a tenant's names of one kind, by name. */
  async list({ tenant, model, kind }: Omit<OwnedName, 'name'>): Promise<ReadonlyMap<string, NameOwner>> {
    const entries = await this.#store.call((redis) => redis.hgetall(this.#key({ tenant, model })));
    const prefix = fieldOf({ kind, name: '' });
    return new Map(
      Object.entries(entries).flatMap(([field, text]) =>
        field.startsWith(prefix) ? [[field.slice(prefix.length), parseOwner(text)] as const] : [],
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
    return typeof other === 'string' ? parseOwner(other) : null;
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

function parseOwner(text: string): NameOwner {
  try {
    return ownerSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new StoreError('store-corrupt', 'The entry of the owner of a name cannot be read.', { cause });
  }
}
