import type { JsonSchema } from './input-schema.ts';
import { StepsExhausted, TooDeepError } from './schema/budget.ts';
import { type Fault, pointerTo } from './schema/fault.ts';
import { PatternError } from './schema/pattern-syntax.ts';
import { SchemaError } from './schema/references.ts';
import { SchemaValidator } from './schema/validator.ts';
import { type FunctionVersion, ownerOf } from './types.ts';

/**
 * The parts of a function version that input checks need. `tenant` and `version` are the key under which a schema is kept: without `tenant`,
 * `version` alone must name the schema, for all tenants.
 */
export interface CheckedFunction extends Partial<Pick<FunctionVersion, 'tenant' | 'platform'>> {
  readonly name: string;
  readonly version: string;
  readonly manifest: { readonly input?: unknown };
}

/** The reason why an input is refused. */
export interface InputFault {
  /** The offending field as a JSON pointer; undefined when the schema is at fault. */
  readonly field?: string;
  readonly message: string;
  readonly hint?: string;
  readonly cause?: unknown;
}

/** Maximum compiled schemas kept, and maximum nodes of all together, some 20 MB. A version's schema never changes. */
const MAX_VALIDATORS = 200;
const MAX_NODES = 40_000;

/** Checks inputs against the JSON schema (2020-12) of a function's manifest, in a bounded number of steps. */
export class InputChecker {
  /** By owner and version. */
  readonly #validators = new Map<string, SchemaValidator>();
  #nodeCount = 0;

  /**
   * The fault of an input, or null. Never throws.
   *
   * @param subject the beginning of every message
   */
  check(fn: CheckedFunction, input: unknown, subject = `The input of "${fn.name}"`): InputFault | null {
    const schema = fn.manifest.input;
    if (schema === undefined) return null;
    try {
      const fault = this.#validator(fn, schema as JsonSchema | boolean).check(input);
      return fault && faultInWords(subject, fault);
    } catch (cause) {
      return uncheckedFault(subject, cause);
    }
  }

  #validator(fn: CheckedFunction, schema: JsonSchema | boolean): SchemaValidator {
    const key = keyOf(fn);
    const cachedValidator = this.#validators.get(key);
    if (cachedValidator !== undefined) {
      // Reinserting moves the entry to the end, so the least recently used entry stays first.
      this.#validators.delete(key);
      this.#validators.set(key, cachedValidator);
      return cachedValidator;
    }
    const validator = new SchemaValidator(schema);
    this.#validators.set(key, validator);
    this.#nodeCount += validator.nodeCount;
    this.#removeOldest();
    return validator;
  }

  /** Removes the validators that were not used for longest until the others keep both limits. The newest one stays. */
  #removeOldest(): void {
    for (const [key, { nodeCount }] of this.#validators) {
      const isWithinLimits = this.#validators.size <= MAX_VALIDATORS && this.#nodeCount <= MAX_NODES;
      if (isWithinLimits || this.#validators.size === 1) return;
      this.#validators.delete(key);
      this.#nodeCount -= nodeCount;
    }
  }
}

/**
 * The key names the owner, because a version's id is a short hash of content that its deployer chooses. A deployer who tries enough
 * manifests can get the id of another tenant's version, with another schema.
 */
function keyOf({ tenant = '', platform, version }: CheckedFunction): string {
  return `${ownerOf({ tenant, platform })}/${version}`;
}

/** Describes the reason why an input could not be checked. */
function uncheckedFault(subject: string, cause: unknown): InputFault {
  if (cause instanceof StepsExhausted) {
    return {
      message: `${subject} takes too long to be checked.`,
      hint: 'Send a smaller input, or deploy the function with a simpler `input` schema: fewer alternatives for the items of long lists, patterns that repeat less, a `maxLength` beside each pattern.',
    };
  }
  if (cause instanceof TooDeepError) {
    return {
      message: `${subject} is nested too deeply to be checked.`,
      hint: 'Send a flatter input, or deploy the function with an `input` schema whose `$ref` does not lead to itself.',
      cause,
    };
  }
  // An earlier release of the platform may have accepted the schema under other rules.
  const isKnownCause = cause instanceof SchemaError || cause instanceof PatternError;
  return {
    message: `${subject} cannot be checked, because its schema cannot be used: ${isKnownCause ? cause.message : 'a part of it is malformed'}.`,
    hint: 'Deploy the function with a corrected `input` schema.',
    cause,
  };
}

function faultInWords(subject: string, { place, kind, message }: Fault): InputFault {
  const field = pointerTo(place);
  const fieldText = field === '' ? 'as a whole' : field;
  const faultText =
    kind === 'other'
      ? `${fieldText}: ${message.charAt(0).toLowerCase()}${message.slice(1)}`
      : `${fieldText} ${message}`;
  return { field, message: `${subject} is not valid: ${faultText}` };
}
