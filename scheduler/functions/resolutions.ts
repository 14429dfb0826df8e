import { FairCache } from '../policies/fair-cache.ts';
import { StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import { chooseVersion } from './aliases.ts';
import { type Functions, ownersFor } from './functions.ts';
import { type Serving, type ServingBasis, servedVersion } from './records.ts';
import type { FunctionVersion } from './types.ts';

/** Maximum memory of the cache, by estimate. */
const MAX_BYTES = 32 * 1024 * 1024;
/** Memory of an entry besides its texts. */
const ENTRY_BYTES = 4096;
/** Memory of a parsed text, per character. */
const BYTES_PER_CHARACTER = 3;

/** A version that an invocation may run. */
export interface Resolved {
  readonly version: FunctionVersion;
  /** Set when the version comes from the cache: Redis must then check that it is still right. */
  readonly basis?: ServingBasis;
}

/** The two steps of an invocation by a reference. */
export interface Submitting<T> {
  /** Throws when the version is not suitable, for example because it does not take the input. */
  readonly check: (version: FunctionVersion) => void;
  /** Stores the invocation, with `resolved.basis` as `Submission.basis`. */
  readonly submit: (resolved: Resolved) => Promise<T>;
}

/**
 * Resolves references for invocations from a cache, yet never to a stale version: the step that stores an invocation checks that the cached
 * resolution still follows from the function's aliases. If it does not, this class asks Redis and submits the invocation once more. A cached
 * version alone is never the reason of a refusal.
 */
export class Resolutions {
  readonly #store: Store;
  readonly #functions: Functions;
  /**
   * The cache's groups are the owners of functions, so that all tenants share the entries of the platform's functions.
   */
  readonly #cache = new FairCache<Serving>(MAX_BYTES);

  constructor(store: Store, functions: Functions) {
    this.#store = store;
    this.#functions = functions;
  }

  /**
   * Submits an invocation of the version to which a reference leads. Null when it leads to none.
   *
   * @throws the error of `check`, and errors of `submit`.
   */
  async submit<T>(
    tenant: string,
    name: string,
    reference: string,
    { check, submit }: Submitting<T>,
  ): Promise<T | null> {
    // Both tries use one random number: a second one could exchange a version that `check` refused for another version.
    const random = Math.random();
    const known = this.#cachedResolution(tenant, name, reference, random);
    const refusal = known && refusalBy(check, known.version);
    if (known !== null && refusal === null) {
      try {
        return await submit(known);
      } catch (error) {
        if (!(error instanceof StoreError && error.code === 'stale-resolution')) throw error;
      }
    }
    const version = await this.#ask(tenant, name, reference, random);
    if (version === null) return null;
    if (refusal !== null && version.version === known?.version.version) throw refusal.error;
    check(version);
    return submit({ version });
  }

  /** The version to which the reference leads in the cache; null when the cache has none. */
  #cachedResolution(tenant: string, name: string, reference: string, random: number): Resolved | null {
    const owners = ownersFor(tenant, name);
    for (const [i, owner] of owners.entries()) {
      const serving = this.#cache.get(owner, entryOf(name, reference));
      if (serving === undefined) continue;
      const version = servedVersion(tenant, serving, (shares) => chooseVersion(shares, random));
      if (version === null) return null;
      const functions = owners.slice(0, i + 1).map((searched) => this.#store.keys.function(searched, name));
      return { version, basis: { text: serving.basis, reference, functions } };
    }
    return null;
  }

  /** Asks Redis for the version, and keeps the answer in the cache. */
  async #ask(tenant: string, name: string, reference: string, random: number): Promise<FunctionVersion | null> {
    const owners = ownersFor(tenant, name);
    const serving = await this.#functions.serving(owners, name, reference);
    const entry = entryOf(name, reference);
    for (const owner of owners) {
      if (owner === serving?.owner) break;
      // The owners before the found one lack the reference.
      this.#cache.delete(owner, entry);
    }
    if (serving === null) return null;
    this.#cache.set(serving.owner, entry, serving, ENTRY_BYTES + BYTES_PER_CHARACTER * serving.length);
    return servedVersion(tenant, serving, (shares) => chooseVersion(shares, random));
  }
}

function refusalBy(check: (version: FunctionVersion) => void, version: FunctionVersion): { error: unknown } | null {
  try {
    check(version);
    return null;
  } catch (error) {
    return { error };
  }
}

const entryOf = (name: string, reference: string): string => `${name}@${reference}`;
