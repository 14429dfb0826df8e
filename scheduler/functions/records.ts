import { StoreError } from '../store/errors.ts';
import type { AliasState, Share } from './aliases.ts';
import type { JsonSchema } from './schema/compiled.ts';
import { jsonValue } from './schema/json-value.ts';
import type { FunctionVersion } from './types.ts';

/** JSON text of an alias's state without its revision, which the scripts add. */
export function stateText(
  shares: readonly Share[],
  at: number,
  {
    by = '',
    message,
    restores,
  }: { by?: string | undefined; message?: string | undefined; restores?: number | undefined },
): string {
  return JSON.stringify({
    shares: shares.map(({ version, weight }) => ({ version, weight })),
    at,
    by,
    ...(message === undefined || message === '' ? {} : { message }),
    ...(restores === undefined ? {} : { restores }),
  });
}

export function parseState(text: string): AliasState {
  try {
    return JSON.parse(text) as AliasState;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'A stored alias is not JSON.', { cause });
  }
}

export type ParseVersion = (text: string) => FunctionVersion;

/** A version as Redis holds it. The input schema, which may have thousands of members, is a JSON text inside the JSON: lists need not parse it. */
type StoredVersion = Omit<FunctionVersion, 'platform'> & { readonly input?: string };

/** The stored text of a version. */
export function recordText(version: FunctionVersion): string {
  const { input, ...manifest } = version.manifest;
  const stored: StoredVersion = { ...version, manifest };
  return JSON.stringify(input === undefined ? stored : { ...stored, input: JSON.stringify(input) });
}

export function parseVersion(text: string): FunctionVersion {
  const { input, ...version } = parseRecord(text);
  if (input === undefined) return version;
  return { ...version, manifest: { ...version.manifest, input: jsonValue(input) as JsonSchema } };
}

/** A version without its input schema. */
export function parseListed(text: string): FunctionVersion {
  const { input: _, ...version } = parseRecord(text);
  return version;
}

function parseRecord(text: string): StoredVersion {
  try {
    return JSON.parse(text) as StoredVersion;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'A stored function version is not JSON.', { cause });
  }
}

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
