import { createHash, randomUUID } from 'node:crypto';
import { QuotaExceeded, throwBytesQuota } from '../quotas/exceeded.ts';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import {
  type AliasState,
  chooseVersion,
  compareAliasNames,
  heaviest,
  LIVE,
  MAX_ALIASES,
  MAX_HISTORY,
  type NamedAlias,
  type Share,
} from './aliases.ts';
import type { Manifest } from './manifest.ts';
import {
  lentTo,
  type ParseVersion,
  parseListed,
  parseState,
  parseVersion,
  recordText,
  type Serving,
  servedVersion,
  stateText,
} from './records.ts';
import { type FunctionVersion, PLATFORM_TENANT } from './types.ts';

const SCRIPTS = {
  put: loadScript(new URL('./functions.lua', import.meta.url), 'put-function'),
  resolve: loadScript(new URL('./functions.lua', import.meta.url), 'resolve-function'),
};

/** Functions of the platform that every tenant may invoke; the routes of OpenAI's and Anthropic's APIs run them. */
export const SHARED_FUNCTIONS: readonly string[] = [
  'openai-completions',
  'openai-chat',
  'openai-responses',
  'anthropic-messages',
  'openai-embeddings',
  'rerank',
];

/** Owners whose functions of that name a tenant may run, in order of preference. */
export function ownersFor(tenant: string, name: string): readonly string[] {
  const isShared = tenant !== PLATFORM_TENANT && SHARED_FUNCTIONS.includes(name);
  return isShared ? [tenant, PLATFORM_TENANT] : [tenant];
}

const VERSION_FIELD = 'version:';
const ALIAS_FIELD = 'alias:';
const VERSION_LENGTH = 12;
/** Maximum functions of a tenant. */
export const MAX_FUNCTIONS = 1000;
/** Maximum versions of a function, draining ones included; every read of a function reads all of them. */
export const MAX_VERSIONS = 200;
/** Maximum bytes of the records (JSON texts) of a tenant's versions: lists and secrets read all of them. */
export const MAX_RECORD_BYTES = 8 << 20;
/** Maximum functions read at once, so that the process also serves other requests between two such reads. */
const READ_AT_ONCE = 16;

/**
 * The version id: the first 12 digits of a sha256 over manifest, component, secrets and values of the environment.
 *
 * @param mark stands for the values of the environment, which a sealed manifest lacks; see `SealedManifest`.
 */
export function versionOf(
  manifest: Manifest,
  componentHash: string,
  secrets: Readonly<Record<string, number>> = {},
  mark = '',
): string {
  const digest = createHash('sha256').update(canonical(manifest)).update('\0').update(componentHash);
  if (Object.keys(secrets).length > 0) digest.update('\0').update(canonical(secrets));
  if (mark !== '') digest.update('\0').update(mark);
  return digest.digest('hex').slice(0, VERSION_LENGTH);
}

/** The changes of a deploy to a function's aliases. */
export interface Placement {
  /** Alias that serves the version after the deploy; null for none. */
  readonly alias: string | null;
  /** A tag for the version. The caller has checked it by `aliasNameFault`. */
  readonly tag?: string | undefined;
  /** Id of the key that deploys. */
  readonly by?: string | undefined;
  readonly message?: string | undefined;
  /** When true, content that was deployed before does not move the alias. */
  readonly onlyNew?: boolean | undefined;
}

/** The bound that keeps a tenant from adding a version. */
export type FullReason = 'too-many-functions' | 'too-many-versions' | 'records-too-large';

export type PutOutcome =
  | {
      readonly ok: true;
      readonly created: boolean;
      /** Present state of `placement.alias`; null when the placement has no alias. */
      readonly alias: AliasState | null;
    }
  /** `version` is the version that the tag names. */
  | { readonly ok: false; readonly reason: 'tag-taken'; readonly version: string }
  | {
      readonly ok: false;
      readonly reason: 'too-many-aliases' | 'component-missing' | FullReason;
    };

/** A function with its aliases and all its deployed versions. The versions lack their input schemas. */
export interface DeployedFunction {
  readonly tenant: string;
  readonly name: string;
  /** Newest first. */
  readonly versions: readonly FunctionVersion[];
  /** Sorted by name, `live` first. */
  readonly aliases: readonly NamedAlias[];
}

/** A function as an entry of a list. */
export interface ListedFunction {
  /** The version with the largest share of `live`, or the newest when `live` serves none; without its input schema. */
  readonly version: FunctionVersion;
  /** The shares of `live`. */
  readonly live: readonly Share[];
}

/** The registry of functions. */
export class Functions {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Stores a version, whose component must be in `Blobs`, and points an alias at it (`live` by default). `created` is false when the
   * version was already deployed. A refused version is not stored.
   *
   * @throws QuotaExceeded when the tenant may store no more.
   */
  async put(version: FunctionVersion, placement: Placement = { alias: LIVE }): Promise<PutOutcome> {
    const { keys } = this.#store;
    const { tenant, name, componentHash } = version;
    const text = recordText(version);
    const reply = await this.#store.script(
      SCRIPTS.put,
      [
        keys.functions(tenant),
        keys.function(tenant, name),
        keys.blob(componentHash),
        keys.blobUsers(componentHash),
        keys.removedVersions(tenant, name),
        keys.removals,
        keys.deployed,
        ...[keys.storedUsage(tenant), keys.fileUsage(tenant), keys.fileExpiries(tenant)],
        keys.reply(randomUUID()),
        keys.blobUploads(componentHash),
        ...engineKeys(keys, version),
      ],
      [
        name,
        version.version,
        text,
        blobUser(version),
        memberOf(tenant, name),
        placement.alias ?? '',
        stateText([{ version: version.version, weight: 100 }], this.#store.clock(), placement),
        placement.tag ?? '',
        placement.onlyNew === true ? 1 : 0,
        MAX_HISTORY,
        MAX_ALIASES,
        keys.releaseChannel,
        ...[keys.account(tenant), version.componentBytes + Buffer.byteLength(text), this.#store.clock()],
        ...[MAX_FUNCTIONS, MAX_VERSIONS, componentHash, artifactBytesOf(version), MAX_RECORD_BYTES],
      ],
    );
    const [code, second, third, fourth] = Array.isArray(reply) ? reply : [];
    if (code === -1 || code === -8) return { ok: false, reason: 'component-missing' };
    if (code === -2) return { ok: false, reason: 'tag-taken', version: String(second) };
    if (code === -3) return { ok: false, reason: 'too-many-aliases' };
    if (code === -4) throw QuotaExceeded.ofBytes(second, third, fourth, this.#store.clock());
    if (code === -5) return { ok: false, reason: 'too-many-functions' };
    if (code === -6) return { ok: false, reason: 'too-many-versions' };
    if (code === -7) return { ok: false, reason: 'records-too-large' };
    return { ok: true, created: code === 1, alias: second === '' ? null : parseState(String(second)) };
  }

  /**
   * Resolves a reference, a version or an alias (`live` by default), to the version that an invocation runs; an alias's
   * shares are drawn by chance. If the tenant has no function of that name, or the function lacks the reference, the
   * platform's function (`SHARED_FUNCTIONS`) is resolved as if it were the tenant's. One round trip.
   *
   * @param random uniform, from 0 up to but not including 1.
   */
  resolve(tenant: string, name: string, reference = '', random = Math.random()): Promise<FunctionVersion | null> {
    return this.#lookUp(tenant, ownersFor(tenant, name), name, reference, (shares) => chooseVersion(shares, random));
  }

  /** Like {@link resolve}, but always takes the version with the largest share of an alias. For display. */
  find(tenant: string, name: string, reference = ''): Promise<FunctionVersion | null> {
    return this.#lookUp(tenant, ownersFor(tenant, name), name, reference, heaviest);
  }

  /** Like {@link find}, but only among the tenant's own functions. */
  get(tenant: string, name: string, reference = ''): Promise<FunctionVersion | null> {
    return this.#lookUp(tenant, [tenant], name, reference, heaviest);
  }

  /** A version that may still have running invocations: deployed, or removed and draining. */
  async runnable(tenant: string, name: string, version: string): Promise<FunctionVersion | null> {
    const text = await this.record(tenant, name, version);
    return text === null ? null : lentTo(tenant, parseVersion(text));
  }

  /** The stored text of a version that {@link runnable} finds. */
  async record(tenant: string, name: string, version: string): Promise<string | null> {
    const { keys } = this.#store;
    const owners = ownersFor(tenant, name);
    const replies = await this.#store.call((redis) => {
      // One transaction, because a redeployed version moves from one hash to the other.
      const transaction = redis.multi();
      for (const owner of owners) {
        transaction.hget(keys.function(owner, name), VERSION_FIELD + version);
        transaction.hget(keys.removedVersions(owner, name), version);
      }
      return transaction.exec();
    });
    for (const [error, text] of replies ?? []) {
      // An error must not look like a missing version.
      if (error) throw StoreError.from(error);
      if (typeof text === 'string') return text;
    }
    return null;
  }

  /** All versions, without input schemas, and all aliases of a tenant's own function; null when there is none. */
  async read(tenant: string, name: string): Promise<DeployedFunction | null> {
    const fields = await this.#store.call((redis) => redis.hgetall(this.#store.keys.function(tenant, name)));
    const entries = Object.entries(fields);
    const versions = entries
      .filter(([field]) => field.startsWith(VERSION_FIELD))
      .map(([, text]) => parseListed(text))
      .sort((a, b) => b.createdAt - a.createdAt);
    if (versions.length === 0) return null;
    const aliases = entries
      .filter(([field]) => field.startsWith(ALIAS_FIELD))
      .map(([field, text]) => ({ alias: field.slice(ALIAS_FIELD.length), ...parseState(text) }));
    return { tenant, name, versions, aliases: aliases.sort((a, b) => compareAliasNames(a.alias, b.alias)) };
  }

  /** Functions that a tenant can invoke by name: its own, and the platform's that it may run instead ({@link resolve}). */
  async visible(tenant: string): Promise<ListedFunction[]> {
    const ownFunctions = await this.list(tenant);
    if (tenant === PLATFORM_TENANT) return ownFunctions;
    const missingNames = SHARED_FUNCTIONS.filter((name) => !ownFunctions.some(({ version }) => version.name === name));
    return [
      ...ownFunctions,
      ...(await readInParts(missingNames, (name) => this.#listEntry(tenant, PLATFORM_TENANT, name))),
    ];
  }

  /** Versions of a function that a tenant can invoke: its own, newest first, then the platform's; each without its input schema. */
  async visibleVersions(
    tenant: string,
    name: string,
  ): Promise<{ version: FunctionVersion; aliases: readonly NamedAlias[] }[]> {
    const ownFunction = await this.read(tenant, name);
    const ownVersions = (ownFunction?.versions ?? []).map((version) => ({
      version,
      aliases: ownFunction?.aliases ?? [],
    }));
    if (tenant === PLATFORM_TENANT || !SHARED_FUNCTIONS.includes(name)) return ownVersions;
    const platformFunction = await this.read(PLATFORM_TENANT, name);
    const platformVersions = (platformFunction?.versions ?? [])
      .filter(({ version }) => !ownVersions.some((known) => known.version.version === version))
      .map((version) => ({ version: lentTo(tenant, version), aliases: platformFunction?.aliases ?? [] }));
    return [...ownVersions, ...platformVersions];
  }

  /** A tenant's own functions, by name. */
  async list(tenant: string): Promise<ListedFunction[]> {
    const names = await this.names(tenant);
    return readInParts(names, (name) => this.#listEntry(tenant, tenant, name));
  }

  /** All versions of a tenant's own function, newest first, without input schemas. */
  async versions(tenant: string, name: string): Promise<readonly FunctionVersion[]> {
    return (await this.read(tenant, name))?.versions ?? [];
  }

  /** Every version that an alias of the tenant serves, without its input schema. */
  async inService(tenant: string): Promise<FunctionVersion[]> {
    const names = await this.names(tenant);
    return (await this.#readAll(names.map((name) => ({ tenant, name })))).flatMap(servedVersions);
  }

  /** Every version of the tenant that may still run, deployed or draining, without its input schema. */
  async runnableVersions(tenant: string): Promise<FunctionVersion[]> {
    const { keys } = this.#store;
    // The hash `:components` has a field `<name>@<version>` for each version that is not deleted yet, also of removed
    // functions.
    const [names, countedFields] = await this.#store.call((redis) =>
      Promise.all([redis.smembers(keys.functions(tenant)), redis.hkeys(keys.versionBytes(tenant))]),
    );
    const versions = countedFields.filter((field) => field.includes('@'));
    const allNames = new Set([...names, ...versions.map((version) => version.slice(0, version.lastIndexOf('@')))]);
    return (await readInParts([...allNames].sort(), (name) => this.#runnableVersionsOf(tenant, name))).flat();
  }

  /** Bytes of the records of a tenant's versions; `MAX_RECORD_BYTES` bounds them. */
  async recordBytes(tenant: string): Promise<number> {
    const { keys } = this.#store;
    return Number((await this.#store.call((redis) => redis.hget(keys.versionRecordBytes(tenant), 'bytes'))) ?? 0);
  }

  /** Names of a tenant's own functions, sorted. */
  async names(tenant: string): Promise<string[]> {
    return (await this.#store.call((redis) => redis.smembers(this.#store.keys.functions(tenant)))).sort();
  }

  /** The functions of all tenants without input schemas, read in parts: together they may be more than a process can keep. */
  async *deployedFunctions(): AsyncGenerator<DeployedFunction> {
    const { keys } = this.#store;
    const [members, platformNames] = await this.#store.call((redis) =>
      Promise.all([redis.smembers(keys.deployed), redis.smembers(keys.functions(PLATFORM_TENANT))]),
    );
    // The platform's set also covers functions deployed before the set of all functions existed.
    const allMembers = [
      ...new Set([...members, ...platformNames.map((name) => memberOf(PLATFORM_TENANT, name))]),
    ].sort();
    for (let at = 0; at < allMembers.length; at += READ_AT_ONCE)
      yield* await this.#readAll(allMembers.slice(at, at + READ_AT_ONCE).map(fromMember));
  }

  async #readAll(names: readonly { tenant: string; name: string }[]): Promise<DeployedFunction[]> {
    return readInParts(names, ({ tenant, name }) => this.read(tenant, name));
  }

  async #runnableVersionsOf(tenant: string, name: string): Promise<FunctionVersion[]> {
    const { keys } = this.#store;
    // One transaction, because a version that is removed or redeployed moves from one hash to the other.
    const replies = await this.#store.call((redis) =>
      redis.multi().hgetall(keys.function(tenant, name)).hgetall(keys.removedVersions(tenant, name)).exec(),
    );
    const [deployedFields = {}, drainingFields = {}] = (replies ?? []).map(([error, fields]) => {
      // An error must not look like a missing version: the caller deletes the secret values of versions that are
      // missing here.
      if (error) throw error;
      return fields as Record<string, string>;
    });
    const texts = Object.entries(deployedFields).flatMap(([field, text]) =>
      field.startsWith(VERSION_FIELD) ? [text] : [],
    );
    return [...texts, ...Object.values(drainingFields)].map(parseListed);
  }

  /** A function as an entry of a tenant's list. The whole function is read only when `live` serves no version. */
  async #listEntry(tenant: string, owner: string, name: string): Promise<ListedFunction | null> {
    const liveServing = await this.serving([owner], name, '', parseListed);
    if (liveServing !== null) {
      const version = liveServing.versions.find((found) => found.version === heaviest(liveServing.shares));
      if (version !== undefined) return { version: lentTo(tenant, version), live: liveServing.shares };
    }
    const [newest] = await this.versions(owner, name);
    return newest === undefined ? null : { version: lentTo(tenant, newest), live: [] };
  }

  async #lookUp(
    tenant: string,
    owners: readonly string[],
    name: string,
    reference: string,
    choose: (shares: readonly Share[]) => string | undefined,
  ): Promise<FunctionVersion | null> {
    const serving = await this.serving(owners, name, reference);
    return serving === null ? null : servedVersion(tenant, serving, choose);
  }

  /** The versions that a reference serves, of the first owner whose function has that reference. One round trip. */
  async serving(
    owners: readonly string[],
    name: string,
    reference: string,
    parse: ParseVersion = parseVersion,
  ): Promise<Serving | null> {
    const functionKeys = owners.map((owner) => this.#store.keys.function(owner, name));
    const reply = await this.#store.script(SCRIPTS.resolve, functionKeys, [reference]);
    if (!Array.isArray(reply)) return null;
    const [ownerNumber, basis = '', ...texts] = reply.map(String);
    const versions = texts.map((text) => parse(text));
    // The state of an alias is a JSON object; a version is not.
    const shares = basis.startsWith('{') ? parseState(basis).shares : [{ version: basis, weight: 100 }];
    const length = texts.reduce((sum, text) => sum + text.length, basis.length);
    return { owner: owners[Number(ownerNumber) - 1] ?? '', basis, shares, versions, length };
  }
}

/** The versions that a function's aliases serve, each once. Tags do not count as service. */
export function servedVersions({ versions, aliases }: DeployedFunction): FunctionVersion[] {
  const servedIds = new Set(
    aliases.filter(({ tag }) => tag !== true).flatMap(({ shares }) => shares.map(({ version }) => version)),
  );
  return versions.filter(({ version }) => servedIds.has(version));
}

/** Size of the compiled files from the build's report; 0 for a version that was registered without a build. */
function artifactBytesOf({ build }: FunctionVersion): number {
  const bytes = build?.moduleBytes;
  return typeof bytes === 'number' && Number.isSafeInteger(bytes) && bytes > 0 ? bytes : 0;
}

/** The keys of the engine of a script, and of its users; the component's keys for a component, so that their number is always the same. */
export function engineKeys(
  keys: Store['keys'],
  { componentHash, engine = componentHash }: Pick<FunctionVersion, 'componentHash' | 'engine'>,
): readonly [engine: string, users: string] {
  return [keys.blob(engine), keys.blobUsers(engine)];
}

/** A version's entry among the users of its component, and of its engine. */
export function blobUser({ tenant, name, version }: Pick<FunctionVersion, 'tenant' | 'name' | 'version'>): string {
  return `${tenant}/${name}@${version}`;
}

/** A function's entry in a set of the functions of all tenants. */
export function memberOf(tenant: string, name: string): string {
  return `${tenant}/${name}`;
}

export function fromMember(member: string): { tenant: string; name: string } {
  const at = member.lastIndexOf('/');
  return { tenant: member.slice(0, at), name: member.slice(at + 1) };
}

/** Reads many items, `READ_AT_ONCE` at a time; missing items are left out. */
async function readInParts<T, R>(items: readonly T[], read: (item: T) => Promise<R | null>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += READ_AT_ONCE) {
    const batch = await Promise.all(items.slice(at, at + READ_AT_ONCE).map(read));
    results.push(...batch.filter((one) => one !== null));
  }
  return results;
}

/** JSON text with sorted keys, so that equal manifests have equal text. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}

/** The deployed and draining versions that use a component; null when there are more than `maxUsers`. */
export async function componentUsers(
  { store, functions }: { readonly store: Store; readonly functions: Pick<Functions, 'runnable'> },
  componentHash: string,
  maxUsers: number,
): Promise<FunctionVersion[] | null> {
  const key = store.keys.blobUsers(componentHash);
  const users = await store.call((redis) => redis.srandmember(key, maxUsers + 1));
  if (users.length > maxUsers) return null;
  const versions = await Promise.all(
    users.map((user) => {
      const [, tenant = '', name = '', version = ''] = /^([^/]*)\/(.*)@(.*)$/.exec(user) ?? [];
      return functions.runnable(tenant, name, version);
    }),
  );
  return versions.filter((version) => version !== null);
}

/** Lifetime of a blob without a function version: long enough for a build and a slow deploy. */
const UNUSED_BLOB_MS = 15 * 60_000;
/** Maximum bytes of a component. */
export const MAX_COMPONENT_BYTES = 64 * 1024 * 1024;
/** A component of `MAX_COMPONENT_BYTES` takes seconds to transfer on a busy machine. */
const BLOB_DEADLINE_MS = 45_000;

const BLOB_SCRIPTS = {
  put: loadScript(new URL('./functions.lua', import.meta.url), 'put-blob'),
  remove: loadScript(new URL('./functions.lua', import.meta.url), 'remove-blob'),
};

/** Components by the sha256 of their bytes, in hexadecimal. */
export class Blobs {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Stores bytes for `unusedMs`, or for as long as a function version uses them. While no version uses them, they count towards this tenant's
   * bytes; later they count as the version's.
   *
   * @throws QuotaExceeded when the tenant may keep no more bytes in Redis.
   */
  async put(tenant: string, bytes: Uint8Array, unusedMs = UNUSED_BLOB_MS): Promise<string> {
    if (bytes.length > MAX_COMPONENT_BYTES) {
      throw new StoreError(
        'invalid-argument',
        `A component has at most ${MAX_COMPONENT_BYTES} bytes; this one has ${bytes.length}.`,
      );
    }
    const hash = createHash('sha256').update(bytes).digest('hex');
    const payload = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const now = this.#store.clock();
    const reply = await this.#store.script(
      BLOB_SCRIPTS.put,
      this.#keys(hash),
      [payload, unusedMs, now, this.#store.keys.account(tenant), hash],
      BLOB_DEADLINE_MS,
    );
    throwBytesQuota(reply, now);
    return hash;
  }

  /** The bytes, or null when they are not stored (any more). */
  async get(hash: string): Promise<Uint8Array | null> {
    return this.#store.call((redis) => redis.getBuffer(this.#store.keys.blob(hash)), BLOB_DEADLINE_MS);
  }

  /**
   * Stores the component of an engine of scripts, unless it is stored. Only runtimes call this: a client may name an engine, but not make a component
   * of a tenant one. An engine counts with the platform's own tenant.
   */
  async putEngine(component: Uint8Array): Promise<string> {
    const hash = createHash('sha256').update(component).digest('hex');
    if (!(await this.has(hash))) await this.put(PLATFORM_TENANT, component);
    await this.#store.call((redis) => redis.sadd(this.#store.keys.engines, hash));
    return hash;
  }

  /** True for the hash of a stored engine. */
  async hasEngine(hash: string): Promise<boolean> {
    const { keys } = this.#store;
    const [isEngine, isStored] = await this.#store.call((redis) =>
      Promise.all([redis.sismember(keys.engines, hash), redis.exists(keys.blob(hash))]),
    );
    return isEngine === 1 && isStored === 1;
  }

  async has(hash: string): Promise<boolean> {
    return (await this.#store.call((redis) => redis.exists(this.#store.keys.blob(hash)))) === 1;
  }

  /** Removes bytes that neither a function version nor another tenant's upload needs; false when they are needed or not there. */
  async remove(tenant: string, hash: string, deadlineMs?: number): Promise<boolean> {
    const args = [this.#store.keys.account(tenant), hash, this.#store.clock()];
    return (await this.#store.script(BLOB_SCRIPTS.remove, this.#keys(hash), args, deadlineMs)) === 1;
  }

  #keys(hash: string): string[] {
    const { keys } = this.#store;
    return [keys.blob(hash), keys.blobUsers(hash), keys.blobUploads(hash)];
  }
}
