import type { JsonSchema } from '@pie/inferlet';
import type { McpTool } from './mcp.ts';

/** The schema of a reply: a call of one of the tools or, with `mayAnswer`, the answer. */
export function replySchema(tools: readonly McpTool[], { mayAnswer }: { readonly mayAnswer: boolean }): JsonSchema {
  const calls = tools.map(({ name }, i) => object({ tool: { const: name }, arguments: { $ref: pointerTo(i) } }));
  return {
    $defs: Object.fromEntries(tools.map(({ inputSchema }, i) => [`tool${i}`, movedTo(pointerTo(i), inputSchema)])),
    anyOf: mayAnswer ? [...calls, ANSWER] : calls,
  };
}

/** JSON pointer, as a reference, to the schema of a tool's arguments. */
const pointerTo = (tool: number): string => `#/$defs/tool${tool}`;

const object = (properties: object): object => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});
const ANSWER = object({ answer: { type: 'string', maxLength: 1000 } });

/** The schema for use at the pointer `at` in another one: references to its own root become references to `at`. Drops `$id`, which names a root. */
function movedTo(at: string, { $id, ...schema }: JsonSchema): JsonSchema {
  return withMovedRefs(schema, at) as JsonSchema;
}

function withMovedRefs(schema: unknown, at: string): unknown {
  if (Array.isArray(schema)) return schema.map((each) => withMovedRefs(each, at));
  if (!isObject(schema)) return schema;
  return mapMembers(schema, (value, keyword) => {
    if (DATA.has(keyword)) return value;
    if (keyword === '$ref') return typeof value === 'string' && /^#(\/|$)/.test(value) ? at + value.slice(1) : value;
    return BY_NAME.has(keyword) && isObject(value)
      ? mapMembers(value, (named) => withMovedRefs(named, at))
      : withMovedRefs(value, at);
  });
}

/** Keywords whose value is data, not a schema. */
const DATA: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples']);
/** Keywords whose members are schemas, under names that are not keywords. */
const BY_NAME: ReadonlySet<string> = new Set([
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
  '$defs',
  'definitions',
]);

const isObject = (value: unknown): value is JsonSchema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const mapMembers = (members: JsonSchema, change: (value: unknown, key: string) => unknown): JsonSchema =>
  Object.fromEntries(Object.entries(members).map(([key, value]) => [key, change(value, key)]));
