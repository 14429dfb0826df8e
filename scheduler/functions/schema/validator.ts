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

/** Maximum different patterns of a schema. */
export const MAX_PATTERNS = 100;
/** Maximum instructions of all patterns of a schema together. */
const MAX_PATTERN_STEPS = 4000;
/** Steps of one check: 10 to 20 ms, measured in 2026. */
export const MAX_STEPS = 1_000_000;

/** Step costs of single operations. */
const VISIT_STEPS = 4;
const MEMBER_STEPS = 2;
const CHARACTERS_PER_STEP = 8;
/** Enclosing sets of evaluated members that one step looks into. */
const SETS_PER_STEP = 4;
const MULTIPLE_STEPS = 50;
/** Maximum characters of a name or of a part of the schema in a message. */
const MAX_SHOWN_TEXT = 300;

/**
 * Checks values against a JSON Schema (2020-12) by interpreting it, since workerd refuses generated code. A budget bounds the steps and the
 * depth of a check, and linear-time patterns bound each step. The rules match `@cfworker/json-schema`; a property test compares both.
 */
export class SchemaValidator {
  readonly #root: JsonSchema | boolean;
  readonly #references: References | null;
  readonly #patterns = new Map<string, Pattern>();
  readonly #tracksEvaluated: boolean;

  /** @throws SchemaError, PatternError */
  constructor(schema: JsonSchema | boolean) {
    this.#root = schema;
    this.#references = typeof schema === 'boolean' ? null : new References(schema);
    this.#tracksEvaluated = [...this.#schemas()].some(
      (each) => Object.hasOwn(each, 'unevaluatedProperties') || Object.hasOwn(each, 'unevaluatedItems'),
    );
    let size = 0;
    for (const source of this.#sources()) {
      if (this.#patterns.has(source)) continue;
      const pattern = compiledPattern(source);
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
    const run = new Run(this.#references, this.#patterns, this.#tracksEvaluated, new StepBudget(steps));
    return run.check(value, this.#root, null, run.newEvaluated(null));
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

function compiledPattern(source: string): Pattern {
  try {
    return new Pattern(source);
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    throw new PatternError(`The pattern ${JSON.stringify(clipped(source, MAX_SHOWN_TEXT))} ${error.message}`, {
      cause: error,
    });
  }
}

class Run {
  readonly #references: References | null;
  readonly #patterns: ReadonlyMap<string, Pattern>;
  readonly #tracksEvaluated: boolean;
  readonly #budget: StepBudget;
  #depth = 0;

  constructor(
    references: References | null,
    patterns: ReadonlyMap<string, Pattern>,
    tracksEvaluated: boolean,
    budget: StepBudget,
  ) {
    this.#references = references;
    this.#patterns = patterns;
    this.#tracksEvaluated = tracksEvaluated;
    this.#budget = budget;
  }

  /** A new set of evaluated members; null in schemas without `unevaluated…` keywords. */
  newEvaluated(enclosing: Evaluated | null): Evaluated | null {
    return this.#tracksEvaluated ? new Evaluated(enclosing) : null;
  }

  check(value: unknown, schema: unknown, place: Place | null, evaluated: Evaluated | null): Fault | null {
    this.#budget.spend(VISIT_STEPS);
    if (schema === true) return null;
    if (schema === false) return { place, kind: 'unexpected', message: 'is not expected.' };
    if (!isObject(schema)) throw new SchemaError('a part of it is not a schema');
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) throw new TooDeepError();
    const fault =
      this.#reference(value, schema, place, evaluated) ??
      this.#anyValue(value, schema, place) ??
      this.#combined(value, schema, place, evaluated) ??
      this.#conditional(value, schema, place, evaluated) ??
      this.#byType(value, schema, place, evaluated);
    this.#depth -= 1;
    return fault;
  }

  #reference(value: unknown, schema: JsonSchema, place: Place | null, evaluated: Evaluated | null): Fault | null {
    const target = this.#references?.target(schema);
    return target === undefined ? null : this.check(value, target, place, evaluated);
  }

  #anyValue(value: unknown, schema: JsonSchema, place: Place | null): Fault | null {
    const { type, const: constant, enum: allowed, not } = schema;
    if (Array.isArray(type)) this.#budget.spend(type.length);
    if (type !== undefined && !hasType(value, type)) {
      return otherFault(place, `Instance type "${typeOf(value)}" is invalid. Expected "${typesText(type)}".`);
    }
    if (constant !== undefined && !areEqual(value, constant, this.#budget)) {
      return otherFault(place, `Instance does not match ${textOf(constant)}.`);
    }
    if (Array.isArray(allowed) && !allowed.some((each) => areEqual(value, each, this.#budget))) {
      return otherFault(place, `Instance does not match any of ${textOf(allowed)}.`);
    }
    if (not !== undefined && this.check(value, not, place, this.newEvaluated(null)) === null) {
      return otherFault(place, 'Instance matched "not" schema.');
    }
    return null;
  }

  #combined(value: unknown, schema: JsonSchema, place: Place | null, evaluated: Evaluated | null): Fault | null {
    const { anyOf, allOf, oneOf } = schema;
    const acceptedBranches: (Evaluated | null)[] = [];
    const tryBranch = (inner: unknown): Fault | null => {
      const branchEvaluated = this.newEvaluated(evaluated);
      const fault = this.check(value, inner, place, branchEvaluated);
      if (fault === null) acceptedBranches.push(branchEvaluated);
      return fault;
    };
    // Each alternative may evaluate further members. So all alternatives must run when evaluated members are tracked.
    if (anyOf !== undefined) {
      const alternatives = listOf(anyOf);
      const matches = this.#tracksEvaluated
        ? alternatives.filter((inner) => tryBranch(inner) === null).length > 0
        : alternatives.some((inner) => tryBranch(inner) === null);
      if (!matches) return otherFault(place, 'Instance does not match any subschemas.');
    }
    for (const inner of allOf === undefined ? [] : listOf(allOf)) {
      const fault = tryBranch(inner);
      if (fault !== null) return fault;
    }
    if (oneOf !== undefined) {
      const matches = listOf(oneOf).filter((inner) => tryBranch(inner) === null).length;
      if (matches !== 1)
        return otherFault(place, `Instance does not match exactly one subschema (${matches} matches).`);
    }
    for (const each of acceptedBranches) this.#merge(evaluated, each);
    return null;
  }

  #conditional(value: unknown, schema: JsonSchema, place: Place | null, evaluated: Evaluated | null): Fault | null {
    const { if: condition, then: consequence, else: alternative } = schema;
    if (condition === undefined) return null;
    const conditionEvaluated = this.newEvaluated(null);
    if (this.check(value, condition, place, conditionEvaluated) === null) {
      this.#merge(evaluated, conditionEvaluated);
      return consequence === undefined ? null : this.check(value, consequence, place, evaluated);
    }
    return alternative === undefined ? null : this.check(value, alternative, place, evaluated);
  }

  #byType(value: unknown, schema: JsonSchema, place: Place | null, evaluated: Evaluated | null): Fault | null {
    if (typeof value === 'string') return this.#text(value, schema, place);
    if (typeof value === 'number') return this.#number(value, schema, place);
    if (Array.isArray(value)) return this.#list(value, schema, place, evaluated);
    return isObject(value) ? this.#object(value, schema, place, evaluated) : null;
  }

  #text(value: string, schema: JsonSchema, place: Place | null): Fault | null {
    const { minLength, maxLength, pattern, format } = schema;
    if (minLength !== undefined || maxLength !== undefined) {
      const length = this.#lengthOf(value);
      if (length < Number(minLength ?? 0))
        return otherFault(place, `String is too short (${length} < ${textOf(minLength)}).`);
      if (maxLength !== undefined && length > Number(maxLength))
        return otherFault(place, `String is too long (${length} > ${textOf(maxLength)}).`);
    }
    if (typeof pattern === 'string' && !this.#matches(pattern, value))
      return otherFault(place, 'String does not match pattern.');
    if (!hasFormat(value, format, this.#budget))
      return otherFault(place, `String does not match format "${textOf(format)}".`);
    return null;
  }

  #number(value: number, schema: JsonSchema, place: Place | null): Fault | null {
    const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
    if (minimum !== undefined && value < Number(minimum))
      return otherFault(place, `${value} is less than ${textOf(minimum)}.`);
    if (maximum !== undefined && value > Number(maximum))
      return otherFault(place, `${value} is greater than ${textOf(maximum)}.`);
    if (exclusiveMinimum !== undefined && value <= Number(exclusiveMinimum))
      return otherFault(place, `${value} is less than or equal to ${textOf(exclusiveMinimum)}.`);
    if (exclusiveMaximum !== undefined && value >= Number(exclusiveMaximum))
      return otherFault(place, `${value} is greater than or equal to ${textOf(exclusiveMaximum)}.`);
    if (multipleOf === undefined) return null;
    this.#budget.spend(MULTIPLE_STEPS);
    return isMultiple(value, Number(multipleOf))
      ? null
      : otherFault(place, `${value} is not a multiple of ${textOf(multipleOf)}.`);
  }

  #list(items: readonly unknown[], schema: JsonSchema, place: Place | null, evaluated: Evaluated | null): Fault | null {
    const { minItems, maxItems, prefixItems, items: restSchema, contains, unevaluatedItems, uniqueItems } = schema;
    const { length } = items;
    if (maxItems !== undefined && length > Number(maxItems))
      return otherFault(place, `Array has too many items (${length} > ${textOf(maxItems)}).`);
    if (minItems !== undefined && length < Number(minItems))
      return otherFault(place, `Array has too few items (${length} < ${textOf(minItems)}).`);
    const prefix = prefixItems === undefined ? [] : listOf(prefixItems);
    // With `items`, every item is checked.
    const checkedCount = restSchema === undefined ? Math.min(prefix.length, length) : length;
    for (let at = 0; at < checkedCount; at++) {
      const fault = this.#member(items[at], at < prefix.length ? prefix[at] : restSchema, place, at);
      if (fault !== null) return fault;
      evaluated?.add(at);
    }
    if (contains !== undefined) {
      const fault = this.#contains(items, schema, place, evaluated);
      if (fault !== null) return fault;
    }
    for (let at = checkedCount; unevaluatedItems !== undefined && at < length; at++) {
      this.#budget.spend((evaluated?.depth ?? 0) / SETS_PER_STEP);
      if (evaluated?.has(at) === true) continue;
      const fault = this.#member(items[at], unevaluatedItems, place, at);
      if (fault !== null) return fault;
      evaluated?.add(at);
    }
    const duplicateIndexes = uniqueItems === true ? duplicates(items, this.#budget) : null;
    return duplicateIndexes === null
      ? null
      : otherFault(place, `Duplicate items at indexes ${duplicateIndexes.join(' and ')}.`);
  }

  #contains(
    items: readonly unknown[],
    schema: JsonSchema,
    place: Place | null,
    evaluated: Evaluated | null,
  ): Fault | null {
    const { contains, minContains, maxContains } = schema;
    let matchCount = 0;
    for (const [at, item] of items.entries()) {
      if (this.#member(item, contains, place, at) !== null) continue;
      evaluated?.add(at);
      matchCount += 1;
    }
    if (matchCount < Number(minContains ?? 1))
      return otherFault(
        place,
        `Array must contain at least ${textOf(minContains ?? 1)} items matching schema. ${matchCount} items were found.`,
      );
    if (maxContains !== undefined && matchCount > Number(maxContains))
      return otherFault(
        place,
        `Array may contain at most ${textOf(maxContains)} items matching schema. ${matchCount} items were found.`,
      );
    return null;
  }

  #object(value: JsonSchema, schema: JsonSchema, place: Place | null, evaluated: Evaluated | null): Fault | null {
    const { required, minProperties, maxProperties, propertyNames } = schema;
    for (const name of required === undefined ? [] : listOf(required)) {
      this.#budget.spend(MEMBER_STEPS);
      if (!Object.hasOwn(value, String(name)))
        return { place: { parent: place, step: String(name) }, kind: 'missing', message: 'is missing.' };
    }
    const names = Object.keys(value);
    this.#budget.spend(MEMBER_STEPS * names.length);
    if (names.length < Number(minProperties ?? 0))
      return otherFault(place, `Instance does not have at least ${textOf(minProperties)} properties.`);
    if (maxProperties !== undefined && names.length > Number(maxProperties))
      return otherFault(place, `Instance has more than ${textOf(maxProperties)} properties.`);
    for (const name of propertyNames === undefined ? [] : names) {
      if (this.#member(name, propertyNames, place, name) !== null)
        return otherFault(place, `Property name "${clipped(name, MAX_SHOWN_TEXT)}" does not match schema.`);
    }
    return this.#dependent(value, schema, place, evaluated) ?? this.#properties(value, names, schema, place, evaluated);
  }

  /**
   * `dependencies` is the form of `dependentRequired` and `dependentSchemas` before 2019-09. As in the library, its
   * schemas evaluate no members for `unevaluated…` keywords.
   */
  #dependent(value: JsonSchema, schema: JsonSchema, place: Place | null, evaluated: Evaluated | null): Fault | null {
    for (const dependents of [schema.dependentRequired, schema.dependentSchemas, schema.dependencies]) {
      for (const [name, dependency] of isObject(dependents) ? Object.entries(dependents) : []) {
        this.#budget.spend(MEMBER_STEPS);
        if (!Object.hasOwn(value, name)) continue;
        if (!Array.isArray(dependency)) {
          const fault = this.check(
            value,
            dependency,
            place,
            dependents === schema.dependencies ? this.newEvaluated(null) : evaluated,
          );
          if (fault !== null) return fault;
          continue;
        }
        this.#budget.spend(MEMBER_STEPS * dependency.length);
        const missingName = dependency.find((each) => !Object.hasOwn(value, String(each)));
        if (missingName !== undefined)
          return otherFault(
            place,
            `Instance has "${clipped(name, MAX_SHOWN_TEXT)}" but does not have "${textOf(missingName)}".`,
          );
      }
    }
    return null;
  }

  #properties(
    value: JsonSchema,
    names: readonly string[],
    schema: JsonSchema,
    place: Place | null,
    evaluated: Evaluated | null,
  ): Fault | null {
    const { properties, patternProperties, additionalProperties, unevaluatedProperties } = schema;
    const namedProperties = new Set<string>();
    for (const [name, inner] of isObject(properties) ? Object.entries(properties) : []) {
      this.#budget.spend(MEMBER_STEPS);
      if (!Object.hasOwn(value, name)) continue;
      const fault = this.#member(value[name], inner, place, name);
      if (fault !== null) return fault;
      namedProperties.add(name);
      evaluated?.add(name);
    }
    for (const [source, inner] of isObject(patternProperties) ? Object.entries(patternProperties) : []) {
      for (const name of names) {
        if (!this.#matches(source, name)) continue;
        const fault = this.#member(value[name], inner, place, name);
        if (fault !== null) return fault;
        namedProperties.add(name);
        evaluated?.add(name);
      }
    }
    const restSchema = additionalProperties ?? unevaluatedProperties;
    if (restSchema === undefined) return null;
    for (const name of names) {
      this.#budget.spend(MEMBER_STEPS + (evaluated?.depth ?? 0) / SETS_PER_STEP);
      const isDone = additionalProperties === undefined ? evaluated?.has(name) === true : namedProperties.has(name);
      if (isDone) continue;
      const fault = this.#member(value[name], restSchema, place, name);
      if (fault !== null) return fault;
      evaluated?.add(name);
    }
    return null;
  }

  #member(value: unknown, schema: unknown, parent: Place | null, step: string | number): Fault | null {
    return this.check(value, schema, { parent, step }, this.newEvaluated(null));
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

/** True when a value has a type, or one of a list of types. */
function hasType(value: unknown, type: unknown): boolean {
  return Array.isArray(type) ? type.some((each) => isOf(value, each)) : isOf(value, type);
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

function otherFault(place: Place | null, message: string): Fault {
  return { place, kind: 'other', message };
}

/** Texts of the schema's lists and objects: under `contains` or `anyOf`, each item of a value would format the same text again. */
const CACHED_TEXTS = new WeakMap<object, string>();

function textOf(value: unknown): string {
  return cachedText(value, (all) => (typeof all === 'string' ? all : JSON.stringify(all)));
}

const typesText = (type: unknown): string =>
  cachedText(type, (all) => (Array.isArray(all) ? all.join('", "') : String(all)));

function cachedText(value: unknown, toText: (value: unknown) => string): string {
  const isShared = typeof value === 'object' && value !== null;
  const cached = isShared ? CACHED_TEXTS.get(value) : undefined;
  if (cached !== undefined) return cached;
  const text = clipped(toText(value), MAX_SHOWN_TEXT);
  if (isShared) CACHED_TEXTS.set(value, text);
  return text;
}
