import { type OutputUnit, type Schema, Validator } from '@cfworker/json-schema';
import { checkSize, LONGEST_CHECK, SHORT_CHECK, sizeOf } from './check-size.ts';
import { TimeLimitError, type WithTimeLimit } from './time-limit.ts';

/** A version of a function, as far as its inputs are checked. */
export interface CheckedFunction {
  readonly name: string;
  readonly version: string;
  readonly manifest: { readonly input?: unknown };
}

/** Why an input is refused. */
export interface InputFault {
  /** The offending field as a JSON pointer; undefined when the schema is at fault. */
  readonly field?: string;
  readonly message: string;
  readonly hint?: string;
  readonly cause?: unknown;
}

interface Compiled {
  readonly validator: Validator;
  readonly size: number;
  /** Whether checking may take more than its size says. */
  readonly mayBeSlow: boolean;
}

/** Keywords with which checking can take exponential (patterns, references) or quadratic time; with all others it takes its size at most. */
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
  readonly #withTimeLimit: WithTimeLimit | undefined;

  /** @param withTimeLimit used for whatever is not certainly short; without it such checks are refused by their size. */
  constructor(withTimeLimit?: WithTimeLimit) {
    this.#withTimeLimit = withTimeLimit;
  }

  /** What is wrong with an input; null when nothing is. Never throws. */
  check(fn: CheckedFunction, input: unknown): InputFault | null {
    const schema = fn.manifest.input;
    if (schema === undefined) return null;
    try {
      const { validator, size, mayBeSlow } = this.#compiled(fn, schema as Schema);
      const check = () => {
        const { valid, errors } = validator.validate(input);
        return valid ? null : explain(errors);
      };
      const fault = this.#bounded(check, checkSize(size, input), mayBeSlow);
      return fault && { field: fault.field, message: `The input of "${fn.name}" is not valid: ${fault.message}` };
    } catch (cause) {
      return unchecked(fn.name, cause);
    }
  }

  /** @throws TimeLimitError when it takes, or without a clock may take, too long */
  #bounded<T>(check: () => T, size: number, mayBeSlow: boolean): T {
    if (size <= SHORT_CHECK && !mayBeSlow) return check();
    if (this.#withTimeLimit) return this.#withTimeLimit(check);
    if (size > LONGEST_CHECK) throw new TimeLimitError();
    return check();
  }

  #compiled(fn: CheckedFunction, schema: Schema): Compiled {
    const known = this.#validators.get(fn.version);
    if (known !== undefined) return known;
    const oldest = this.#validators.keys().next();
    if (this.#validators.size >= MAX_VALIDATORS && oldest.done !== true) this.#validators.delete(oldest.value);
    const compiled = {
      validator: new Validator(schema, '2020-12', true),
      size: sizeOf(schema),
      mayBeSlow: SLOW.test(JSON.stringify(schema)),
    };
    this.#validators.set(fn.version, compiled);
    return compiled;
  }
}

/** Why an input could not be checked. */
function unchecked(name: string, cause: unknown): InputFault {
  if (cause instanceof TimeLimitError) {
    return {
      message: `The input of "${name}" takes too long to be checked.`,
      hint: 'Send a smaller input, or deploy the function with a simpler `input` schema: fewer alternatives for the items of long lists, patterns without nested repetition, no `uniqueItems` over long lists.',
    };
  }
  // A RangeError: schema and input recurse without end. Anything else: the schema itself is broken (an unknown $ref, a bad pattern).
  const message =
    cause instanceof RangeError
      ? `The input of "${name}" is nested too deeply to be checked.`
      : `The input schema of "${name}" cannot be used: ${cause instanceof Error ? cause.message.split('\n', 1)[0] : 'unknown cause'}`;
  return { message, hint: 'Deploy the function with a corrected `input` schema.', cause };
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
