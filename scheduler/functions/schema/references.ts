import type { JsonSchema } from '../input-schema.ts';
import { clipped } from './fault.ts';

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

/** A schema that cannot be used. The message names the reason. */
export class SchemaError extends Error {
  override readonly name = 'SchemaError';
}

/** Every schema within a schema, and the targets of its references. */
export class References {
  /**
   * Maps each schema to its resource, the schema at which its references start: the nearest one with an `$id` (the schema
   * itself or one around it), else the root.
   */
  readonly #resources = new Map<JsonSchema, JsonSchema>();
  /** By resource: schemas by the name of their anchor. */
  readonly #anchors = new Map<JsonSchema, Map<string, JsonSchema>>();
  readonly #targets = new Map<JsonSchema, JsonSchema | boolean>();

  /** @throws SchemaError */
  constructor(root: JsonSchema) {
    this.#walk(root, root, 0);
    // A reference may lead to a schema that no keyword reaches. `#resolve` adds it to the map, so this loop visits it as well.
    for (const [schema, resource] of this.#resources) {
      const reference = referenceOf(schema);
      if (reference !== undefined) this.#targets.set(schema, this.#resolve(reference, resource));
    }
  }

  get schemas(): Iterable<JsonSchema> {
    return this.#resources.keys();
  }

  /** The target of a schema's reference; undefined when it has none. */
  target(schema: JsonSchema): JsonSchema | boolean | undefined {
    return this.#targets.get(schema);
  }

  #walk(schema: unknown, enclosingResource: JsonSchema, depth: number): void {
    if (!isObject(schema) || this.#resources.has(schema)) return;
    if (depth > MAX_SCHEMA_DEPTH) throw new SchemaError(`it is nested deeper than ${MAX_SCHEMA_DEPTH} schemas`);
    const resource = typeof schema.$id === 'string' && !schema.$id.startsWith('#') ? schema : enclosingResource;
    this.#resources.set(schema, resource);
    for (const anchor of [schema.$anchor, schema.$dynamicAnchor]) {
      if (typeof anchor !== 'string') continue;
      const anchors = this.#anchors.get(resource) ?? new Map<string, JsonSchema>();
      this.#anchors.set(resource, anchors.set(anchor, schema));
    }
    for (const keyword of SCHEMA_KEYWORDS.ofOne) this.#walk(schema[keyword], resource, depth + 1);
    for (const keyword of SCHEMA_KEYWORDS.ofLists) {
      const list = schema[keyword];
      if (Array.isArray(list)) for (const inner of list) this.#walk(inner, resource, depth + 1);
    }
    for (const keyword of SCHEMA_KEYWORDS.ofNamed) {
      const named = schema[keyword];
      if (isObject(named)) for (const inner of Object.values(named)) this.#walk(inner, resource, depth + 1);
    }
  }

  #resolve(reference: string, resource: JsonSchema): JsonSchema | boolean {
    if (!reference.startsWith('#'))
      throw new SchemaError(`the $ref "${clipped(reference, MAX_SHOWN_REFERENCE)}" leads out of the schema`);
    const fragment = decoded(reference.slice(1));
    const found =
      fragment === '' || fragment.startsWith('/')
        ? valueAtPointer(resource, fragment)
        : this.#anchors.get(resource)?.get(fragment);
    if (typeof found === 'boolean') return found;
    if (!isObject(found))
      throw new SchemaError(`the $ref "${clipped(reference, MAX_SHOWN_REFERENCE)}" leads to no schema`);
    this.#walk(found, resource, 0);
    return found;
  }
}

export function isObject(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** `$recursiveRef` (2019-09) and `$dynamicRef` (2020-12) mean `$ref` in a schema that no other schema extends. */
function referenceOf({ $ref, $recursiveRef, $dynamicRef }: JsonSchema): string | undefined {
  const reference = $ref ?? $recursiveRef ?? $dynamicRef;
  return typeof reference === 'string' ? reference : undefined;
}

/** The value at a JSON pointer (RFC 6901). */
function valueAtPointer(root: unknown, pointer: string): unknown {
  let current = root;
  for (const step of pointer.split('/').slice(1)) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof current !== 'object' || current === null || !Object.hasOwn(current, name)) return undefined;
    current = (current as Record<string, unknown>)[name];
  }
  return current;
}

function decoded(fragment: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    throw new SchemaError(`the $ref "#${clipped(fragment, MAX_SHOWN_REFERENCE)}" has a wrong percent-encoding`);
  }
}
