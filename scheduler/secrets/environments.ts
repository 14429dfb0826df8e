import { createHmac, hkdfSync } from 'node:crypto';
import type { Manifest } from '../functions/manifest.ts';
import { parseVersion, recordText } from '../functions/records.ts';
import { type FunctionVersion, ownerOf } from '../functions/types.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';
import { type MasterKey, type MasterKeys, seal, unseal } from './master-keys.ts';
import { withoutValues } from './rules.ts';
import { openError, SecretError } from './secrets.ts';

const RESEAL = loadScript(new URL('./secrets.lua', import.meta.url), 'reseal-version');

const MARK_KEY_BYTES = 32;
const MARK_KEY_PURPOSE = 'pie-environment-mark';

type Values = Readonly<Record<string, string>>;

/** A manifest in the form in which it may be stored. */
export interface SealedManifest {
  /** Names its variables; `(sealed)` replaces each value. */
  readonly manifest: Manifest;
  /** Sealed values by name; undefined when the manifest has no values. */
  readonly environment: Values | undefined;
  /**
   * Stands for the values where the version id is computed: an HMAC of the values under a key derived from the first
   * master key. So a reader of a version id cannot test guesses of the values. Empty without values.
   */
  readonly mark: string;
}

/** Looks up versions with sealed values. */
interface StoredVersions {
  runnableVersions(tenant: string): Promise<readonly FunctionVersion[]>;
  record(tenant: string, name: string, version: string): Promise<string | null>;
  runnable(tenant: string, name: string, version: string): Promise<FunctionVersion | null>;
}

/**
 * Plain variables of functions (`environment` of a manifest). They are sealed under the installation's master key before a version is
 * stored, and opened where it runs. Tenant, function and name are authenticated with each value.
 */
export class Environments {
  readonly #store: Store;
  readonly #functions: StoredVersions;
  readonly #masterKeys: MasterKeys | undefined;

  /** Without master keys, values can neither be sealed nor opened. */
  constructor(store: Store, functions: StoredVersions, masterKeys?: MasterKeys) {
    this.#store = store;
    this.#functions = functions;
    this.#masterKeys = masterKeys;
  }

  /** Seals a manifest's values for storage. Throws `SecretError` when it has values and there is no master key. */
  async seal(tenant: string, manifest: Manifest): Promise<SealedManifest> {
    const { name, environment = {} } = manifest;
    if (Object.keys(environment).length === 0) return { manifest, environment: undefined, mark: '' };
    const key = await this.#keys().first();
    return {
      manifest: withoutValues(manifest),
      environment: sealAll(key, tenant, name, environment),
      mark: markOf(key, tenant, name, environment),
    };
  }

  /** The values of a version, by name. Throws `StoreError`, and `SecretError` when a value cannot be opened. */
  async open(version: FunctionVersion): Promise<Map<string, string>> {
    try {
      return await this.#open(version);
    } catch (error) {
      // The values may have been resealed since the version was read, and the old master key removed.
      const storedVersion = error instanceof SecretError ? await this.#stored(version) : null;
      if (storedVersion === null || JSON.stringify(storedVersion.environment) === JSON.stringify(version.environment))
        throw error;
      return this.#open(storedVersion);
    }
  }

  /** True when a version has exactly these values; false when they cannot be opened. */
  async holds(version: FunctionVersion, environment: Values): Promise<boolean> {
    const stored = await this.#openOrNull(version);
    const names = Object.keys(environment);
    return stored?.size === names.length && names.every((name) => stored.get(name) === environment[name]);
  }

  /**
   * A version with its values, for comparison only: never store or show it. Values that cannot be opened stay sealed and equal no other
   * values.
   */
  async withOpenedValues(version: FunctionVersion): Promise<FunctionVersion> {
    const { manifest, environment = {} } = version;
    if (manifest.environment === undefined) return version;
    const values = await this.#openOrNull(version);
    return { ...version, manifest: { ...manifest, environment: values ? Object.fromEntries(values) : environment } };
  }

  /**
   * Reseals each of a tenant's versions whose values are unsealed or not under the first master key; returns the number of versions.
   * @throws SecretError for a version whose values cannot be opened, once all others are resealed
   */
  async reseal(tenant: string): Promise<number> {
    const { keys } = this.#store;
    let count = 0;
    let failure: SecretError | undefined;
    for (const { name, version: id, manifest, environment } of await this.#functions.runnableVersions(tenant)) {
      const names = Object.keys(manifest.environment ?? {});
      if (names.length === 0) continue;
      const first = await this.#keys().first();
      if (environment && names.every((variable) => environment[variable]?.startsWith(`${first.id}.`))) continue;
      const record = await this.#functions.record(tenant, name, id);
      if (record === null) continue;
      const version = parseVersion(record);
      try {
        const values = Object.fromEntries(await this.open(version));
        const resealed = {
          ...version,
          manifest: withoutValues(version.manifest),
          environment: sealAll(first, tenant, name, values),
        };
        await this.#store.script(
          RESEAL,
          [keys.function(tenant, name), keys.removedVersions(tenant, name)],
          [id, record, recordText(resealed)],
        );
        count++;
      } catch (error) {
        if (!(error instanceof SecretError)) throw error;
        failure ??= error;
      }
    }
    if (failure) throw failure;
    return count;
  }

  async #open(version: FunctionVersion): Promise<Map<string, string>> {
    const { name, manifest, environment } = version;
    const names = Object.keys(manifest.environment ?? {});
    // A version that was stored with plain values; `reseal` seals them.
    if (environment === undefined) return new Map(Object.entries(manifest.environment ?? {}));
    const opened = new Map<string, string>();
    for (const variable of names) {
      const sealed = environment[variable];
      try {
        if (sealed === undefined) throw new Error('it is not stored');
        opened.set(variable, await unseal(this.#keys(), ownerOfValue(ownerOf(version), name, variable), sealed));
      } catch (cause) {
        throw openError(`The variable ${variable}`, cause);
      }
    }
    return opened;
  }

  async #openOrNull(version: FunctionVersion): Promise<Map<string, string> | null> {
    try {
      return await this.open(version);
    } catch (error) {
      if (error instanceof SecretError) return null;
      throw error;
    }
  }

  #stored(version: FunctionVersion): Promise<FunctionVersion | null> {
    return this.#functions.runnable(ownerOf(version), version.name, version.version);
  }

  #keys(): MasterKeys {
    if (this.#masterKeys === undefined) throw new SecretError('This process has no master key.');
    return this.#masterKeys;
  }
}

function sealAll(key: MasterKey, tenant: string, functionName: string, values: Values): Values {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, seal(key, ownerOfValue(tenant, functionName, name), value)]),
  );
}

/** The slash separates these names from those of secrets and webhook secrets, which have none. */
function ownerOfValue(tenant: string, functionName: string, name: string) {
  return { tenant, name: `${functionName}/${name}` };
}

function markOf({ key }: MasterKey, tenant: string, functionName: string, values: Values): string {
  const sorted = Object.entries(values).sort(([a], [b]) => (a < b ? -1 : 1));
  const derived = new Uint8Array(hkdfSync('sha256', key, '', MARK_KEY_PURPOSE, MARK_KEY_BYTES));
  return createHmac('sha256', derived)
    .update(JSON.stringify([tenant, functionName, sorted]))
    .digest('hex');
}
