import { invalid } from './error.ts';

/** A parsed JSON schema, not validated. */
export type Schema = boolean | SchemaObject;
export type SchemaObject = Readonly<Record<string, unknown>>;

/** Place of a part in its schema: a JSON pointer, such as '#/properties/name'. */
export type Pointer = string;

export function inside(pointer: Pointer, ...keys: readonly (string | number)[]): Pointer {
  return [pointer, ...keys.map((key) => String(key).replaceAll('~', '~0').replaceAll('/', '~1'))].join('/');
}

const MAX_PLACE = 120;

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

/** Keywords that limit values, unlike annotations. */
export const ASSERTIONS = {
  object: ['properties', 'required', 'additionalProperties', 'patternProperties', 'minProperties', 'maxProperties'],
  array: ['prefixItems', 'items', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength', 'pattern', 'format'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
} as const;

const ALL: readonly string[] = [
  ...Object.values(ASSERTIONS).flat(),
  ...['type', 'enum', 'const', 'anyOf', 'oneOf', 'allOf', '$ref'],
];

/** Keywords that our grammars cannot enforce, and their replacements. Unknown keywords are annotations, as JSON Schema says. */
export const REFUSED: ReadonlyMap<string, string> = new Map([
  ['not', 'list what is allowed'],
  ['if', 'use anyOf'],
  ['dependentRequired', 'use anyOf'],
  ['dependentSchemas', 'use anyOf'],
  ['dependencies', 'use anyOf'],
  ['contains', 'use prefixItems'],
  ['uniqueItems', 'check it after decoding'],
  ['propertyNames', 'use properties or patternProperties'],
  ['unevaluatedProperties', 'use additionalProperties'],
  ['unevaluatedItems', 'use items'],
  ['multipleOf', 'use type integer, a pattern or an enum'],
  ['$dynamicRef', 'use $ref'],
  ['$recursiveRef', 'use $ref'],
]);

/** The keywords of a schema that limit values, without those in 'except'. */
export function assertions(schema: SchemaObject, except: readonly string[] = []): string[] {
  return ALL.filter((key) => own(schema, key) !== undefined && !except.includes(key));
}

export function pick(schema: SchemaObject, keys: readonly string[]): SchemaObject {
  return Object.fromEntries(keys.map((key) => [key, own(schema, key)]));
}
