import type { JsonSchema } from '../input-schema.ts';
import { MAX_DEPTH, StepBudget, TooDeepError } from './budget.ts';
import { areEqual, duplicates } from './equality.ts';
import { Evaluated } from './evaluated.ts';
import { clipped, type Fault, type Place } from './fault.ts';
import { hasFormat } from './formats.ts';
import { isMultiple } from './multiples.ts';
import { Pattern } from './pattern.ts';
import { PatternError } from './pattern-syntax.ts';
import { isObject, References, SchemaError } from './references.ts';

/** Maximum patterns of a schema, and maximum instructions of all its patterns together. */
export const MAX_PATTERNS = 100;
const MAX_PATTERN_STEPS = 4000;
/** Steps of one check: 10 to 20 ms, measured in 2026. */
export const MAX_STEPS = 1_000_000;

/** Step costs of single operations. */
const VISIT_STEPS = 4;
const MEMBER_STEPS = 2;
const CHARACTERS_PER_STEP = 8;
const MULTIPLE_STEPS = 50;
const MAX_TOLD = 300;

/**
 * Checks values against a JSON Schema (2020-12) by interpreting it, since workerd refuses generated code. A budget bounds the steps and the
 * depth of a check, and linear-time patterns bound each step. The rules match `@cfworker/json-schema`; a property test compares both.
 */
export class SchemaValidator {
  readonly #root: JsonSchema | boolean;
  readonly #references: References | null;
  readonly #patterns = new Map<string, Pattern>();
  readonly #tracks: boolean;

  /** @throws SchemaError, PatternError */
  constructor(schema: JsonSchema | boolean) {
    this.#root = schema;
    this.#references = typeof schema === 'boolean' ? null : new References(schema);
    this.#tracks = [...this.#schemas()].some(
      (each) => Object.hasOwn(each, 'unevaluatedProperties') || Object.hasOwn(each, 'unevaluatedItems'),
    );
    let size = 0;
    for (const source of this.#sources()) {
      if (this.#patterns.has(source)) continue;
      const pattern = compiled(source);
      size += pattern.size;
      this.#patterns.set(source, pattern);
      if (this.#patterns.size > MAX_PATTERNS)
        throw new SchemaError(`it has more than ${MAX_PATTERNS} different patterns`);
      if (size > MAX_PATTERN_STEPS)
        throw new SchemaError(`its patterns have more than ${MAX_PATTERN_STEPS} steps together; repeat less in them`);
    }
  }

  /** Returns the first fault of a value, or null. Throws `StepsExhausted` and `TooDeepError`. */
  check(value: unknown, steps = MAX_STEPS): Fault | null {
    const run = new Run(this.#references, this.#patterns, this.#tracks, new StepBudget(steps));
    return run.check(value, this.#root, null, run.evaluated(null));
  }

  #schemas(): Iterable<JsonSchema> {
    return this.#references?.schemas ?? [];
  }

  *#sources(): Generator<string> {
    for (const { pattern, patternProperties } of this.#schemas()) {
      if (typeof pattern === 'string') yield pattern;
      if (isObject(patternProperties)) yield* Object.keys(patternProperties);
    }
  }
}

function compiled(source: string): Pattern {
  try {
    return new Pattern(source);
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    throw new PatternError(`The pattern ${JSON.stringify(clipped(source, MAX_TOLD))} ${error.message}`, {
      cause: error,
    });
  }
}

class Run {
  readonly #references: References | null;
  readonly #patterns: ReadonlyMap<string, Pattern>;
  readonly #tracks: boolean;
  readonly #budget: StepBudget;
  #depth = 0;

  constructor(
    references: References | null,
    patterns: ReadonlyMap<string, Pattern>,
    tracks: boolean,
    budget: StepBudget,
  ) {
    this.#references = references;
    this.#patterns = patterns;
    this.#tracks = tracks;
    this.#budget = budget;
  }

  /** A new set of evaluated members; null in schemas without `unevaluated…` keywords. */
  evaluated(around: Evaluated | null): Evaluated | null {
    return this.#tracks ? new Evaluated(around) : null;
  }

  check(value: unknown, schema: unknown, place: Place | null, seen: Evaluated | null): Fault | null {
    this.#budget.spend(VISIT_STEPS);
    if (schema === true) return null;
    if (schema === false) return { place, kind: 'unexpected', message: 'is not expected.' };
    if (!isObject(schema)) throw new SchemaError('a part of it is not a schema');
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) throw new TooDeepError();
    const fault =
      this.#reference(value, schema, place, seen) ??
      this.#anyValue(value, schema, place) ??
      this.#combined(value, schema, place, seen) ??
      this.#conditional(value, schema, place, seen) ??
      this.#byType(value, schema, place, seen);
    this.#depth -= 1;
    return fault;
  }

  #reference(value: unknown, schema: JsonSchema, place: Place | null, seen: Evaluated | null): Fault | null {
    const target = this.#references?.target(schema);
    return target === undefined ? null : this.check(value, target, place, seen);
  }

  #anyValue(value: unknown, schema: JsonSchema, place: Place | null): Fault | null {
    const { type, const: only, enum: allowed, not } = schema;
    if (Array.isArray(type)) this.#budget.spend(type.length);
    if (type !== undefined && !(Array.isArray(type) ? type.some((each) => isOf(value, each)) : isOf(value, type))) {
      return other(place, `Instance type "${typeOf(value)}" is invalid. Expected "${toldTypes(type)}".`);
    }
    if (only !== undefined && !areEqual(value, only, this.#budget)) {
      return other(place, `Instance does not match ${told(only)}.`);
    }
    if (Array.isArray(allowed) && !allowed.some((each) => areEqual(value, each, this.#budget))) {
      return other(place, `Instance does not match any of ${told(allowed)}.`);
    }
    if (not !== undefined && this.check(value, not, place, this.evaluated(null)) === null) {
      return other(place, 'Instance matched "not" schema.');
    }
    return null;
  }

  #combined(value: unknown, schema: JsonSchema, place: Place | null, seen: Evaluated | null): Fault | null {
    const { anyOf, allOf, oneOf } = schema;
    const accepted: (Evaluated | null)[] = [];
    const accepts = (inner: unknown): Fault | null => {
      const own = this.evaluated(seen);
      const fault = this.check(value, inner, place, own);
      if (fault === null) accepted.push(own);
      return fault;
    };
    // Each alternative may evaluate further members, so when those are tracked all alternatives must run.
    if (anyOf !== undefined) {
      const alternatives = listOf(anyOf);
      const matches = this.#tracks
        ? alternatives.filter((inner) => accepts(inner) === null).length > 0
        : alternatives.some((inner) => accepts(inner) === null);
      if (!matches) return other(place, 'Instance does not match any subschemas.');
    }
    for (const inner of allOf === undefined ? [] : listOf(allOf)) {
      const fault = accepts(inner);
      if (fault !== null) return fault;
    }
    if (oneOf !== undefined) {
      const matches = listOf(oneOf).filter((inner) => accepts(inner) === null).length;
      if (matches !== 1) return other(place, `Instance does not match exactly one subschema (${matches} matches).`);
    }
    for (const each of accepted) this.#merge(seen, each);
    return null;
  }

  #conditional(value: unknown, schema: JsonSchema, place: Place | null, seen: Evaluated | null): Fault | null {
    const { if: condition, then: consequence, else: alternative } = schema;
    if (condition === undefined) return null;
    const own = this.evaluated(null);
    if (this.check(value, condition, place, own) === null) {
      this.#merge(seen, own);
      return consequence === undefined ? null : this.check(value, consequence, place, seen);
    }
    return alternative === undefined ? null : this.check(value, alternative, place, seen);
  }

  #byType(value: unknown, schema: JsonSchema, place: Place | null, seen: Evaluated | null): Fault | null {
    if (typeof value === 'string') return this.#text(value, schema, place);
    if (typeof value === 'number') return this.#number(value, schema, place);
    if (Array.isArray(value)) return this.#list(value, schema, place, seen);
    return isObject(value) ? this.#object(value, schema, place, seen) : null;
  }

  #text(value: string, schema: JsonSchema, place: Place | null): Fault | null {
    const { minLength, maxLength, pattern, format } = schema;
    if (minLength !== undefined || maxLength !== undefined) {
      const length = this.#lengthOf(value);
      if (length < Number(minLength ?? 0)) return other(place, `String is too short (${length} < ${told(minLength)}).`);
      if (maxLength !== undefined && length > Number(maxLength))
        return other(place, `String is too long (${length} > ${told(maxLength)}).`);
    }
    if (typeof pattern === 'string' && !this.#matches(pattern, value))
      return other(place, 'String does not match pattern.');
    if (!hasFormat(value, format, this.#budget)) return other(place, `String does not match format "${told(format)}".`);
    return null;
  }

  #number(value: number, schema: JsonSchema, place: Place | null): Fault | null {
    const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
    if (minimum !== undefined && value < Number(minimum))
      return other(place, `${value} is less than ${told(minimum)}.`);
    if (maximum !== undefined && value > Number(maximum))
      return other(place, `${value} is greater than ${told(maximum)}.`);
    if (exclusiveMinimum !== undefined && value <= Number(exclusiveMinimum))
      return other(place, `${value} is less than or equal to ${told(exclusiveMinimum)}.`);
    if (exclusiveMaximum !== undefined && value >= Number(exclusiveMaximum))
      return other(place, `${value} is greater than or equal to ${told(exclusiveMaximum)}.`);
    if (multipleOf === undefined) return null;
    this.#budget.spend(MULTIPLE_STEPS);
    return isMultiple(value, Number(multipleOf))
      ? null
      : other(place, `${value} is not a multiple of ${told(multipleOf)}.`);
  }

  #list(items: readonly unknown[], schema: JsonSchema, place: Place | null, seen: Evaluated | null): Fault | null {
    const { minItems, maxItems, prefixItems, items: rest, contains, unevaluatedItems, uniqueItems } = schema;
    const { length } = items;
    if (maxItems !== undefined && length > Number(maxItems))
      return other(place, `Array has too many items (${length} > ${told(maxItems)}).`);
    if (minItems !== undefined && length < Number(minItems))
      return other(place, `Array has too few items (${length} < ${told(minItems)}).`);
    const prefix = prefixItems === undefined ? [] : listOf(prefixItems);
    // With `items`, every item is checked.
    const checked = rest === undefined ? Math.min(prefix.length, length) : length;
    for (let at = 0; at < checked; at++) {
      const fault = this.#member(items[at], at < prefix.length ? prefix[at] : rest, place, at);
      if (fault !== null) return fault;
      seen?.add(at);
    }
    if (contains !== undefined) {
      const fault = this.#contains(items, schema, place, seen);
      if (fault !== null) return fault;
    }
    for (let at = checked; unevaluatedItems !== undefined && at < length; at++) {
      if (seen?.has(at) === true) continue;
      const fault = this.#member(items[at], unevaluatedItems, place, at);
      if (fault !== null) return fault;
      seen?.add(at);
    }
    const twice = uniqueItems === true ? duplicates(items, this.#budget) : null;
    return twice === null ? null : other(place, `Duplicate items at indexes ${twice.join(' and ')}.`);
  }

  #contains(items: readonly unknown[], schema: JsonSchema, place: Place | null, seen: Evaluated | null): Fault | null {
    const { contains, minContains, maxContains } = schema;
    let found = 0;
    for (const [at, item] of items.entries()) {
      if (this.#member(item, contains, place, at) !== null) continue;
      seen?.add(at);
      found += 1;
    }
    if (found < Number(minContains ?? 1))
      return other(
        place,
        `Array must contain at least ${told(minContains ?? 1)} items matching schema. ${found} items were found.`,
      );
    if (maxContains !== undefined && found > Number(maxContains))
      return other(
        place,
        `Array may contain at most ${told(maxContains)} items matching schema. ${found} items were found.`,
      );
    return null;
  }

  #object(value: JsonSchema, schema: JsonSchema, place: Place | null, seen: Evaluated | null): Fault | null {
    const { required, minProperties, maxProperties, propertyNames } = schema;
    for (const name of required === undefined ? [] : listOf(required)) {
      this.#budget.spend(MEMBER_STEPS);
      if (!Object.hasOwn(value, String(name)))
        return { place: { around: place, step: String(name) }, kind: 'missing', message: 'is missing.' };
    }
    const names = Object.keys(value);
    this.#budget.spend(MEMBER_STEPS * names.length);
    if (names.length < Number(minProperties ?? 0))
      return other(place, `Instance does not have at least ${told(minProperties)} properties.`);
    if (maxProperties !== undefined && names.length > Number(maxProperties))
      return other(place, `Instance has more than ${told(maxProperties)} properties.`);
    for (const name of propertyNames === undefined ? [] : names) {
      if (this.#member(name, propertyNames, place, name) !== null)
        return other(place, `Property name "${clipped(name, MAX_TOLD)}" does not match schema.`);
    }
    return this.#dependent(value, schema, place, seen) ?? this.#properties(value, names, schema, place, seen);
  }

  /** `dependencies` is the form of `dependentRequired` and `dependentSchemas` before 2019-09. */
  #dependent(value: JsonSchema, schema: JsonSchema, place: Place | null, seen: Evaluated | null): Fault | null {
    for (const named of [schema.dependentRequired, schema.dependentSchemas, schema.dependencies]) {
      for (const [name, then] of isObject(named) ? Object.entries(named) : []) {
        this.#budget.spend(MEMBER_STEPS);
        if (!Object.hasOwn(value, name)) continue;
        if (!Array.isArray(then)) {
          const fault = this.check(value, then, place, named === schema.dependencies ? this.evaluated(null) : seen);
          if (fault !== null) return fault;
          continue;
        }
        this.#budget.spend(MEMBER_STEPS * then.length);
        const missing = then.find((each) => !Object.hasOwn(value, String(each)));
        if (missing !== undefined)
          return other(place, `Instance has "${clipped(name, MAX_TOLD)}" but does not have "${told(missing)}".`);
      }
    }
    return null;
  }

  #properties(
    value: JsonSchema,
    names: readonly string[],
    schema: JsonSchema,
    place: Place | null,
    seen: Evaluated | null,
  ): Fault | null {
    const { properties, patternProperties, additionalProperties, unevaluatedProperties } = schema;
    const named = new Set<string>();
    for (const [name, inner] of isObject(properties) ? Object.entries(properties) : []) {
      this.#budget.spend(MEMBER_STEPS);
      if (!Object.hasOwn(value, name)) continue;
      const fault = this.#member(value[name], inner, place, name);
      if (fault !== null) return fault;
      named.add(name);
      seen?.add(name);
    }
    for (const [source, inner] of isObject(patternProperties) ? Object.entries(patternProperties) : []) {
      for (const name of names) {
        if (!this.#matches(source, name)) continue;
        const fault = this.#member(value[name], inner, place, name);
        if (fault !== null) return fault;
        named.add(name);
        seen?.add(name);
      }
    }
    const rest = additionalProperties ?? unevaluatedProperties;
    if (rest === undefined) return null;
    for (const name of names) {
      this.#budget.spend(MEMBER_STEPS);
      if (additionalProperties === undefined ? seen?.has(name) === true : named.has(name)) continue;
      const fault = this.#member(value[name], rest, place, name);
      if (fault !== null) return fault;
      seen?.add(name);
    }
    return null;
  }

  #member(value: unknown, schema: unknown, around: Place | null, step: string | number): Fault | null {
    return this.check(value, schema, { around, step }, this.evaluated(null));
  }

  #merge(into: Evaluated | null, from: Evaluated | null): void {
    if (into === null || from === null) return;
    this.#budget.spend(from.size);
    into.merge(from);
  }

  #matches(source: string, text: string): boolean {
    this.#budget.spend(MEMBER_STEPS);
    const pattern = this.#patterns.get(source);
    if (pattern === undefined) throw new SchemaError('a part of it is not a schema');
    return pattern.test(text, this.#budget);
  }

  /** Length in code points. */
  #lengthOf(text: string): number {
    this.#budget.spend(text.length / CHARACTERS_PER_STEP);
    let length = text.length;
    for (let at = 0; at < text.length - 1; at++) {
      const high = (text.charCodeAt(at) & 0xfc00) === 0xd800;
      if (high && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00) length -= 1;
    }
    return length;
  }
}

function isOf(value: unknown, type: unknown): boolean {
  return type === 'integer' ? typeof value === 'number' && value % 1 === 0 : typeOf(value) === type;
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

function listOf(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw new SchemaError('a part of it is not a list');
}

function other(place: Place | null, message: string): Fault {
  return { place, kind: 'other', message };
}

/** Texts of the schema's lists and objects: under `contains` or `anyOf` each item of a value makes the same message. */
const TEXTS = new WeakMap<object, string>();

function told(value: unknown): string {
  return toldOnce(value, (all) => (typeof all === 'string' ? all : JSON.stringify(all)));
}

const toldTypes = (type: unknown): string =>
  toldOnce(type, (all) => (Array.isArray(all) ? all.join('", "') : String(all)));

function toldOnce(value: unknown, tell: (value: unknown) => string): string {
  const isShared = typeof value === 'object' && value !== null;
  const known = isShared ? TEXTS.get(value) : undefined;
  if (known !== undefined) return known;
  const text = clipped(tell(value), MAX_TOLD);
  if (isShared) TEXTS.set(value, text);
  return text;
}
