import type { JsonSchema } from '../input-schema.ts';
import { clipped, type Place } from './fault.ts';

/** Maximum characters of a reference in an error message. */
const MAX_SHOWN_REFERENCE = 100;

/** Deepest nesting of schemas, unused ones included. */
export const MAX_SCHEMA_DEPTH = 64;

/** Keywords with inner schemas: one (`ofOne`), a list of them (`ofLists`), or an object of them by name (`ofNamed`). */
export const SCHEMA_KEYWORDS = {
  ofOne: [
    'items',
    'additionalItems',
    'unevaluatedItems',
    'contains',
    'additionalProperties',
    'unevaluatedProperties',
    'propertyNames',
    'not',
    'if',
    'then',
    'else',
  ],
  ofLists: ['prefixItems', 'allOf', 'anyOf', 'oneOf'],
  ofNamed: ['$defs', 'definitions', 'properties', 'patternProperties', 'dependentSchemas', 'dependencies'],
} as const;

/** Keywords with a reference. A value must fit the targets of all that a schema has. */
export const REFERENCE_KEYWORDS = ['$ref', '$recursiveRef', '$dynamicRef'] as const;

/** A schema that cannot be used. The message names the reason. */
export class SchemaError extends Error {
  override readonly name = 'SchemaError';
}

/** The schema at which references start: the nearest one with an `$id` (the schema itself or one around it), else the root. */
export interface Resource {
  readonly schema: JsonSchema;
  readonly place: Place | null;
  /** Schemas by the name of their anchor. */
  readonly anchors: Map<string, Located>;
}

/** A part of a schema, with its place in the whole schema. */
export interface Located {
  readonly value: unknown;
  readonly place: Place | null;
}

/**
 * The part of a schema to which a reference leads. That part may lie below a keyword that holds no schemas, such as `examples`.
 *
 * @throws SchemaError when the reference leads out of the schema, or to nothing
 */
export function resolve(reference: string, resource: Resource): Located {
  const shown = clipped(reference, MAX_SHOWN_REFERENCE);
  if (!reference.startsWith('#')) throw new SchemaError(`the $ref "${shown}" leads out of the schema`);
  const fragment = decoded(reference.slice(1));
  const found =
    fragment === '' || fragment.startsWith('/') ? atPointer(resource, fragment) : resource.anchors.get(fragment);
  if (found === undefined || !(typeof found.value === 'boolean' || isObject(found.value)))
    throw new SchemaError(`the $ref "${shown}" leads to no schema`);
  return found;
}

export function isObject(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value at a JSON pointer (RFC 6901). */
function atPointer(resource: Resource, pointer: string): Located | undefined {
  let value: unknown = resource.schema;
  let { place } = resource;
  for (const step of pointer.split('/').slice(1)) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
    place = { parent: place, step: name };
  }
  return { value, place };
}

function decoded(fragment: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    throw new SchemaError(`the $ref "#${clipped(fragment, MAX_SHOWN_REFERENCE)}" has a wrong percent-encoding`);
  }
}
