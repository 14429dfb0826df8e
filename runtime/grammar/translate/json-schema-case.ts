import { isDeepStrictEqual } from 'node:util';
import type { Bound } from './json.ts';
import { distinct, isObject, own, type Part } from './json-schema-object.ts';

export const TYPES = ['object', 'array', 'string', 'number', 'boolean', 'null'] as const;
export type Type = (typeof TYPES)[number];

/** Rules for the properties of an object from one schema. */
export interface ObjectRule {
  readonly properties: ReadonlyMap<string, Part>;
  readonly patterns: readonly (readonly [pattern: string, value: Part])[];
  /** Schema of properties that `properties` and `patterns` do not name; undefined if the schema does not say. */
  readonly additional: Part | undefined;
  /** True if the schema declares the object's properties. Grammars then exclude other properties, unless `additional` is written. */
  readonly declares: boolean;
}

/** Rules for the items of an array from one schema. */
export interface ListRule {
  readonly prefix: readonly Part[];
  /** Schema of the items after the prefix. */
  readonly items: Part | undefined;
  /** True if arrays must have all items of the prefix, unless `minItems` says less. */
  readonly declares: boolean;
}

/** Requires that `min` to `max` of the items from index `from` on match `item`. */
export interface ContainsRule {
  readonly item: Part;
  readonly from: number;
  readonly min: number;
  readonly max: number;
}

/** A conjunction of rules without alternatives. A value must keep the rules of its own type. */
export interface Case {
  /** The allowed types; undefined if the schema does not say. */
  readonly types?: ReadonlySet<Type> | undefined;
  /** True if numbers must be integers. */
  readonly integers?: boolean | undefined;
  /** The only allowed values. */
  readonly listed?: readonly unknown[] | undefined;
  /** Excluded numbers and strings. */
  readonly unlisted?: readonly (number | string)[] | undefined;
  readonly low?: Bound | undefined;
  readonly high?: Bound | undefined;
  readonly multiples?: readonly { readonly of: number; readonly mustHold: boolean }[] | undefined;
  readonly minLength?: number | undefined;
  readonly maxLength?: number | undefined;
  readonly patterns?: readonly { readonly pattern: string; readonly mustHold: boolean }[] | undefined;
  readonly formats?: readonly string[] | undefined;
  readonly minItems?: number | undefined;
  readonly maxItems?: number | undefined;
  readonly unique?: boolean | undefined;
  readonly lists?: readonly ListRule[] | undefined;
  readonly contains?: readonly ContainsRule[] | undefined;
  readonly required?: ReadonlySet<string> | undefined;
  readonly minProperties?: number | undefined;
  readonly maxProperties?: number | undefined;
  readonly objects?: readonly ObjectRule[] | undefined;
  /** Sets of names: the object must have a property outside of each. */
  readonly outside?: readonly ReadonlySet<string>[] | undefined;
  /** Schemas of the names of all properties. */
  readonly names?: readonly Part[] | undefined;
}

const KEYS_OF: Readonly<Partial<Record<Type, readonly (keyof Case)[]>>> = {
  object: ['required', 'minProperties', 'maxProperties', 'objects', 'outside', 'names'],
  array: ['minItems', 'maxItems', 'unique', 'lists', 'contains'],
  string: ['minLength', 'maxLength', 'patterns', 'formats'],
  number: ['low', 'high', 'multiples'],
};

/** The case for the values that fit both cases, or null if these contradict each other. */
export function conjunction(a: Case, b: Case): Case | null {
  const joined: Record<string, unknown> = { ...a };
  for (const [key, theirs] of Object.entries(b)) {
    const mine = joined[key];
    if (theirs === undefined) continue;
    joined[key] = mine === undefined ? theirs : JOIN[key as keyof Case](mine as never, theirs as never);
  }
  return isContradiction(joined) ? null : joined;
}

const larger = (a: number, b: number): number => Math.max(a, b);
const smaller = (a: number, b: number): number => Math.min(a, b);
const either = (a: boolean, b: boolean): boolean => a || b;
const together = <T>(a: readonly T[], b: readonly T[]): readonly T[] => [...a, ...b];

const JOIN: { readonly [K in keyof Case]-?: (a: NonNullable<Case[K]>, b: NonNullable<Case[K]>) => Case[K] } = {
  types: (a, b) => a.intersection(b),
  integers: either,
  listed: (a, b) => a.filter((value) => b.some((other) => isDeepStrictEqual(value, other))),
  unlisted: together,
  low: (a, b) => (b.value > a.value || (b.value === a.value && b.exclusive) ? b : a),
  high: (a, b) => (b.value < a.value || (b.value === a.value && b.exclusive) ? b : a),
  multiples: together,
  minLength: larger,
  maxLength: smaller,
  patterns: together,
  formats: together,
  minItems: larger,
  maxItems: smaller,
  unique: either,
  lists: together,
  contains: together,
  required: (a, b) => a.union(b),
  minProperties: larger,
  maxProperties: smaller,
  objects: together,
  outside: together,
  names: (a, b) => distinct([...a, ...b]),
};

/**
 * The types of values that the grammar makes. Without 'type', these are the types that the other keywords limit;
 * undefined without such keywords.
 */
export function typesOf(rules: Case): ReadonlySet<Type> | undefined {
  if (rules.types) return rules.types;
  const found = TYPES.filter((type) => KEYS_OF[type]?.some((key) => rules[key] !== undefined));
  return found.length > 0 ? new Set(found) : undefined;
}

export function typeOf(value: unknown): Type {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  const type = typeof value;
  return type === 'object' || type === 'string' || type === 'number' || type === 'boolean' ? type : 'null';
}

/** True for a case that certainly has no value. This quick test does not find all such cases. */
export function isContradiction({
  types,
  listed,
  unlisted,
  required,
  objects,
  low,
  high,
  minLength,
  maxLength,
}: Case): boolean {
  if (types?.size === 0) return true;
  if (listed) {
    const fittingValues = listed.filter(
      (value) => (types?.has(typeOf(value)) ?? true) && !unlisted?.some((other) => value === other),
    );
    return fittingValues.length === 0;
  }
  if (types?.size !== 1) return false;
  if (types.has('number')) return low !== undefined && high !== undefined && low.value > high.value;
  if (types.has('string')) return minLength !== undefined && maxLength !== undefined && minLength > maxLength;
  if (!types.has('object') || !required || !objects) return false;
  return [...required].some((name) => isImpossible(objects.flatMap((rule) => certainPart(rule, name) ?? [])));
}

/** The part that a property surely must fit, if the rule has one. Patterns are not read. */
function certainPart({ properties, patterns, additional }: ObjectRule, name: string): Part | undefined {
  return properties.get(name) ?? (patterns.length === 0 ? additional : undefined);
}

/** True if these parts surely leave no value. Looks only at constants and boolean schemas. */
function isImpossible(parts: readonly Part[]): boolean {
  let possibleValues: readonly unknown[] | undefined;
  for (const { schema, negated = false } of parts) {
    // No value fits the schema `false`, or the negation of `true`.
    if (schema === negated) return true;
    const values = isObject(schema) && !negated ? constants(schema) : undefined;
    if (values)
      possibleValues = possibleValues
        ? possibleValues.filter((value) => values.some((other) => isDeepStrictEqual(value, other)))
        : values;
  }
  for (const { schema, negated = false } of parts) {
    const values = isObject(schema) && negated && Object.keys(schema).length === 1 ? constants(schema) : undefined;
    if (values)
      possibleValues = possibleValues?.filter((value) => !values.some((other) => isDeepStrictEqual(value, other)));
  }
  return possibleValues?.length === 0;
}

function constants(schema: Readonly<Record<string, unknown>>): readonly unknown[] | undefined {
  const one = own(schema, 'const');
  if (one !== undefined) return [one];
  const list = own(schema, 'enum');
  return Array.isArray(list) ? list : undefined;
}
