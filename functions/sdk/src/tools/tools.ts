import type { AbortSignalLike } from '../abort.ts';
import type { OutputOf, StandardSchema } from '../constrain/standard-schema.ts';
import { InferletError } from '../errors.ts';
import { type JsonSchema, parametersOf } from './tools-schema.ts';

export type { JsonSchema } from './tools-schema.ts';

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
