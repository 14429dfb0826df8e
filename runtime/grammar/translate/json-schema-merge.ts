import { isDeepStrictEqual } from 'node:util';
import {
  ASSERTIONS,
  assertions,
  inside,
  isObject,
  isSchema,
  mistake,
  own,
  type Pointer,
  type Schema,
} from './json-schema-object.ts';

/**
 * One schema for the values that fit both 'a' and 'b', which have no '$ref'.
 *
 * @throws GrammarError when one supported schema cannot express them
 */
export function merge(a: Schema, b: Schema, at: Pointer): Schema {
  if (a === true) return b;
  if (b === true) return a;
  if (a === false || b === false) return false;
  refuseClosing(a, b, at);
  refuseClosing(b, a, at);
  const merged: Record<string, unknown> = { ...a };
  for (const key of assertions(b)) {
    const [mine, theirs] = [own(a, key), own(b, key)];
    merged[key] = mine === undefined || isDeepStrictEqual(mine, theirs) ? theirs : both(key, mine, theirs, at);
  }
  return merged;
}

/** Refuses to merge 'additionalProperties' and 'items' with the neighbours of another schema, because neighbours change their meaning. */
function refuseClosing(a: Schema, b: Schema, at: Pointer): void {
  if (!isObject(a) || !isObject(b)) return;
  const closes =
    (own(a, 'additionalProperties') !== undefined &&
      (own(b, 'properties') ?? own(b, 'patternProperties')) !== undefined) ||
    (own(a, 'items') !== undefined && own(b, 'prefixItems') !== undefined) ||
    (own(a, 'patternProperties') !== undefined && own(b, 'properties') !== undefined);
  if (closes) {
    throw mistake(at, 'properties or items are limited in two places; write them in one schema');
  }
}

function both(key: string, a: unknown, b: unknown, at: Pointer): unknown {
  if (typeof a === 'number' && typeof b === 'number' && NUMERIC.has(key)) {
    return key.startsWith('min') || key === 'exclusiveMinimum' ? Math.max(a, b) : Math.min(a, b);
  }
  if (key === 'type') {
    const types = [a, b].map((type) => (Array.isArray(type) ? type : [type]));
    return (types[0] ?? []).flatMap((type) => {
      if (types[1]?.includes(type)) return [type];
      if (type === 'number' && types[1]?.includes('integer')) return ['integer'];
      return type === 'integer' && types[1]?.includes('number') ? ['integer'] : [];
    });
  }
  if (key === 'required' && Array.isArray(a) && Array.isArray(b)) return [...new Set([...a, ...b])];
  if (key === 'properties' && isObject(a) && isObject(b)) {
    const properties = new Map(Object.entries(a));
    for (const [name, schema] of Object.entries(b)) {
      const mine = properties.get(name);
      properties.set(
        name,
        isSchema(mine) && isSchema(schema) ? mergeProperty(mine, schema, inside(at, key, name)) : schema,
      );
    }
    return Object.fromEntries(properties);
  }
  throw mistake(at, `${key} is written twice in schemas that must both hold; write them as one`);
}

function mergeProperty(a: Schema, b: Schema, at: Pointer): Schema {
  for (const schema of [a, b]) {
    if (isObject(schema) && own(schema, '$ref') !== undefined && !isDeepStrictEqual(a, b)) {
      throw mistake(at, `a $ref and another schema must both hold; write them as one`);
    }
  }
  return merge(a, b, at);
}

const NUMERIC: ReadonlySet<string> = new Set([
  ...ASSERTIONS.number,
  ...['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'],
]);
