import { type OutputUnit, type Schema, Validator } from '@cfworker/json-schema';
import type { FunctionVersion } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { TimeLimitError, unlimited, type WithTimeLimit } from './time-limit.ts';

interface Compiled {
  readonly validator: Validator;
  readonly mayBeSlow: boolean;
}

/** Keywords that can make checking take exponential (patterns, references) or quadratic time. */
const SLOW =
  /"(?:pattern|patternProperties|propertyNames|format|uniqueItems|contains|\$ref|\$recursiveRef|\$dynamicRef)":/;

/** Compiled schemas kept; a version's schema never changes. */
const MAX_VALIDATORS = 500;

/**
 * Checks inputs against the JSON schema (2020-12) of a function's manifest. It interprets the schema, so that it works where code may not
 * be generated (workerd).
 */
export class InputChecker {
  readonly #validators = new Map<string, Compiled>();
  readonly #withTimeLimit: WithTimeLimit;

  /** @param withTimeLimit used for schemas whose checking may take more than linear time. */
  constructor(withTimeLimit: WithTimeLimit = unlimited) {
    this.#withTimeLimit = withTimeLimit;
  }

  /** Throws `invalid-input` with the offending field as a JSON pointer. */
  check(fn: FunctionVersion, input: unknown): void {
    const schema = fn.manifest.input;
    if (schema === undefined) return;
    const result = this.#run(fn, schema as Schema, input);
    if (result.valid) return;
    const { field, message } = explain(result.errors);
    throw new GatewayError('invalid-input', `The input of "${fn.name}" is not valid: ${message}`, { field });
  }

  #run(fn: FunctionVersion, schema: Schema, input: unknown) {
    try {
      const { validator, mayBeSlow } = this.#compiled(fn, schema);
      return mayBeSlow ? this.#withTimeLimit(() => validator.validate(input)) : validator.validate(input);
    } catch (cause) {
      if (cause instanceof TimeLimitError) {
        throw new GatewayError('invalid-input', `The input of "${fn.name}" takes too long to be checked.`, {
          hint: 'Deploy the function with a simpler `input` schema: patterns without nested repetition, no `uniqueItems` over long lists.',
        });
      }
      // A RangeError: schema and input recurse without end. Anything else: the schema itself is broken (an unknown $ref, a bad pattern).
      const message =
        cause instanceof RangeError
          ? `The input of "${fn.name}" is nested too deeply to be checked.`
          : `The input schema of "${fn.name}" cannot be used: ${cause instanceof Error ? cause.message.split('\n', 1)[0] : 'unknown cause'}`;
      throw new GatewayError('invalid-input', message, {
        hint: 'Deploy the function with a corrected `input` schema.',
        cause,
      });
    }
  }

  #compiled(fn: FunctionVersion, schema: Schema): Compiled {
    const known = this.#validators.get(fn.version);
    if (known !== undefined) return known;
    const oldest = this.#validators.keys().next();
    if (this.#validators.size >= MAX_VALIDATORS && oldest.done !== true) this.#validators.delete(oldest.value);
    const compiled = {
      validator: new Validator(schema, '2020-12', true),
      mayBeSlow: SLOW.test(JSON.stringify(schema)),
    };
    this.#validators.set(fn.version, compiled);
    return compiled;
  }
}

/** Keywords that only say that something inside is wrong. What is inside comes after them. */
const WRAPPERS = new Set([
  'properties',
  'patternProperties',
  'items',
  'prefixItems',
  'additionalProperties',
  '$ref',
  'allOf',
  'dependentSchemas',
]);

/** The place and the reason that help most: the first error that is not merely "something inside is wrong". */
export function explain(errors: readonly OutputUnit[]): { field: string; message: string } {
  const error = errors.find((candidate) => !WRAPPERS.has(candidate.keyword)) ?? errors.at(-1);
  if (error === undefined) return { field: '', message: 'it breaks the schema.' };
  const at = pointer(error.instanceLocation);
  if (error.keyword === 'required') {
    const name = /required property "(.*)"\.$/s.exec(error.error)?.[1] ?? '';
    const field = `${at}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    return { field, message: `${field} is missing.` };
  }
  if (error.keyword === 'false') return { field: at, message: `${at} is not expected.` };
  return { field: at, message: `${at === '' ? 'as a whole' : at}: ${lowerFirst(error.error)}` };
}

/** `#/a/b` as `/a/b`; the whole input is the empty pointer. */
function pointer(location: string): string {
  return decodeURI(location.replace(/^#/, ''));
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
