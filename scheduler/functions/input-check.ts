import { FairCache } from '../policies/fair-cache.ts';
import { StepsExhausted, TooDeepError } from './schema/budget.ts';
import { type Fault, type JsonSchema, pointerTo, SchemaError } from './schema/compiled.ts';
import { PatternError } from './schema/pattern.ts';
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

/** Nodes of all compiled schemas that are kept, some 20 MB. A version's schema never changes. */
const MAX_NODES = 40_000;
/** A kept schema counts as at least this many nodes, so that at most 200 are kept. */
const LEAST_NODES = 200;

/** Checks inputs against the JSON schema (2020-12) of a function's manifest, in a bounded number of steps. */
export class InputChecker {
  /** By owner and version. */
  readonly #validators = new FairCache<SchemaValidator>(MAX_NODES);

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

  /**
   * The cache's groups are the owners of functions: a version's id is a short hash of content that its deployer chooses. A deployer who tries enough
   * manifests can get the id of another tenant's version, with another schema.
   */
  #validator(fn: CheckedFunction, schema: JsonSchema | boolean): SchemaValidator {
    const { tenant = '', platform, version } = fn;
    const owner = ownerOf({ tenant, platform });
    const cachedValidator = this.#validators.get(owner, version);
    if (cachedValidator !== undefined) return cachedValidator;
    const validator = new SchemaValidator(schema);
    this.#validators.set(owner, version, validator, Math.max(LEAST_NODES, validator.nodeCount));
    return validator;
  }
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
  // The rules for schemas may have changed since the deploy.
  const isKnownCause = cause instanceof SchemaError || cause instanceof PatternError;
  return {
    message: `${subject} cannot be checked, because its schema cannot be used: ${isKnownCause ? cause.message : 'a part of it is malformed'}.`,
    hint: 'Deploy the function with a corrected `input` schema.',
    cause,
  };
}

function faultInWords(subject: string, { place, message }: Fault): InputFault {
  const field = pointerTo(place);
  return { field, message: `${subject} is not valid: ${field === '' ? 'it' : field} ${message}` };
}
