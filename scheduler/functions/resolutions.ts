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

/** A reference to a function's version, as one request means it. */
interface Wanted {
  readonly tenant: string;
  readonly name: string;
  readonly reference: string;
  /** Chooses among the versions of a split alias. */
  readonly random: number;
}

/**
 * Resolves references for invocations from a cache, yet never to a stale version: the step that stores an invocation checks that the cached
 * resolution still follows from the function's aliases. If it does not, Redis is asked, and the invocation is submitted once more.
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
   * Begins the resolution of a reference for one request.
   * @param check throws when the version is not suitable, for example because it does not take the input
   */
  of(tenant: string, name: string, reference: string, check: (version: FunctionVersion) => void): Resolution {
    // Both tries use one random number: a second one could exchange a version that `check` refused for another version.
    return new Resolution(this, { tenant, name, reference, random: Math.random() }, check);
  }

  /** The version to which the reference leads in the cache; null when the cache has none. */
  cached({ tenant, name, reference, random }: Wanted): Resolved | null {
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
  async ask({ tenant, name, reference, random }: Wanted): Promise<FunctionVersion | null> {
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

/**
 * The resolution of one request: first `cached`, if there is such a version, and `current` if there is none, or if it proves stale. A cached version
 * alone is never the reason of a refusal.
 */
export class Resolution {
  readonly #resolutions: Resolutions;
  readonly #wanted: Wanted;
  readonly #check: (version: FunctionVersion) => void;
  /** The cached version that `check` refused, with its error. */
  #refused: { readonly version: string; readonly error: unknown } | undefined;

  constructor(resolutions: Resolutions, wanted: Wanted, check: (version: FunctionVersion) => void) {
    this.#resolutions = resolutions;
    this.#wanted = wanted;
    this.#check = check;
  }

  /** The version from the cache; null when there is none, or when it is not suitable. */
  cached(): Resolved | null {
    const known = this.#resolutions.cached(this.#wanted);
    if (known === null) return null;
    try {
      this.#check(known.version);
      return known;
    } catch (error) {
      this.#refused = { version: known.version.version, error };
      return null;
    }
  }

  /** The version that Redis has; null when the reference leads to none. @throws the error of `check` */
  async current(): Promise<Resolved | null> {
    const version = await this.#resolutions.ask(this.#wanted);
    if (version === null) return null;
    if (version.version === this.#refused?.version) throw this.#refused.error;
    this.#check(version);
    return { version };
  }
}

/** True when a submission failed because its cached version no longer follows from the function's aliases. */
export function isStale(error: unknown): boolean {
  return error instanceof StoreError && error.code === 'stale-resolution';
}

const entryOf = (name: string, reference: string): string => `${name}@${reference}`;
