/** The schema of the arguments `{}`. */
export const NO_ARGUMENTS = { type: 'object', properties: {}, additionalProperties: false };
/** Keywords that declare no arguments. */
const WITHOUT_ARGUMENTS: ReadonlySet<string> = new Set([
  'type',
  'properties',
  'required',
  '$schema',
  'title',
  'description',
]);

/** True for parameters that declare none: clients write them as an object without properties, or leave them out. */
export function takesNothing(parameters: object = {}): boolean {
  const { properties = {}, required = [] } = parameters as { properties?: unknown; required?: unknown };
  const isEmpty = (value: unknown): boolean =>
    typeof value === 'object' && (value === null || Object.keys(value).length === 0);
  return (
    isEmpty(properties) &&
    isEmpty(required) &&
    Object.keys(parameters).every((keyword) => WITHOUT_ARGUMENTS.has(keyword))
  );
}

/** Keywords with schemas by name. A refused schema in them becomes `true`, so that its name stays declared. */
const OF_NAMED: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions', 'dependentSchemas']);

/**
 * The schema without the keyword that a grammar's refusal names, as in `JSON schema, #/properties/a/pattern: …`. Undefined if it names no keyword
 * of the schema.
 */
export function withoutRefused(
  schema: object,
  refusal: string,
): { readonly schema: object; readonly pointer: string } | undefined {
  const [, places = ''] = /JSON schema, #\/(.*)/s.exec(refusal) ?? [];
  // A name may contain a colon, so every beginning of the text before one may be the pointer.
  for (let end = places.indexOf(': '); end >= 0; end = places.indexOf(': ', end + 1)) {
    const pointer = places.slice(0, end);
    const copy: object = JSON.parse(JSON.stringify(schema));
    if (removeAt(copy, pointer.split('/').map(unescaped))) return { schema: copy, pointer: `#/${pointer}` };
  }
  return undefined;
}

/** Removes a keyword, or a schema of a keyword. Returns false if the schema has no such place. */
function removeAt(schema: object, steps: readonly string[]): boolean {
  let parent: unknown = schema;
  let grandparent: unknown;
  for (const step of steps.slice(0, -1)) {
    grandparent = parent;
    parent = memberOf(parent, step);
  }
  const [keyword, step = ''] = [steps.at(-2), steps.at(-1)];
  const key = earlierKey(parent, step);
  if (!isRecord(parent) || !Object.hasOwn(parent, key)) return false;
  if (keyword !== undefined && OF_NAMED.has(keyword)) parent[key] = true;
  else delete parent[key];
  // Without the pattern, these keywords would forbid the names that it allowed.
  if (keyword === 'patternProperties' && isRecord(grandparent)) {
    delete grandparent.additionalProperties;
    delete grandparent.unevaluatedProperties;
  }
  return true;
}

function memberOf(value: unknown, step: string): unknown {
  if (Array.isArray(value)) return value[Number(step)];
  const key = earlierKey(value, step);
  return isRecord(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

/** The name of a keyword in drafts whose `items` lists the first items: a refusal names keywords as draft 2020-12 does. */
function earlierKey(schema: unknown, key: string): string {
  if (!isRecord(schema) || !Array.isArray(schema.items)) return key;
  return key === 'prefixItems' ? 'items' : key === 'items' ? 'additionalItems' : key;
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const unescaped = (step: string): string => step.replaceAll('~1', '/').replaceAll('~0', '~');
