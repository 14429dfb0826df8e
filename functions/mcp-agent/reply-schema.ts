import type { JsonSchema } from '@pie/inferlet';
import type { McpTool } from './mcp.ts';

/** The schema of a reply: a call of one of the tools or, with `mayAnswer`, the answer. */
export function replySchema(tools: readonly McpTool[], { mayAnswer }: { readonly mayAnswer: boolean }): JsonSchema {
  const calls = tools.map(({ name }, i) => object({ tool: { const: name }, arguments: { $ref: place(i) } }));
  return {
    $defs: Object.fromEntries(tools.map(({ inputSchema }, i) => [`tool${i}`, movedTo(place(i), inputSchema)])),
    anyOf: mayAnswer ? [...calls, ANSWER] : calls,
  };
}

const place = (tool: number): string => `#/$defs/tool${tool}`;

const object = (properties: object): object => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});
const ANSWER = object({ answer: { type: 'string', maxLength: 1000 } });

/** The schema as a part of another one, at the pointer `at`: its references from its own root start there. */
function movedTo(at: string, { $id, ...schema }: JsonSchema): JsonSchema {
  return moved(schema, at) as JsonSchema;
}

function moved(schema: unknown, at: string): unknown {
  if (Array.isArray(schema)) return schema.map((each) => moved(each, at));
  if (!isObject(schema)) return schema;
  return changed(schema, (value, keyword) => {
    if (DATA.has(keyword)) return value;
    if (keyword === '$ref') return typeof value === 'string' && /^#(\/|$)/.test(value) ? at + value.slice(1) : value;
    return BY_NAME.has(keyword) && isObject(value) ? changed(value, (named) => moved(named, at)) : moved(value, at);
  });
}

/** Keywords with values instead of schemas. */
const DATA: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples']);
/** Keywords with schemas by names, which are no keywords. */
const BY_NAME: ReadonlySet<string> = new Set([
  ...['properties', 'patternProperties', 'dependentSchemas', 'dependencies', '$defs', 'definitions'],
]);

const isObject = (value: unknown): value is JsonSchema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const changed = (members: JsonSchema, change: (value: unknown, key: string) => unknown): JsonSchema =>
  Object.fromEntries(Object.entries(members).map(([key, value]) => [key, change(value, key)]));
