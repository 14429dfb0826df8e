import { createHash } from 'node:crypto';
import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';
import type { Manifest } from './manifest.ts';
import type { FunctionVersion } from './types.ts';

const SCRIPTS = {
  put: loadScript(new URL('./scripts/put-function.lua', import.meta.url)),
  get: loadScript(new URL('./scripts/get-function.lua', import.meta.url)),
  remove: loadScript(new URL('./scripts/remove-function.lua', import.meta.url)),
};

/** Whose functions the platform's own are: the tenant that `pie up` deploys the bundled ones to. */
const PLATFORM_TENANT = 'default';
/** Functions of the platform that every tenant may invoke: those behind the OpenAI-compatible routes. */
const SHARED_FUNCTIONS: readonly string[] = ['openai-completions', 'openai-chat', 'openai-responses'];

const VERSION_FIELD = 'version:';
const VERSION_LENGTH = 12;
const REMOVE_TRIES = 5;

/** The version that manifest and component make: the first 12 digits of a sha256 over both. */
export function versionOf(manifest: Manifest, componentHash: string): string {
  const digest = createHash('sha256').update(canonical(manifest)).update('\0').update(componentHash).digest('hex');
  return digest.slice(0, VERSION_LENGTH);
}

/** The registry of functions. */
export class Functions {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Stores a version, whose component must be in `Blobs`, and serves it from now on. `created` is false when it existed: then it is only
   * served again.
   */
  async put(version: FunctionVersion): Promise<{ created: boolean }> {
    const { keys } = this.#store;
    const { tenant, name, componentHash } = version;
    const reply = await this.#store.script(
      SCRIPTS.put,
      [keys.functions(tenant), keys.function(tenant, name), keys.blob(componentHash), keys.blobUsers(componentHash)],
      [name, version.version, JSON.stringify(version), user(version)],
    );
    if (reply === -1)
      throw new StoreError('invalid-argument', `The component ${componentHash} of ${name} is not stored.`);
    return { created: reply === 1 };
  }

  /** A version of a function; without `version` the one that is served. Null when there is none. */
  async get(tenant: string, name: string, version = ''): Promise<FunctionVersion | null> {
    const text = await this.#store.script(SCRIPTS.get, [this.#store.keys.function(tenant, name)], [version]);
    return typeof text === 'string' ? parseVersion(text) : null;
  }

  /**
   * What a tenant's invocation of a function runs: its own, or, where it has none of that name, the platform's (see `SHARED_FUNCTIONS`), as
   * if it were its own.
   */
  async find(tenant: string, name: string, version = ''): Promise<FunctionVersion | null> {
    const own = await this.get(tenant, name, version);
    if (own !== null || !SHARED_FUNCTIONS.includes(name)) return own;
    const shared = await this.get(PLATFORM_TENANT, name, version);
    return shared && lent(shared, tenant);
  }

  /** What a tenant can invoke by name: the served version of each of its functions, and those of the platform that stand in ({@link find}). */
  async visible(tenant: string): Promise<FunctionVersion[]> {
    const own = await this.list(tenant);
    const missing = SHARED_FUNCTIONS.filter((name) => !own.some((version) => version.name === name));
    const shared = await Promise.all(missing.map((name) => this.find(tenant, name)));
    return [...own, ...shared.filter((version) => version !== null)];
  }

  /** What a tenant can invoke by name and version: its own, newest first, then the platform's. */
  async visibleVersions(tenant: string, name: string): Promise<FunctionVersion[]> {
    const own = await this.versions(tenant, name);
    if (tenant === PLATFORM_TENANT || !SHARED_FUNCTIONS.includes(name)) return own;
    const shared = await this.versions(PLATFORM_TENANT, name);
    const others = shared.filter(({ version }) => !own.some((mine) => mine.version === version));
    return [...own, ...others.map((version) => lent(version, tenant))];
  }

  /** The served version of each of a tenant's functions, by name. */
  async list(tenant: string): Promise<FunctionVersion[]> {
    const names = await this.#store.call((redis) => redis.smembers(this.#store.keys.functions(tenant)));
    const versions = await Promise.all(names.sort().map((name) => this.get(tenant, name)));
    return versions.filter((version) => version !== null);
  }

  /** All versions of a function, newest first. */
  async versions(tenant: string, name: string): Promise<FunctionVersion[]> {
    const fields = await this.#store.call((redis) => redis.hgetall(this.#store.keys.function(tenant, name)));
    return Object.entries(fields)
      .filter(([field]) => field.startsWith(VERSION_FIELD))
      .map(([, text]) => parseVersion(text))
      .sort((a, b) => b.createdAt - a.createdAt);
  }

  /** Removes a function with all its versions and the components that nothing else uses; false when there is none. */
  async remove(tenant: string, name: string): Promise<boolean> {
    const { keys } = this.#store;
    for (let tries = 0; tries < REMOVE_TRIES; tries += 1) {
      const versions = await this.versions(tenant, name);
      const components = versions.flatMap(({ componentHash }) => [
        keys.blob(componentHash),
        keys.blobUsers(componentHash),
      ]);
      const reply = await this.#store.script(
        SCRIPTS.remove,
        [keys.functions(tenant), keys.function(tenant, name), ...components],
        [name, ...versions.map(user)],
      );
      if (reply !== -1) return reply === 1;
    }
    throw new StoreError(
      'store-unavailable',
      `${name} is being deployed again and again; remove it once that is over.`,
    );
  }
}

/** The platform's function as a tenant has it. */
function lent(shared: FunctionVersion, tenant: string): FunctionVersion {
  return { ...shared, tenant, platform: true };
}

/** A version's name among the users of its component. */
function user({ tenant, name, version }: FunctionVersion): string {
  return `${tenant}/${name}@${version}`;
}

function parseVersion(text: string): FunctionVersion {
  try {
    return JSON.parse(text) as FunctionVersion;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'A stored function version is no JSON.', { cause });
  }
}

/** JSON text with sorted keys, so that equal manifests have equal text. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
