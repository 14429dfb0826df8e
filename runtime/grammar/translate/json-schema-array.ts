import { choice, EMPTY, type Expression, isNever, NEVER, optional, repeat, sequence } from './expression.ts';
import type { Translation } from './json-schema.ts';
import type { Case, ContainsRule } from './json-schema-case.ts';
import { type Bounds, differentValues } from './json-schema-different.ts';
import { Inexpressible, negation, type Part, type Pointer } from './json-schema-object.ts';
import { valuesOf } from './json-schema-values.ts';

const MANY = Number.POSITIVE_INFINITY;
/**
 * Maximum number of places in an array with 'contains'; with more, the grammar leaves 'contains' open. A place is an index together with the number
 * of items before it that match each 'contains'.
 */
const MAX_PLACES = 500;
/** Maximum number of values that are listed for 'uniqueItems'; with more, the grammar leaves it open. */
const MAX_LISTED = 200;

/** A way for an item to match or miss 'contains' rules. */
interface ItemWay {
  /** The parts that the item must fit. */
  readonly parts: readonly Part[];
  /** For each rule, the number of items counted up to and including this one. */
  readonly after: readonly number[];
}

/** An array: the items of the prefix, then any number of other items, within 'minItems' and 'maxItems'. */
export function arrayExpression(translation: Translation, rules: Case, at: Pointer): Expression {
  const { lists = [], contains, unique, maxItems: most = MANY } = rules;
  const declaredLength = Math.max(0, ...lists.map(({ prefix, declares }) => (declares ? prefix.length : 0)));
  const bounds = { least: rules.minItems ?? Math.min(most, declaredLength), most };
  if (bounds.least > most) return NEVER;
  if (unique && most > 1) {
    const different = attempt(() => differentItems(translation, rules, bounds));
    if (different) return different;
    translation.leaveOpen('uniqueItems', at);
  }
  if (contains) {
    const containing = attempt(() => containingItems(translation, rules, bounds));
    if (containing) return containing;
    translation.leaveOpen('contains', at);
  }
  return plainItems(translation, rules, bounds);
}

/** Returns the expression, or undefined when a grammar cannot express it. */
function attempt(make: () => Expression): Expression | undefined {
  try {
    return make();
  } catch (error) {
    if (error instanceof Inexpressible) return undefined;
    throw error;
  }
}

/** The parts for the item at an index. */
function partsAt({ lists = [] }: Case, index: number): readonly Part[] {
  return lists.flatMap(({ prefix, items }) => prefix[index] ?? items ?? []);
}

function prefixLength({ lists = [] }: Case): number {
  return Math.max(0, ...lists.map(({ prefix }) => prefix.length));
}

/** True if items may follow the prefix. Without 'items', any items may follow an empty prefix, or a prefix shorter than 'minItems'. */
function isOpen({ lists = [] }: Case, { least }: Bounds): boolean {
  const declared = lists.filter(({ declares }) => declares);
  if (declared.length === 0 || declared.some(({ items }) => items !== undefined)) return true;
  const longest = Math.max(...declared.map(({ prefix }) => prefix.length));
  return longest === 0 || least > longest;
}

function plainItems(translation: Translation, rules: Case, { least, most }: Bounds): Expression {
  const { json } = translation;
  const length = Math.min(prefixLength(rules), most);
  if (length === 0 && least === 0 && most === MANY && partsAt(rules, 0).length === 0) return json.array;
  const prefix = Array.from({ length }, (_, index) => translation.translate(partsAt(rules, index)));
  const otherItem = isOpen(rules, { least, most })
    ? json.rules.add('item', translation.translate(partsAt(rules, prefixLength(rules))))
    : NEVER;
  const items = prefix.map((item) => sequence([item, json.space]));
  return json.within('[', ']', from(0));

  /** The items from place 'index' on. The first item of the array has no comma before it. */
  function from(index: number): Expression {
    const item = items[index];
    if (item === undefined) return otherItems(index);
    const here = sequence([index === 0 ? item : json.withComma(item), from(index + 1)]);
    return index >= least ? optional(here) : here;
  }

  function otherItems(index: number): Expression {
    const low = Math.max(0, least - index);
    const high = most - index;
    if (high <= 0 || isNever(otherItem)) return low > 0 ? NEVER : EMPTY;
    const item = sequence([otherItem, json.space]);
    if (index > 0) return repeat(json.withComma(item), low, high);
    const all = sequence([item, repeat(json.withComma(item), Math.max(0, low - 1), high - 1)]);
    return low === 0 ? optional(all) : all;
  }
}

/** An array with 'contains'. A place counts, for each rule, the items before it that match the rule, as far as the rule's bounds need. */
function containingItems(translation: Translation, rules: Case, bounds: Bounds): Expression {
  const { json } = translation;
  const { least, most } = bounds;
  const containsRules = rules.contains ?? [];
  const lastIndex = Math.max(
    1,
    prefixLength(rules),
    least,
    most === MANY ? 0 : most,
    ...containsRules.map(({ from }) => from),
  );
  const isOpenEnded = isOpen(rules, bounds);
  const rulesByPlace = new Map<string, Expression>();
  const items = new Map<string, Expression>();
  return json.within(
    '[',
    ']',
    from(
      0,
      containsRules.map(() => 0),
    ),
  );

  function from(index: number, foundCounts: readonly number[]): Expression {
    const key = `${index} ${foundCounts.join()}`;
    const known = rulesByPlace.get(key);
    if (known) return known;
    if (rulesByPlace.size >= MAX_PLACES) throw new Inexpressible('too many places');
    const name = json.rules.unused('items');
    rulesByPlace.set(key, { kind: 'rule', name });
    return json.rules.define(name, itemsAt(index, foundCounts));
  }

  function itemsAt(index: number, foundCounts: readonly number[]): Expression {
    const mayEnd = index >= least && containsRules.every(({ min }, rule) => (foundCounts[rule] ?? 0) >= min);
    const isPast = index >= most || (index >= prefixLength(rules) && !isOpenEnded);
    const options = isPast
      ? []
      : choices(index, foundCounts).map(({ parts, after }) => {
          const item = itemOf(index, parts);
          if (isNever(item)) return NEVER;
          return sequence([index === 0 ? item : json.withComma(item), from(Math.min(lastIndex, index + 1), after)]);
        });
    return choice([...(mayEnd ? [EMPTY] : []), ...options.filter((option) => !isNever(option))]);
  }

  function itemOf(index: number, parts: readonly Part[]): Expression {
    const key = `${Math.min(index, prefixLength(rules))} ${parts.map(({ at: place, negated }) => `${negated}${place}`)}`;
    const known = items.get(key);
    if (known) return known;
    const item = translation.translate([...partsAt(rules, index), ...parts], true);
    const made = isNever(item) ? NEVER : json.rules.add('item', sequence([item, json.space]));
    items.set(key, made);
    return made;
  }

  /** The ways for the next item to match or miss each `contains` rule. */
  function choices(index: number, foundCounts: readonly number[]): ItemWay[] {
    return containsRules.reduce<ItemWay[]>(
      (ways, rule, ruleIndex) => ways.flatMap((way) => waysAfter(way, rule, ruleIndex)),
      [{ parts: [], after: [] }],
    );
    function waysAfter(way: ItemWay, rule: ContainsRule, ruleIndex: number): ItemWay[] {
      const { item, from: begins, min, max } = rule;
      const count = foundCounts[ruleIndex] ?? 0;
      const uncounted = { parts: way.parts, after: [...way.after, count] };
      if (index < begins || (count >= min && max === MANY)) return [uncounted];
      const counted = { parts: [...way.parts, item], after: [...way.after, count + 1] };
      // Without a maximum, an item that is not counted may match the rule, too.
      if (max === MANY) return [uncounted, counted];
      const broken = { ...uncounted, parts: [...way.parts, negation(item)] };
      return count < max ? [counted, broken] : [broken];
    }
  }
}

/** An array whose items are values of a list, each at most once. @throws Inexpressible if the values cannot be listed */
function differentItems(translation: Translation, rules: Case, bounds: Bounds): Expression {
  const { json, cases } = translation;
  if (rules.contains || prefixLength(rules) > 0) throw new Inexpressible('items differ by their places');
  const parts = partsAt(rules, 0);
  const values = parts.length > 0 ? valuesOf(parts, cases) : undefined;
  if (!values || values.length > MAX_LISTED) throw new Inexpressible('the items cannot be listed');
  if (values.length < bounds.least) return NEVER;
  const language = differentValues(json, values, bounds);
  json.rules.reserve(language.size);
  return { kind: 'language', language };
}
