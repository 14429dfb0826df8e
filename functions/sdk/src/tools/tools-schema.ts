import { issuesText, jsonSchemaOf, type StandardSchema } from '../constrain/standard-schema.ts';
import { InferletError } from '../errors.ts';
import { excerpt } from '../excerpt.ts';

/** A JSON schema. */
export type JsonSchema = { readonly [key: string]: unknown };

/** A schema in the form for the model, and a check that throws `invalid-argument` with the name of the wrong field. */
export interface Parameters<Arguments> {
  readonly schema: JsonSchema;
  check(value: unknown): Promise<Arguments>;
}

/** Converts either kind of schema to {@link Parameters}. */
export function parametersOf<Arguments>(schema: StandardSchema<Arguments> | JsonSchema): Parameters<Arguments> {
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
