import { isDeepStrictEqual } from 'node:util';
import { type Case, typeOf } from './json-schema-case.ts';
import type { Cases } from './json-schema-cases.ts';
import { isMultiple } from './json-schema-number.ts';
import { isObject, type Part } from './json-schema-object.ts';
import { fitsText } from './json-schema-string.ts';

/**
 * True if a value fits all parts in the sense of JSON Schema. A value with undeclared properties, for example, fits, although grammars
 * exclude it.
 *
 * @throws Inexpressible if the parts take too many cases, or contain a negation that no grammar can express
 */
export function fits(value: unknown, parts: readonly Part[], cases: Cases): boolean {
  return cases.of(parts).some((rules) => fitsCase(value, rules, cases));
}

/** True if a value fits one case: a conjunction of rules without alternatives. */
export function fitsCase(value: unknown, rules: Case, cases: Cases): boolean {
  const { types, listed, unlisted } = rules;
  if (types && !types.has(typeOf(value))) return false;
  if (listed && !listed.some((each) => isDeepStrictEqual(each, value))) return false;
  if (unlisted?.some((each) => each === value)) return false;
  if (typeof value === 'number') return fitsNumber(value, rules);
  if (typeof value === 'string') return fitsText(value, rules);
  if (Array.isArray(value)) return fitsArray(value, rules, cases);
  return !isObject(value) || fitsObject(value, rules, cases);
}

function fitsNumber(value: number, { integers, low, high, multiples = [] }: Case): boolean {
  if (integers && !Number.isInteger(value)) return false;
  if (low && (low.exclusive ? value <= low.value : value < low.value)) return false;
  if (high && (high.exclusive ? value >= high.value : value > high.value)) return false;
  return multiples.every(({ of, mustHold }) => isMultiple(value, of) === mustHold);
}

function fitsArray(value: readonly unknown[], rules: Case, cases: Cases): boolean {
  const { minItems = 0, maxItems = Number.POSITIVE_INFINITY, unique, lists = [], contains = [] } = rules;
  if (value.length < minItems || value.length > maxItems) return false;
  const isTwice = (item: unknown, index: number): boolean =>
    value.slice(index + 1).some((other) => isDeepStrictEqual(item, other));
  if (unique && value.some(isTwice)) return false;
  for (const { prefix, items } of lists) {
    const partsAt = (index: number): readonly Part[] => {
      const itemPart = prefix[index] ?? items;
      return itemPart ? [itemPart] : [];
    };
    if (!value.every((item, index) => fits(item, partsAt(index), cases))) return false;
  }
  return contains.every(({ item, from, min, max }) => {
    const found = value.slice(from).filter((each) => fits(each, [item], cases)).length;
    return found >= min && found <= max;
  });
}

function fitsObject(value: Readonly<Record<string, unknown>>, rules: Case, cases: Cases): boolean {
  const { required, minProperties = 0, maxProperties = Number.POSITIVE_INFINITY, names = [], outside = [] } = rules;
  const entries = Object.entries(value);
  if (entries.length < minProperties || entries.length > maxProperties) return false;
  if (required && ![...required].every((name) => Object.hasOwn(value, name))) return false;
  if (!outside.every((inside) => entries.some(([name]) => !inside.has(name)))) return false;
  return entries.every(([name, each]) => fits(name, names, cases) && fits(each, partsOf(rules, name), cases));
}

/** The parts that the value of a property must fit. */
export function partsOf({ objects = [] }: Case, name: string): readonly Part[] {
  return objects.flatMap(({ properties, patterns, additional }) => {
    const declared = properties.get(name);
    const matched = patterns.filter(([pattern]) => fitsText(name, { patterns: [{ pattern, mustHold: true }] }));
    const declaredParts = [...(declared ? [declared] : []), ...matched.map(([, value]) => value)];
    if (declaredParts.length > 0) return declaredParts;
    return additional ? [additional] : [];
  });
}

/** All values that fit all parts; undefined if the values cannot be listed. */
export function valuesOf(parts: readonly Part[], cases: Cases): readonly unknown[] | undefined {
  const lists = cases.of(parts).map((rules) => listedValues(rules)?.filter((value) => fitsCase(value, rules, cases)));
  if (lists.some((list) => list === undefined)) return undefined;
  return lists
    .flatMap((list) => list ?? [])
    .filter((value, index, all) => all.findIndex((other) => isDeepStrictEqual(value, other)) === index);
}

function listedValues({ types, listed }: Case): readonly unknown[] | undefined {
  if (listed) return listed;
  if (!types || [...types].some((type) => type !== 'boolean' && type !== 'null')) return undefined;
  return [...(types.has('boolean') ? [false, true] : []), ...(types.has('null') ? [null] : [])];
}
