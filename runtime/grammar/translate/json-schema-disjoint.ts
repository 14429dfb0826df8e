import { isObject, isSchema, own, type Schema, type SchemaObject } from './json-schema-object.ts';

/** True when no value can fit two of these schemas: types or constants differ, or the constants of a property that both require. */
export function disjoint(schemas: readonly Schema[]): boolean {
  return schemas.every((a, index) => schemas.slice(index + 1).every((b) => apart(a, b)));
}

function apart(a: Schema, b: Schema): boolean {
  if (a === false || b === false) return true;
  if (a === true || b === true) return false;
  return noneShared(types(a), types(b)) || noneShared(constants(a), constants(b)) || apartByProperty(a, b);
}

function apartByProperty(a: SchemaObject, b: SchemaObject): boolean {
  if (own(a, 'type') !== 'object' || own(b, 'type') !== 'object') return false;
  const [mine, theirs] = [required(a), required(b)];
  return [...mine].some(([name, schema]) => {
    const other = theirs.get(name);
    return other !== undefined && noneShared(constants(schema), constants(other));
  });
}

function required(schema: SchemaObject): Map<string, SchemaObject> {
  const names = own(schema, 'required');
  const properties = own(schema, 'properties');
  const found = new Map<string, SchemaObject>();
  if (!Array.isArray(names) || !isObject(properties)) return found;
  for (const name of names) {
    const property = typeof name === 'string' ? own(properties, name) : undefined;
    if (isSchema(property) && isObject(property)) found.set(String(name), property);
  }
  return found;
}

/** The types of a schema's values, or undefined without 'type'. An integer is a number. */
function types(schema: SchemaObject): ReadonlySet<string> | undefined {
  const written = own(schema, 'type');
  if (written === undefined) return undefined;
  return new Set(
    (Array.isArray(written) ? written : [written]).map((type) => (type === 'integer' ? 'number' : String(type))),
  );
}

/** The only values of a schema, as JSON, or undefined if they are not listed. */
function constants(schema: SchemaObject): ReadonlySet<string> | undefined {
  const one = own(schema, 'const');
  if (one !== undefined) return new Set([JSON.stringify(one)]);
  const list = own(schema, 'enum');
  return Array.isArray(list) ? new Set(list.map((value) => JSON.stringify(value))) : undefined;
}

function noneShared(a: ReadonlySet<string> | undefined, b: ReadonlySet<string> | undefined): boolean {
  return a !== undefined && b !== undefined && a.isDisjointFrom(b);
}
