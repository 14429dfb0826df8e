import { readFileSync } from 'node:fs';
import { exactJson } from '../app/http/json.ts';
import { Failure } from './failure.ts';
import type { Manifest } from './function-source.ts';

/** Limits of strings and lists in an example. A schema that demands more gets an example that it refuses. */
const MAX_CHARACTERS = 40;
const MAX_ITEMS = 5;

type Schema = Readonly<Record<string, unknown>>;

/** An example input for the manifest's schema. It follows only common keywords; {@link acceptedExample} checks it against the whole schema. */
export function exampleInput(manifest: Manifest): unknown {
  return isSchema(manifest.input) ? exampleOf(manifest.input, 'object') : {};
}

/** An example input that the manifest's schema accepts; undefined when none was found. */
export async function acceptedExample(manifest: Manifest): Promise<unknown> {
  const example = exampleInput(manifest);
  if (!isSchema(manifest.input)) return example;
  // Loaded here, because only `pie deploy` needs the module.
  const { SchemaValidator } = await import('#scheduler/functions/schema/validator.ts');
  try {
    return new SchemaValidator(manifest.input).check(example) === null ? example : undefined;
  } catch {
    // The check takes too many steps, or nests too deeply.
    return undefined;
  }
}

/** @param otherwise type of the example for a schema that states no type */
function exampleOf(schema: unknown, otherwise = 'string'): unknown {
  if (!isSchema(schema)) return '…';
  const { examples, enum: allowed, anyOf, oneOf } = schema;
  if (Array.isArray(examples) && examples.length > 0) return examples[0];
  if ('default' in schema) return schema.default;
  if ('const' in schema) return schema.const;
  if (Array.isArray(allowed) && allowed.length > 0) return allowed[0];
  const alternatives = anyOf ?? oneOf;
  if (schema.type === undefined && schema.properties === undefined && Array.isArray(alternatives))
    return exampleOf(alternatives[0]);
  switch (typeOf(schema) ?? otherwise) {
    case 'object':
      return objectOf(schema);
    case 'array': {
      const count = Math.min(countOf(schema.minItems), MAX_ITEMS);
      return Array.from({ length: count }, () => exampleOf(schema.items));
    }
    case 'integer':
      return numberOf(schema, Math.ceil, Math.floor);
    case 'number':
      return numberOf(schema);
    case 'boolean':
      return true;
    case 'null':
      return null;
    default:
      return '…'.repeat(Math.min(Math.max(countOf(schema.minLength), 1), MAX_CHARACTERS));
  }
}

/** The first type that a schema allows; without a type, the one to which its keywords apply. */
function typeOf({ type, properties, required, items }: Schema): unknown {
  if (Array.isArray(type)) return type[0];
  if (type !== undefined) return type;
  if (properties !== undefined || required !== undefined) return 'object';
  return items === undefined ? undefined : 'array';
}

/** The required members alone. */
function objectOf({ properties, required }: Schema): unknown {
  const schemas = new Map<unknown, unknown>(isSchema(properties) ? Object.entries(properties) : []);
  const names: readonly unknown[] = Array.isArray(required) ? required : [];
  const declaredNames = [...schemas.keys()].filter((name) => names.includes(name));
  const otherNames = names.filter((name) => !schemas.has(name));
  return Object.fromEntries(
    [...declaredNames, ...otherNames].map((name) => [String(name), exampleOf(schemas.get(name))]),
  );
}

/**
 * The number nearest to 1 within the bounds, where an exclusive bound counts as an inclusive one that is narrower by 1.
 *
 * @param up rounds the lower bound
 * @param down rounds the upper bound
 */
function numberOf(
  { minimum, exclusiveMinimum, maximum, exclusiveMaximum }: Schema,
  up = (bound: number) => bound,
  down = up,
): number {
  const least = Math.max(boundOf(minimum, 0, -Infinity), boundOf(exclusiveMinimum, 1, -Infinity));
  const most = Math.min(boundOf(maximum, 0, Infinity), boundOf(exclusiveMaximum, -1, Infinity));
  return Math.min(Math.max(1, up(least)), down(most));
}

const boundOf = (bound: unknown, step: number, none: number): number =>
  typeof bound === 'number' ? bound + step : none;

const countOf = (value: unknown): number => (typeof value === 'number' && value > 0 ? value : 0);

const isSchema = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Describes a JSON value of the command line, for the error about text that is not JSON. */
interface ValueHint {
  readonly what: string;
  /** The command line up to the value. */
  readonly before: string;
  readonly example: string;
}

const INPUT: ValueHint = { what: 'input', before: '--input', example: '{"prompt":"Once upon a time"}' };

/**
 * Reads a JSON value. `JSON.stringify` writes the returned value without rounding its numbers. Throws {@link Failure}
 * for invalid JSON.
 *
 * @param text JSON, `@file`, or `-` for standard input; `{}` by default
 */
export function readInput(text: string | undefined, { what, before, example }: ValueHint = INPUT): unknown {
  if (text === undefined) return {};
  const [source, json] = jsonOf(text);
  try {
    return exactJson(json);
  } catch (cause) {
    throw new Failure(`The ${what}${source} is not JSON.`, {
      code: 'malformed-json',
      why: cause instanceof Error ? cause.message : String(cause),
      advice: `Quote it for the shell: ${before} '${example}', or read it from a file: ${before} @file.json.`,
    });
  }
}

function jsonOf(text: string): [source: string, json: string] {
  if (text === '-') return [' (standard input)', read(0, 'standard input')];
  if (!text.startsWith('@')) return ['', text];
  const file = text.slice(1);
  return [` (${file})`, read(file, file)];
}

function read(from: number | string, name: string): string {
  try {
    return readFileSync(from, 'utf8');
  } catch (cause) {
    throw new Failure(`${name} cannot be read.`, {
      why: cause instanceof Error ? cause.message : String(cause),
      advice: 'Name a file that you may read, or `-` for standard input.',
    });
  }
}
