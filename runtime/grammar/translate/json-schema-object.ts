import { invalid } from './expression.ts';

/** A parsed JSON schema, not validated. */
type Schema = boolean | SchemaObject;
export type SchemaObject = Readonly<Record<string, unknown>>;

/** Place of a part in its schema: a JSON pointer, such as '#/properties/name'. */
export type Pointer = string;

/** A schema that a value must fit or, if negated, must not fit. Parts with equal `at` and `negated` are equal. */
export interface Part {
  readonly schema: unknown;
  readonly at: Pointer;
  readonly negated?: boolean;
}

/**
 * Thrown and caught within the translation, for a part that no grammar can express. The grammar then leaves that part open, and the whole text is
 * checked at its end.
 */
export class Inexpressible extends Error {
  override readonly name = 'Inexpressible';
}

export function inside(pointer: Pointer, ...keys: readonly (string | number)[]): Pointer {
  let extended = pointer;
  for (const key of keys) {
    const step = String(key);
    const isPlain = !step.includes('~') && !step.includes('/');
    extended += `/${isPlain ? step : step.replaceAll('~', '~0').replaceAll('/', '~1')}`;
  }
  return extended;
}

export function part(schema: unknown, at: Pointer, ...keys: readonly (string | number)[]): Part {
  return { schema, at: keys.length === 0 ? at : inside(at, ...keys) };
}

export function negation({ schema, at, negated }: Part): Part {
  return { schema, at, negated: !negated };
}

/** The same parts, each once. */
export function distinct(parts: readonly Part[]): readonly Part[] {
  if (parts.length < 2) return parts;
  return [...new Map(parts.map((each) => [keyOf(each), each])).values()];
}

export function keyOf({ at, negated }: Part): string {
  return `${negated ? '!' : ''}${at}`;
}

/** Maximum characters of a pointer in a message. Readers of messages look for the place in their schema, so that only an extreme one is cut. */
const MAX_PLACE = 4096;

/** The error of a mistake in a schema. */
export function mistake(at: Pointer, text: string): Error {
  return invalid(`JSON schema, ${shortened(at)}: ${text}`);
}

export function shortened(at: Pointer): string {
  return at.length > MAX_PLACE ? `${at.slice(0, MAX_PLACE)}…` : at;
}

export function isObject(value: unknown): value is SchemaObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isSchema(value: unknown): value is Schema {
  return typeof value === 'boolean' || isObject(value);
}

/** A property of the object itself, never of its prototype. */
export function own(object: SchemaObject, key: string): unknown {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** The schemas of a keyword that holds a list of them. */
export function listOf(schema: SchemaObject, key: string, at: Pointer, minLength = 1): readonly Part[] {
  const list = own(schema, key) ?? [];
  if (!Array.isArray(list) || list.length < minLength) {
    throw mistake(
      inside(at, key),
      minLength > 0 ? 'must be an array with at least one schema' : 'must be an array of schemas',
    );
  }
  return list.map((each, index) => part(each, at, key, index));
}

/** The schemas of a keyword that holds them by name. */
export function namedOf(schema: SchemaObject, key: string, at: Pointer): readonly (readonly [string, Part])[] {
  const schemasByName = own(schema, key) ?? {};
  if (!isObject(schemasByName)) throw mistake(inside(at, key), 'must be an object of schemas');
  return Object.entries(schemasByName).map(([name, each]) => [name, part(each, at, key, name)]);
}

/** The names of a keyword that holds a list of them. */
export function namesOf(value: unknown, at: Pointer): readonly string[] {
  if (Array.isArray(value) && value.every((name) => typeof name === 'string')) return value;
  throw mistake(at, 'must be an array of names');
}

export function numberOf(schema: SchemaObject, key: string, at: Pointer): number | undefined {
  const value = own(schema, key);
  if (value === undefined || (typeof value === 'number' && Number.isFinite(value))) return value;
  throw mistake(inside(at, key), 'must be a number');
}

/** A non-negative integer keyword, if it is written. */
export function countOf(schema: SchemaObject, key: string, at: Pointer): number | undefined {
  const value = numberOf(schema, key, at);
  if (value === undefined || (Number.isSafeInteger(value) && value >= 0)) return value;
  throw mistake(inside(at, key), 'must be an integer of at least 0');
}
