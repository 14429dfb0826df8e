import type { AbortSignalLike } from '../abort.ts';
import { excerpt } from '../bytes.ts';
import { issuesText, jsonSchemaOf, type OutputOf, type StandardSchema } from '../constrain/standard-schema.ts';
import { InferletError } from '../errors.ts';

/** Context of a tool call, besides its arguments. */
export interface ToolContext {
  /** Aborted when the result is no longer needed: pass it to `fetch` and similar calls. */
  readonly signal: AbortSignalLike | undefined;
}

/** A function that a model may call. */
export interface Tool<Arguments = unknown> {
  readonly name: string;
  readonly description: string;
  /** JSON schema of the arguments, an object. */
  readonly parameters: JsonSchema;
  /** Checks the arguments and calls the function. Throws `invalid-argument` with the wrong field, or the function's own error. */
  call(args: unknown, context?: ToolContext): Promise<unknown>;
  /** Carries the arguments' type; never set at run time. */
  readonly '~arguments'?: Arguments;
}

interface Definition<Parameters, Arguments> {
  /** 1 to 64 letters, digits, `_` and `-`, of which the first is a letter or `_`. */
  readonly name: string;
  /** Description for the model. */
  readonly description?: string;
  readonly parameters?: Parameters;
  /** The model sees the result: strings unchanged, all other values as JSON. */
  call(args: Arguments, context: ToolContext): unknown;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/;

/**
 * Makes a tool from a function. `parameters` is a zod schema, which also types the arguments of `call`, or a JSON schema.
 *
 * @example
 * const weather = tool({
 *   name: 'weather',
 *   description: 'The weather of a city today',
 *   parameters: z.object({ city: z.string() }),
 *   call: async ({ city }, { signal }) => (await fetch(`https://api.example.com/weather/${city}`, { signal })).json(),
 * });
 */
export function tool<Schema extends StandardSchema<unknown>>(
  definition: Definition<Schema, OutputOf<Schema>>,
): Tool<OutputOf<Schema>>;
export function tool<Arguments = Record<string, unknown>>(
  definition: Definition<JsonSchema, Arguments>,
): Tool<Arguments>;
export function tool<Arguments>(
  definition: Definition<StandardSchema<Arguments> | JsonSchema, Arguments>,
): Tool<Arguments> {
  const { name, description = '' } = definition;
  if (!NAME.test(name)) {
    throw new InferletError(
      'invalid-argument',
      `"${name}" is not a valid tool name: it needs 1 to 64 letters, digits, "_" and "-", and begins with a letter or "_".`,
    );
  }
  const { schema, check } = parametersOf<Arguments>(definition.parameters ?? { type: 'object', properties: {} });
  return {
    name,
    description,
    parameters: schema,
    call: async (args, context = { signal: undefined }) => definition.call(await check(args), context),
  };
}

/** Names of a tool's parameters, in order of declaration. */
export const parameterNames = ({ parameters }: Tool): string[] => Object.keys((parameters.properties ?? {}) as object);

/** A tool in the form of chat templates. */
export const toolSpec = ({ name, description, parameters }: Tool): object => ({
  type: 'function',
  function: { name, description, parameters },
});

/** A tool on one line, as a signature: `weather(city: string, days?: integer): The weather of a city`. */
export function toolSignature(one: Tool): string {
  const { name, description, parameters } = one;
  const properties = (parameters.properties ?? {}) as Record<string, { readonly type?: unknown }>;
  const required = new Set(Array.isArray(parameters.required) ? parameters.required : []);
  const list = parameterNames(one).map((key) => {
    const type = properties[key]?.type;
    return `${key}${required.has(key) ? '' : '?'}${typeof type === 'string' ? `: ${type}` : ''}`;
  });
  return `${name}(${list.join(', ')})${description === '' ? '' : `: ${description}`}`;
}

/** A JSON schema. */
export type JsonSchema = { readonly [key: string]: unknown };

/** A schema in the form for the model, and a check that throws `invalid-argument` with the name of the wrong field. */
export interface Parameters<Arguments> {
  readonly schema: JsonSchema;
  check(value: unknown): Promise<Arguments>;
}

/** Converts either kind of schema to {@link Parameters}. */
function parametersOf<Arguments>(schema: StandardSchema<Arguments> | JsonSchema): Parameters<Arguments> {
  if (!isStandard(schema)) {
    return {
      schema,
      async check(value) {
        const faults = faultsOf(schema, value, '');
        if (faults.length > 0) throw new InferletError('invalid-argument', faults.join('; '));
        return value as Arguments;
      },
    };
  }
  const converted = jsonSchemaOf<StandardSchema<unknown>>(schema);
  if (!converted) {
    throw new InferletError(
      'invalid-argument',
      'This schema cannot convert itself to a JSON schema: use zod (not zod/mini), or give a JSON schema.',
    );
  }
  return {
    schema: converted,
    async check(value) {
      const outcome = await schema['~standard'].validate(value);
      if (outcome.issues === undefined) return outcome.value;
      throw new InferletError('invalid-argument', issuesText(outcome.issues));
    },
  };
}

function isStandard<Output>(schema: StandardSchema<Output> | JsonSchema): schema is StandardSchema<Output> {
  return '~standard' in schema;
}

/**
 * Checks a value's types, required and unknown members, items and enumerations, which are the usual mistakes of models. The tool itself
 * checks the rest. @returns the faults
 */
function faultsOf(schema: unknown, value: unknown, path: string): string[] {
  if (typeof schema !== 'object' || schema === null) return [];
  const { type, enum: choices, properties, required, additionalProperties, items } = schema as JsonSchema;
  const name = path === '' ? 'arguments' : path;
  const types = type === undefined ? [] : Array.isArray(type) ? type : [type];
  if (types.length > 0 && !types.some((one) => hasType(one, value))) {
    return [`${name} must be ${types.join(' or ')}, not ${shown(value)}`];
  }
  if (Array.isArray(choices) && !choices.some((choice) => JSON.stringify(choice) === JSON.stringify(value))) {
    return [`${name} must be one of ${JSON.stringify(choices)}, not ${shown(value)}`];
  }
  if (Array.isArray(value)) return value.flatMap((item, i) => faultsOf(items, item, `${path}[${i}]`));
  if (typeof value !== 'object' || value === null) return [];
  const known = (properties ?? {}) as JsonSchema;
  const at = (key: string): string => (path === '' ? key : `${path}.${key}`);
  const missing = (Array.isArray(required) ? required : []).filter((key) => !Object.hasOwn(value, key));
  const members = Object.entries(value).flatMap(([key, member]) => {
    if (Object.hasOwn(known, key)) return faultsOf(known[key], member, at(key));
    return additionalProperties === false
      ? [`${at(key)} is not known`]
      : faultsOf(additionalProperties, member, at(key));
  });
  return [...missing.map((key) => `${at(key)} is missing`), ...members];
}

/** A value as JSON, shortened for an error message. */
const shown = (value: unknown): string => excerpt(JSON.stringify(value) ?? String(value), 80);

function hasType(type: unknown, value: unknown): boolean {
  switch (type) {
    case 'string':
    case 'boolean':
    case 'number':
      return typeof value === type;
    case 'integer':
      return Number.isInteger(value);
    case 'null':
      return value === null;
    case 'array':
      return Array.isArray(value);
    case 'object':
      return typeof value === 'object' && value !== null && !Array.isArray(value);
    default:
      return true;
  }
}
