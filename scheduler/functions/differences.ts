import type { FunctionVersion } from './types.ts';

/**
 * The parts of a version that decide how it runs. The values of its environment are unsealed
 * (`Environments.withOpenedValues`).
 */
export type Compared = Pick<FunctionVersion, 'manifest' | 'componentHash' | 'componentBytes' | 'secrets'>;

/** One difference between two versions. `from` and `to` are texts for people; null when the version lacks the field. */
export interface Difference {
  /** Path in the manifest such as `limits.pages`, or `component`, `secrets.NAME`, `environment.NAME`. */
  readonly field: string;
  readonly from: string | null;
  readonly to: string | null;
}

/** Maximum characters shown of a value: an input's schema may have thousands. */
const MAX_TEXT = 120;
const HASH_DIGITS = 12;
/** Characters of a path from which the members below it count as one value. Deep names of an input's schema would make long paths for each leaf. */
const MAX_PATH = 200;

/** The differences between two versions, by field. @param from null for a function that did not exist */
export function differences(from: Compared | null, to: Compared): Difference[] {
  const before = from === null ? new Map<string, string>() : fieldsOf(from);
  const after = fieldsOf(to);
  const fields = [...new Set([...before.keys(), ...after.keys()])].sort();
  return fields
    .filter((field) => before.get(field) !== after.get(field))
    .map((field) => {
      const [was, is] = [before.get(field), after.get(field)];
      if (field.startsWith('environment.')) return { field, ...hiddenValues(was, is) };
      return { field, from: clippedText(was), to: clippedText(is) };
    });
}

function fieldsOf({ manifest, componentHash, componentBytes, secrets = {} }: Compared): Map<string, string> {
  const fields = new Map<string, string>();
  const { secrets: _, ...plainManifest } = manifest;
  flatten(plainManifest, '', fields);
  fields.set('component', `${componentHash.slice(0, HASH_DIGITS)}, ${componentBytes} bytes`);
  for (const [name, revision] of Object.entries(secrets)) fields.set(`secrets.${name}`, `revision ${revision}`);
  return fields;
}

function flatten(value: object, path: string, fields: Map<string, string>): void {
  for (const [name, inner] of Object.entries(value)) {
    const fieldPath = path === '' ? name : `${path}.${name}`;
    const isSplit =
      typeof inner === 'object' && inner !== null && !Array.isArray(inner) && fieldPath.length <= MAX_PATH;
    if (isSplit) flatten(inner, fieldPath, fields);
    else fields.set(fieldPath, typeof inner === 'string' ? inner : JSON.stringify(inner));
  }
}

/** Values of the environment may be private, so they are named and not shown. */
function hiddenValues(was: string | undefined, is: string | undefined): Pick<Difference, 'from' | 'to'> {
  if (was === undefined) return { from: null, to: is === undefined ? null : '(a value)' };
  return { from: '(a value)', to: is === undefined ? null : '(another value)' };
}

function clippedText(text: string | undefined): string | null {
  if (text === undefined) return null;
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1)}…` : text;
}
