import { format as library } from '@cfworker/json-schema';
import { MAX_DEPTH, StepBudget, TooDeepError } from './budget.ts';
import {
  type Compilation,
  type Compiled,
  clipped,
  compile,
  type Dependency,
  type Fault,
  isObject,
  type JsonSchema,
  type Place,
  type SchemaNode,
  shownJson,
} from './compiled.ts';
import { type Pattern, PROPERTY_ESCAPE } from './pattern.ts';

/** Steps of one check: 10 to 20 ms, measured in 2026. */
export const MAX_STEPS = 1_000_000;

/** Step costs of single operations. */
const VISIT_STEPS = 4;
const MEMBER_STEPS = 2;
/** Noting that a schema has evaluated a member. */
const EVALUATED_STEPS = 3;
/** Maximum characters of a name or of a part of the schema in a message. */
const MAX_SHOWN_TEXT = 300;

/**
 * Checks values against a JSON Schema (2020-12) by interpreting it, since workerd refuses generated code. A budget bounds the steps and the
 * depth of a check, and linear-time patterns bound each step. The rules match `@cfworker/json-schema`; a property test compares both.
 */
export class SchemaValidator {
  readonly #compilation: Compilation;

  /** @throws SchemaError, PatternError */
  constructor(schema: JsonSchema | boolean) {
    this.#compilation = compile(schema);
    for (const { error } of this.#compilation.faults) if (error !== null) throw error;
  }

  /** Schemas within the schema. Each takes about half a kilobyte of memory. */
  get nodeCount(): number {
    return this.#compilation.nodeCount;
  }

  /** Returns the first fault of a value, or null. Throws `StepsExhausted` and `TooDeepError`. */
  check(value: unknown, steps = MAX_STEPS): Fault | null {
    const { root, tracksEvaluated } = this.#compilation;
    const run = new Run(tracksEvaluated, new StepBudget(steps));
    const refusal = run.check(value, root, null, run.newEvaluated());
    return refusal && { place: refusal.place, message: refusal.message() };
  }
}

/** A fault whose message has not been written yet: under `anyOf` or `contains`, most of them are never shown. */
interface Refusal extends Omit<Fault, 'message'> {
  readonly message: () => string;
  /** The allowed types, if the value has another one. */
  readonly types?: readonly string[];
  /** The only allowed value. */
  readonly constant?: unknown;
}

class Run {
  readonly #tracksEvaluated: boolean;
  readonly #budget: StepBudget;
  #depth = 0;

  constructor(tracksEvaluated: boolean, budget: StepBudget) {
    this.#tracksEvaluated = tracksEvaluated;
    this.#budget = budget;
  }

  /** A new set of evaluated members; null in schemas without `unevaluated…` keywords. */
  newEvaluated(): Evaluated | null {
    return this.#tracksEvaluated ? new Evaluated() : null;
  }

  check(value: unknown, schema: Compiled, place: Place | null, evaluated: Evaluated | null): Refusal | null {
    this.#budget.spend(VISIT_STEPS);
    if (schema === true) return null;
    if (schema === false) return { place, message: () => 'is not expected.' };
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) throw new TooDeepError();
    const refusal =
      this.#reference(value, schema, place, evaluated) ??
      this.#anyValue(value, schema, place) ??
      this.#combined(value, schema, place, evaluated) ??
      this.#conditional(value, schema, place, evaluated) ??
      this.#byType(value, schema, place, evaluated);
    this.#depth -= 1;
    return refusal;
  }

  #reference(
    value: unknown,
    { targets }: SchemaNode,
    place: Place | null,
    evaluated: Evaluated | null,
  ): Refusal | null {
    for (const target of targets) {
      const refused = this.#beside(value, target, place, evaluated);
      if (refused !== null) return refused;
    }
    return null;
  }

  /**
   * Checks the same value against a schema that another one applies. The members that it evaluates count for the other one, if it accepts the value.
   * It does not see those that the other one has evaluated (JSON Schema 2020-12, 11.3: only adjacent keywords count).
   */
  #beside(value: unknown, schema: Compiled, place: Place | null, evaluated: Evaluated | null): Refusal | null {
    const own = this.newEvaluated();
    const refused = this.check(value, schema, place, own);
    if (refused === null) this.#merge(evaluated, own);
    return refused;
  }

  #anyValue(value: unknown, schema: SchemaNode, place: Place | null): Refusal | null {
    const { types, const: constant, enum: allowed, not } = schema;
    if (types !== undefined) {
      this.#budget.spend(types.length);
      if (!types.some((type) => isOf(value, type)))
        return refusal(place, () => `must be ${typesText(types)}, not ${typeOf(value)}.`, { types });
    }
    if (constant !== undefined && !areEqual(value, constant, this.#budget))
      return refusal(place, () => `must be ${textOf(constant)}.`, { constant });
    if (allowed !== undefined && !allowed.some((each) => areEqual(value, each, this.#budget)))
      return refusal(place, () => `must be one of ${textOf(allowed)}.`);
    if (not !== undefined && this.check(value, not, place, this.newEvaluated()) === null)
      return refusal(place, () => 'fits the schema of `not`, which it must not fit.');
    return null;
  }

  #combined(value: unknown, schema: SchemaNode, place: Place | null, evaluated: Evaluated | null): Refusal | null {
    const { anyOf, allOf, oneOf } = schema;
    if (anyOf === undefined && allOf === undefined && oneOf === undefined) return null;
    const tryBranch = (inner: Compiled) => this.#beside(value, inner, place, evaluated);
    // Each alternative may evaluate further members. So all alternatives must run when evaluated members are tracked.
    if (anyOf !== undefined) {
      const refused: Refusal[] = [];
      for (const inner of anyOf) {
        const branchRefusal = tryBranch(inner);
        if (branchRefusal !== null) refused.push(branchRefusal);
        else if (!this.#tracksEvaluated) break;
      }
      if (refused.length === anyOf.length) return closestOf(refused, value, place);
    }
    for (const inner of allOf ?? []) {
      const refused = tryBranch(inner);
      if (refused !== null) return refused;
    }
    if (oneOf !== undefined) {
      const refused = oneOf.map(tryBranch).filter((branchRefusal) => branchRefusal !== null);
      const matches = oneOf.length - refused.length;
      if (matches === 0) return closestOf(refused, value, place);
      if (matches > 1) return refusal(place, () => `fits ${matches} alternatives; exactly one is allowed.`);
    }
    return null;
  }

  #conditional(value: unknown, schema: SchemaNode, place: Place | null, evaluated: Evaluated | null): Refusal | null {
    const { if: condition, then: consequence, else: alternative } = schema;
    if (condition === undefined) return null;
    const chosen = this.#beside(value, condition, place, evaluated) === null ? consequence : alternative;
    return chosen === undefined ? null : this.#beside(value, chosen, place, evaluated);
  }

  #byType(value: unknown, schema: SchemaNode, place: Place | null, evaluated: Evaluated | null): Refusal | null {
    if (typeof value === 'string') return this.#text(value, schema, place);
    if (typeof value === 'number') return this.#number(value, schema, place);
    if (Array.isArray(value)) return this.#list(value, schema, place, evaluated);
    return isObject(value) ? this.#object(value, schema, place, evaluated) : null;
  }

  #text(value: string, schema: SchemaNode, place: Place | null): Refusal | null {
    const { minLength, maxLength, pattern, format } = schema;
    if (minLength !== undefined || maxLength !== undefined) {
      const length = this.#lengthOf(value);
      if (minLength !== undefined && length < minLength)
        return refusal(place, () => `is too short (${length} < ${minLength}).`);
      if (maxLength !== undefined && length > maxLength)
        return refusal(place, () => `is too long (${length} > ${maxLength}).`);
    }
    if (pattern !== undefined && !this.#matches(pattern, value))
      return refusal(place, () => 'does not match its pattern.');
    if (format !== undefined && !hasFormat(value, format, this.#budget))
      return refusal(place, () => `does not match the format "${clipped(format, MAX_SHOWN_TEXT)}".`);
    return null;
  }

  #number(value: number, schema: SchemaNode, place: Place | null): Refusal | null {
    const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
    if (minimum !== undefined && value < minimum) return refusal(place, () => `is ${value}, less than ${minimum}.`);
    if (maximum !== undefined && value > maximum) return refusal(place, () => `is ${value}, greater than ${maximum}.`);
    if (exclusiveMinimum !== undefined && value <= exclusiveMinimum)
      return refusal(place, () => `is ${value}, less than or equal to ${exclusiveMinimum}.`);
    if (exclusiveMaximum !== undefined && value >= exclusiveMaximum)
      return refusal(place, () => `is ${value}, greater than or equal to ${exclusiveMaximum}.`);
    return multipleOf === undefined || isMultiple(value, multipleOf, this.#budget)
      ? null
      : refusal(place, () => `is ${value}, not a multiple of ${multipleOf}.`);
  }

  #list(
    items: readonly unknown[],
    schema: SchemaNode,
    place: Place | null,
    evaluated: Evaluated | null,
  ): Refusal | null {
    const { minItems, maxItems, prefixItems = [], items: restSchema, contains, unevaluatedItems, uniqueItems } = schema;
    const { length } = items;
    if (maxItems !== undefined && length > maxItems)
      return refusal(place, () => `has too many items (${length} > ${maxItems}).`);
    if (minItems !== undefined && length < minItems)
      return refusal(place, () => `has too few items (${length} < ${minItems}).`);
    // With `items`, every item is checked.
    const checkedCount = restSchema === undefined ? Math.min(prefixItems.length, length) : length;
    for (let at = 0; at < checkedCount; at++) {
      const refused = this.#member(items[at], prefixItems[at] ?? restSchema ?? true, place, at);
      if (refused !== null) return refused;
      this.#note(evaluated, at);
    }
    if (contains !== undefined) {
      const refused = this.#contains(items, contains, schema, place, evaluated);
      if (refused !== null) return refused;
    }
    for (let at = checkedCount; unevaluatedItems !== undefined && at < length; at++) {
      if (this.#isEvaluated(evaluated, at)) continue;
      const refused = this.#member(items[at], unevaluatedItems, place, at);
      if (refused !== null) return refused;
      this.#note(evaluated, at);
    }
    const duplicateIndexes = uniqueItems ? duplicates(items, this.#budget) : null;
    return duplicateIndexes === null
      ? null
      : refusal(place, () => `has equal items at the indexes ${duplicateIndexes.join(' and ')}.`);
  }

  #contains(
    items: readonly unknown[],
    contains: Compiled,
    { minContains = 1, maxContains }: SchemaNode,
    place: Place | null,
    evaluated: Evaluated | null,
  ): Refusal | null {
    let matchCount = 0;
    for (const [at, item] of items.entries()) {
      if (this.#member(item, contains, place, at) !== null) continue;
      this.#note(evaluated, at);
      matchCount += 1;
    }
    if (matchCount < minContains)
      return refusal(
        place,
        () => `has ${matchCount} items that fit the schema of \`contains\`, less than ${minContains}.`,
      );
    if (maxContains !== undefined && matchCount > maxContains)
      return refusal(
        place,
        () => `has ${matchCount} items that fit the schema of \`contains\`, more than ${maxContains}.`,
      );
    return null;
  }

  #object(value: JsonSchema, schema: SchemaNode, place: Place | null, evaluated: Evaluated | null): Refusal | null {
    const { required, minProperties, maxProperties, propertyNames } = schema;
    for (const name of required) {
      if (!this.#hasMember(value, name)) return { place: { parent: place, step: name }, message: () => 'is missing.' };
    }
    // Most schemas of objects name their properties. Only the others look at each name of the value.
    const needsNames =
      minProperties !== undefined ||
      maxProperties !== undefined ||
      propertyNames !== undefined ||
      schema.patternProperties.length > 0 ||
      schema.additionalProperties !== undefined ||
      schema.unevaluatedProperties !== undefined;
    const names = needsNames ? this.#budget.namesOf(value) : [];
    if (minProperties !== undefined && names.length < minProperties)
      return refusal(place, () => `has fewer than ${minProperties} members.`);
    if (maxProperties !== undefined && names.length > maxProperties)
      return refusal(place, () => `has more than ${maxProperties} members.`);
    for (const name of propertyNames === undefined ? [] : names) {
      if (this.#member(name, propertyNames ?? true, place, name) !== null)
        return refusal(place, () => `has the member name "${clipped(name, MAX_SHOWN_TEXT)}", which is not allowed.`);
    }
    return (
      this.#dependent(value, schema.dependentRequired, place, evaluated) ??
      this.#dependent(value, schema.dependentSchemas, place, evaluated) ??
      this.#dependent(value, schema.dependencies, place, evaluated) ??
      this.#properties(value, names, schema, place, evaluated)
    );
  }

  #dependent(
    value: JsonSchema,
    dependencies: readonly Dependency[],
    place: Place | null,
    evaluated: Evaluated | null,
  ): Refusal | null {
    for (const { name, on, evaluates } of dependencies) {
      if (!this.#hasMember(value, name)) continue;
      if (typeof on === 'boolean' || !('length' in on)) {
        const refused = this.#beside(value, on, place, evaluates ? evaluated : null);
        if (refused !== null) return refused;
        continue;
      }
      const missingName = on.find((each) => !this.#hasMember(value, each));
      if (missingName !== undefined)
        return refusal(
          place,
          () => `has the member "${clipped(name, MAX_SHOWN_TEXT)}" without "${clipped(missingName, MAX_SHOWN_TEXT)}".`,
        );
    }
    return null;
  }

  #properties(
    value: JsonSchema,
    names: readonly string[],
    schema: SchemaNode,
    place: Place | null,
    evaluated: Evaluated | null,
  ): Refusal | null {
    const { properties, patternProperties, additionalProperties, unevaluatedProperties } = schema;
    /** The names that `additionalProperties` skips. */
    const named = additionalProperties === undefined ? null : new Evaluated();
    for (const [name, inner] of properties) {
      if (!this.#hasMember(value, name)) continue;
      const refused = this.#member(value[name], inner, place, name);
      if (refused !== null) return refused;
      this.#note(named, name);
      this.#note(evaluated, name);
    }
    for (const [pattern, inner] of patternProperties) {
      for (const name of names) {
        if (!this.#matches(pattern, name)) continue;
        const refused = this.#member(value[name], inner, place, name);
        if (refused !== null) return refused;
        this.#note(named, name);
        this.#note(evaluated, name);
      }
    }
    const restSchema = additionalProperties ?? unevaluatedProperties;
    if (restSchema === undefined) return null;
    for (const name of names) {
      if (this.#isEvaluated(named ?? evaluated, name)) continue;
      const refused = this.#member(value[name], restSchema, place, name);
      if (refused !== null) return refused;
      this.#note(evaluated, name);
    }
    return null;
  }

  #member(value: unknown, schema: Compiled, parent: Place | null, step: string | number): Refusal | null {
    return this.check(value, schema, { parent, step }, this.newEvaluated());
  }

  #hasMember(value: JsonSchema, name: string): boolean {
    this.#budget.spend(MEMBER_STEPS);
    return Object.hasOwn(value, name);
  }

  #note(evaluated: Evaluated | null, member: string | number): void {
    if (evaluated === null) return;
    this.#budget.spend(EVALUATED_STEPS);
    evaluated.add(member);
  }

  #isEvaluated(evaluated: Evaluated | null, member: string | number): boolean {
    this.#budget.spend(MEMBER_STEPS);
    return evaluated?.has(member) === true;
  }

  #merge(into: Evaluated | null, from: Evaluated | null): void {
    if (into === null || from === null) return;
    this.#budget.spend(EVALUATED_STEPS * from.size);
    into.merge(from);
  }

  #matches(pattern: Pattern, text: string): boolean {
    this.#budget.spend(MEMBER_STEPS);
    return pattern.test(text, this.#budget);
  }

  /** Length in code points. */
  #lengthOf(text: string): number {
    this.#budget.spendCharacters(text.length);
    let length = text.length;
    for (let at = 0; at < text.length - 1; at++) {
      const high = (text.charCodeAt(at) & 0xfc00) === 0xd800;
      if (high && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00) length -= 1;
    }
    return length;
  }
}

function isOf(value: unknown, type: string): boolean {
  return type === 'integer' ? typeof value === 'number' && value % 1 === 0 : typeOf(value) === type;
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

const typesText = (types: readonly string[]): string => clipped(types.join(' or '), MAX_SHOWN_TEXT);

const textOf = (value: unknown): string =>
  typeof value === 'string' ? clipped(value, MAX_SHOWN_TEXT) : shownJson(value, MAX_SHOWN_TEXT);

function refusal(
  place: Place | null,
  message: () => string,
  expected: Pick<Refusal, 'types' | 'constant'> = {},
): Refusal {
  return { place, message, ...expected };
}

/**
 * The refusal of a value that fits none of several alternatives: that of the alternative which fits most. An alternative with a wrong constant, such as
 * the `type` of another kind of object, fits least, and so does one for a list of other items; of the others, the one whose fault lies deepest fits
 * most. When the type of the value is wrong for all alternatives, or that of an item, the refusal names their types.
 */
function closestOf(refused: readonly Refusal[], value: unknown, place: Place | null): Refusal {
  const ofAnotherType = ({ types, place: at }: Refusal) => types !== undefined && at === place;
  const fitting = refused.filter((each) => !ofAnotherType(each));
  if (fitting.length === 0) return anotherType(refused, value, place);
  const ofTheseItems = fitting.filter((each) => otherItemOf(each, place) === undefined);
  if (ofTheseItems.length === 0) {
    const last = fitting.reduce((most, each) => Math.max(most, otherItemOf(each, place) ?? 0), 0);
    const closest = fitting.filter((each) => otherItemOf(each, place) === last);
    return anotherType(closest, Array.isArray(value) ? value[last] : undefined, { parent: place, step: last });
  }
  const ofThisKind = ofTheseItems.filter(({ constant }) => constant === undefined);
  const closest = (ofThisKind.length > 0 ? ofThisKind : ofTheseItems).reduce((best, each) =>
    depthOf(each.place) > depthOf(best.place) ? each : best,
  );
  if (ofThisKind.length > 0 || ofTheseItems.length === 1) return closest;
  const constants = ofTheseItems.map(({ constant }) => constant);
  return refusal(closest.place, () => `must be one of ${textOf(constants)}.`);
}

/** The refusal of a value whose type is wrong for all alternatives, which refuse it at this place. */
function anotherType(refused: readonly Refusal[], value: unknown, place: Place | null): Refusal {
  const types = [...new Set(refused.flatMap((each) => each.types ?? []))];
  if (types.length === 0) return refusal(place, () => 'fits none of its alternatives.');
  return refusal(place, () => `must be ${typesText(types)}, not ${typeOf(value)}.`, { types });
}

/** The index of the item of a list at this place, if the refusal is that the item has another type. */
function otherItemOf({ types, place: at }: Refusal, place: Place | null): number | undefined {
  const isItem = types !== undefined && at !== null && at.parent === place;
  return isItem && typeof at.step === 'number' ? at.step : undefined;
}

function depthOf(place: Place | null): number {
  let depth = 0;
  for (let at = place; at !== null; at = at.parent) depth += 1;
  return depth;
}

/** The members of one value that some part of the schema has accepted already: `unevaluatedProperties` and `unevaluatedItems` skip them. */
export class Evaluated {
  readonly #members = new Set<string | number>();

  has(member: string | number): boolean {
    return this.#members.has(member);
  }

  add(member: string | number): void {
    this.#members.add(member);
  }

  merge(other: Evaluated): void {
    for (const member of other.#members) this.#members.add(member);
  }

  get size(): number {
    return this.#members.size;
  }
}

/** Steps charged for a number, and powers of ten between both numbers that one further step covers. */
const MULTIPLE_STEPS = 50;
const POWERS_PER_STEP = 4;

/**
 * True when `value` is a multiple of `divisor` in decimal notation: 0.3 is a multiple of 0.1, although their binary fractions are not. Both
 * numbers have at most 17 digits and an exponent of at most three digits, so the integers below stay under 700 digits.
 */
export function isMultiple(value: number, divisor: number, budget: StepBudget): boolean {
  budget.spend(MULTIPLE_STEPS);
  if (!Number.isFinite(value) || !Number.isFinite(divisor) || divisor <= 0) return false;
  const [coefficient, exponent] = decimal(value);
  const [divisorCoefficient, divisorExponent] = decimal(divisor);
  const shift = exponent - divisorExponent;
  budget.spend(Math.abs(shift) / POWERS_PER_STEP);
  return shift >= 0
    ? (coefficient * 10n ** BigInt(shift)) % divisorCoefficient === 0n
    : coefficient % (divisorCoefficient * 10n ** BigInt(-shift)) === 0n;
}

/** The absolute value of a number as an integer coefficient and an exponent of ten. */
function decimal(value: number): readonly [bigint, number] {
  const [digits = '0', exponent = '0'] = String(Math.abs(value)).split('e');
  const point = digits.indexOf('.');
  return [BigInt(digits.replace('.', '')), Number(exponent) - (point < 0 ? 0 : digits.length - point - 1)];
}

/** Steps charged for each comparison of two values, and for each value written. */
const COMPARE_STEPS = 2;
const WRITE_STEPS = 3;
/** Steps charged in addition for the text of a number. */
const NUMBER_STEPS = 6;
/** Steps charged for each item that is looked up among the items before it, and the further ones for a number, which costs little else. */
const LOOKUP_STEPS = 4;
const NUMBER_LOOKUP_STEPS = 16;
/** Characters of the longest text that V8 hashes as a whole. It hashes longer ones by their length alone, so a map compares all of one length. */
const MAX_HASHED_CHARACTERS = 16_000;

/** True when two JSON values are equal; the order of names does not matter. @throws StepsExhausted, TooDeepError */
export function areEqual(one: unknown, other: unknown, budget: StepBudget, depth = 0): boolean {
  budget.spend(COMPARE_STEPS);
  if (depth > MAX_DEPTH) throw new TooDeepError();
  if (typeof one === 'string' && typeof other === 'string') {
    if (one.length !== other.length) return false;
    budget.spendCharacters(one.length);
    return one === other;
  }
  if (one === other) return true;
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return false;
  if (Array.isArray(one) || Array.isArray(other)) {
    if (!Array.isArray(one) || !Array.isArray(other) || one.length !== other.length) return false;
    return one.every((item, index) => areEqual(item, other[index], budget, depth + 1));
  }
  const names = budget.namesOf(one);
  if (names.length !== budget.namesOf(other).length) return false;
  return names.every(
    (name) =>
      Object.hasOwn(other, name) &&
      areEqual((one as Record<string, unknown>)[name], (other as Record<string, unknown>)[name], budget, depth + 1),
  );
}

/**
 * The indexes of two equal items; null when all differ. Takes linear time in the size of the items and their nesting: it writes each once.
 *
 * @throws StepsExhausted, TooDeepError
 */
export function duplicates(items: readonly unknown[], budget: StepBudget): readonly [number, number] | null {
  const indexByKey = new Map<string, number>();
  const numberByPart = new Map<string, number>();
  for (const [index, item] of items.entries()) {
    budget.spend(LOOKUP_STEPS);
    if (typeof item === 'number') budget.spend(NUMBER_LOOKUP_STEPS);
    // V8 hashes numbers without a seed: a client could choose numbers of equal hash. It hashes texts with one. No canonical text begins like this.
    const key =
      typeof item === 'number' ? `n${item === 0 ? 0 : item}` : hashable(canonical(item, budget), numberByPart, budget);
    const firstIndex = indexByKey.get(key);
    if (firstIndex !== undefined) return [firstIndex, index];
    indexByKey.set(key, index);
  }
  return null;
}

/** A text that V8 hashes as a whole, in place of a canonical one: the numbers of its parts when the text is long. */
function hashable(text: string, numberByPart: Map<string, number>, budget: StepBudget): string {
  budget.spendCharacters(text.length);
  if (text.length <= MAX_HASHED_CHARACTERS) return text;
  const numbers: number[] = [];
  for (let start = 0; start < text.length; start += MAX_HASHED_CHARACTERS) {
    const part = text.slice(start, start + MAX_HASHED_CHARACTERS);
    const number = numberByPart.get(part) ?? numberByPart.size;
    numberByPart.set(part, number);
    numbers.push(number);
  }
  // No canonical text begins with this character.
  return `#${numbers.join()}`;
}

/** JSON text that equal values share: names are sorted. */
function canonical(value: unknown, budget: StepBudget, depth = 0): string {
  budget.spend(WRITE_STEPS);
  if (depth > MAX_DEPTH) throw new TooDeepError();
  // JSON text may hold numbers without a finite value, such as 1e999. `JSON.stringify` would write them as null.
  if (typeof value === 'number') {
    budget.spend(NUMBER_STEPS);
    return String(value);
  }
  if (typeof value !== 'object' || value === null) {
    const text = JSON.stringify(value);
    budget.spendCharacters(text.length);
    return text;
  }
  if (Array.isArray(value)) {
    return joined(
      '[',
      value.map((item) => canonical(item, budget, depth + 1)),
      ']',
      budget,
    );
  }
  const names = budget.namesOf(value);
  // Sorting compares each name with about log2 of their number, character by character where names begin alike.
  const characterCount = names.reduce((sum, name) => sum + name.length, 0);
  const comparisonCount = Math.ceil(Math.log2(names.length + 1));
  budget.spend(names.length * comparisonCount);
  budget.spendCharacters(characterCount * comparisonCount);
  const members = names
    .sort()
    .map(
      (name) => `${canonical(name, budget)}:${canonical((value as Record<string, unknown>)[name], budget, depth + 1)}`,
    );
  return joined('{', members, '}', budget);
}

/** Joins the texts of inner values. Each level of nesting writes them again. */
function joined(opening: string, parts: readonly string[], closing: string, budget: StepBudget): string {
  const text = `${opening}${parts.join(',')}${closing}`;
  budget.spendCharacters(text.length);
  return text;
}

/** Longest text that can have a format. V8 backtracks in the expressions below. This limit bounds their time, as measured. */
const MAX_FORMAT_LENGTH = 2048;

/** Steps charged for a check, and further ones for each character. */
const FORMAT_STEPS = 20;
const FORMAT_CHARACTER_STEPS = 4;
/** Steps charged for each `\p{…}` in a text with the format `regex`: V8 takes up to a quarter of a millisecond. */
const PROPERTY_STEPS = 10_000;

/** A label of a host name, with single hyphens. The library's own expression for it takes exponential time. */
const LABEL = '[a-z\\u00a1-\\uffff0-9]+(?:-[a-z\\u00a1-\\uffff0-9]+)*';
const PRIVATE_IPV4 =
  '(?!10(?:\\.\\d{1,3}){3})(?!127(?:\\.\\d{1,3}){3})(?!169\\.254(?:\\.\\d{1,3}){2})(?!192\\.168(?:\\.\\d{1,3}){2})(?!172\\.(?:1[6-9]|2\\d|3[0-1])(?:\\.\\d{1,3}){2})';
const IPV4 =
  '(?:[1-9]\\d?|1\\d\\d|2[01]\\d|22[0-3])(?:\\.(?:1?\\d{1,2}|2[0-4]\\d|25[0-5])){2}(?:\\.(?:[1-9]\\d?|1\\d\\d|2[0-4]\\d|25[0-4]))';
const URL_TEXT = new RegExp(
  `^(?:https?|ftp)://(?:\\S+@)?(?:${PRIVATE_IPV4}${IPV4}|${LABEL}(?:\\.${LABEL})*\\.[a-z\\u00a1-\\uffff]{2,})(?::\\d{2,5})?(?:/\\S*)?$`,
  'iu',
);

const FORMATS: ReadonlyMap<string, (text: string) => boolean> = new Map([
  ...Object.entries(library),
  ['url', (text: string) => URL_TEXT.test(text)],
]);

/** True when a text has a format. Every text passes an unknown format. */
export function hasFormat(text: string, name: string, budget: StepBudget): boolean {
  const matches = FORMATS.get(name);
  if (matches === undefined) return true;
  if (text.length > MAX_FORMAT_LENGTH) return false;
  const propertyCount = name === 'regex' ? (text.match(PROPERTY_ESCAPE)?.length ?? 0) : 0;
  budget.spend(FORMAT_STEPS + FORMAT_CHARACTER_STEPS * text.length + PROPERTY_STEPS * propertyCount);
  return matches(text);
}
