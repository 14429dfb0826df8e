import { StoreError } from '../store/errors.ts';
import type { AliasState, Share } from './aliases.ts';
import type { JsonSchema } from './input-schema.ts';
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
  // Records of earlier releases have the schema in the manifest.
  if (input === undefined) return version;
  return { ...version, manifest: { ...version.manifest, input: jsonValue(input) as JsonSchema } };
}

/** A version without its input schema. */
export function parseListed(text: string): FunctionVersion {
  const { input: _text, ...version } = parseRecord(text);
  const { input: _schema, ...manifest } = version.manifest;
  return { ...version, manifest };
}

function parseRecord(text: string): StoredVersion {
  try {
    return JSON.parse(text) as StoredVersion;
  } catch (cause) {
    throw new StoreError('store-corrupt', 'A stored function version is not JSON.', { cause });
  }
}

/** State of `live` for a function that was deployed before aliases existed. */
export function onlyCurrent({ version, createdAt }: FunctionVersion): AliasState {
  return { shares: [{ version, weight: 100 }], revision: 0, at: createdAt, by: '' };
}
