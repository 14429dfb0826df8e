import type { Share } from './aliases.ts';
import type { FunctionVersion } from './types.ts';

/** The versions that a reference serves. */
export interface Serving {
  /** Owner of the function: the tenant itself, or the platform. */
  readonly owner: string;
  /** The alias's stored state, or the version that the reference names. While it stays the same, so do the shares. */
  readonly basis: string;
  readonly shares: readonly Share[];
  /** The versions of `shares`, as the owner of the function stores them. */
  readonly versions: readonly FunctionVersion[];
  /** Characters of the stored texts. */
  readonly length: number;
}

/** The state of the registry that a resolution followed from; see `findServing` in `functions.lua`. */
export interface ServingBasis {
  /** `basis` of the `Serving`. */
  readonly text: string;
  readonly reference: string;
  /** Keys of the functions that were searched, the found one last. */
  readonly functions: readonly string[];
}

/** One of the versions that a reference serves, as the tenant's own; null when `choose` finds none that is deployed. */
export function servedVersion(
  tenant: string,
  { shares, versions }: Serving,
  choose: (shares: readonly Share[]) => string | undefined,
): FunctionVersion | null {
  const chosenVersion = choose(shares);
  const found = versions.find(({ version }) => version === chosenVersion);
  return found === undefined ? null : lentTo(tenant, found);
}

/** Presents a function of the platform as the tenant's own; a tenant's own function is unchanged. */
export function lentTo(tenant: string, found: FunctionVersion): FunctionVersion {
  return found.tenant === tenant ? found : { ...found, tenant, platform: true };
}
