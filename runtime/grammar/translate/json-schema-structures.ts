import {
  characters,
  codePoint,
  intersection as commonCharacters,
  complement as otherCharacters,
  type Range,
} from './characters.ts';
import {
  choice,
  EMPTY,
  type Expression,
  isNever,
  type Language,
  type Member,
  type Members,
  maxStates,
  membersOf,
  NEVER,
  oneOf,
  optional,
  repeat,
  sequence,
  text,
} from './expression.ts';
import { ANY_REST, escaped, type JsonRules, literal, PLAIN } from './json.ts';
import type { Case, ContainsRule } from './json-schema-case.ts';
import type { Cases } from './json-schema-cases.ts';
import { Inexpressible, negation, type Part, type Pointer } from './json-schema-object.ts';
import { automatonOfRules, stringFrom } from './json-schema-string.ts';
import { fits, fitsCase, partsOf, valuesOf } from './json-schema-values.ts';
import { automatonOf, complement, expressionOf, intersection, isEmpty } from './regular.ts';

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

/**
 * Maximum patterns for names; with more, the grammar leaves them open. The grammar has an expression for each set of
 * patterns that a name may match.
 */
const MAX_PATTERNS = 5;
/** Maximum choices of the properties that make an object differ from negated closed ones. */
const MAX_WAYS = 64;

/** An object: declared and undeclared properties, within 'minProperties' and 'maxProperties'. */
export function objectExpression(translation: Translation, rules: Case, at: Pointer): Expression {
  const { json } = translation;
  const { objects = [], names = [], outside = [], required } = rules;
  const { minProperties: least = 0, maxProperties: most = MANY } = rules;
  if (objects.length + names.length + outside.length === 0 && !required && least === 0 && most === MANY)
    return json.object;
  const properties = declaredProperties(translation, rules);
  const other = undeclaredProperty(translation, rules, at);
  // The names of undeclared properties may repeat, and the grammar would count a repeated name twice.
  if (!isNever(other) && least > 1) translation.leaveOpen('minProperties', at);
  const { separator } = json;
  const members = {
    named: properties,
    isOrdered: translation.isOrdered,
    other,
    needsOther: false,
    least,
    most,
    separator,
  };
  const options = waysOutside(members, outside, namesOf(rules))
    .map(membersOf)
    .filter((option) => !isNever(option));
  if (options.length === 0) return NEVER;
  return json.within('{', '}', choice(options.map((option) => json.rules.add('members', option))));
}

/** The members with a property outside of each set: for each set, either one of the named members is required, or an undeclared one. */
function waysOutside(
  members: Members,
  outside: readonly ReadonlySet<string>[],
  declaredNames: readonly string[],
): readonly Members[] {
  return outside.reduce<readonly Members[]>(
    (ways, names) => {
      const found = ways.flatMap((way): readonly Members[] => {
        const isOutside = (index: number): boolean => !names.has(declaredNames[index] ?? '');
        if (way.named.some(({ isRequired }, index) => isRequired && isOutside(index))) return [way];
        const withNamed = way.named.flatMap((member, index) =>
          isOutside(index) && !isNever(member.value)
            ? [{ ...way, named: way.named.with(index, { ...member, isRequired: true }) }]
            : [],
        );
        // Undeclared names are outside of a set only if all of its names are declared.
        const isOtherOutside = [...names].every((name) => declaredNames.includes(name));
        if (!isOtherOutside && way.other && !isNever(way.other)) throw new Inexpressible('names that are not declared');
        return [...withNamed, ...(isOtherOutside ? [{ ...way, needsOther: true }] : [])];
      });
      if (found.length > MAX_WAYS) throw new Inexpressible('too many ways');
      return found;
    },
    [members],
  );
}

/** Names from 'required' and from rules that declare properties. */
function namesOf({ objects = [], required = new Set() }: Case): readonly string[] {
  return [...new Set([...objects.flatMap(({ properties }) => [...properties.keys()]), ...required])];
}

function declaredProperties(translation: Translation, rules: Case): Member[] {
  const { json, cases } = translation;
  const { names = [], required } = rules;
  return namesOf(rules).map((name) => {
    const parts = partsOf(rules, name);
    const isAllowed = names.length === 0 || fits(name, names, cases);
    const value = isAllowed ? translation.translate(parts) : NEVER;
    const isRequired = required?.has(name) ?? false;
    const key = `${JSON.stringify(name)}:`;
    if (isNever(value)) return { key, value: NEVER, isRequired };
    return { key, value: json.rules.add('value', sequence([json.space, value, json.space])), isRequired };
  });
}

/** An undeclared property; `NEVER` where none is allowed. */
function undeclaredProperty(translation: Translation, rules: Case, at: Pointer): Expression {
  const { json } = translation;
  const { objects = [], names = [] } = rules;
  const patterns = [...new Set(objects.flatMap((rule) => rule.patterns.map(([pattern]) => pattern)))];
  const declaredNames = namesOf(rules);
  const otherKey = (): Expression =>
    declaredNames.length === 0 ? json.string : json.rules.add('key', sequence([text('"'), except(declaredNames)]));
  if (patterns.length === 0 && names.length === 0) {
    const value = translation.translate(objects.flatMap(({ additional }) => additional ?? []));
    if (isNever(value)) return NEVER;
    return json.rules.add('other', json.pair(otherKey(), value));
  }
  try {
    return json.rules.add('other', patternedProperty(translation, rules, patterns, declaredNames));
  } catch (error) {
    if (!(error instanceof Inexpressible)) throw error;
    translation.leaveOpen(patterns.length > 0 ? 'patternProperties' : 'propertyNames', at);
    // A declared name must not be read in two ways: the ways would multiply with each property.
    return json.rules.add('other', json.pair(otherKey(), json.value));
  }
}

/** An undeclared property: one option for each set of patterns that its name may match. */
function patternedProperty(
  translation: Translation,
  rules: Case,
  patterns: readonly string[],
  declaredNames: readonly string[],
): Expression {
  const { json, cases } = translation;
  const { objects = [], names = [] } = rules;
  if (patterns.length > MAX_PATTERNS) throw new Inexpressible('too many patterns');
  const nameAutomata = names.map((name) => {
    const stringCases = cases.of([name]).filter(({ types }) => types?.has('string') ?? true);
    return stringCases.map((each) => {
      const texts = each.listed?.filter((value) => typeof value === 'string');
      const listed = texts?.filter((value) => fitsCase(value, each, cases));
      return listed ? automatonOf(choice(listed.map(text))) : automatonOfRules(each);
    });
  });
  const undeclaredNames =
    declaredNames.length === 0 ? undefined : complement(automatonOf(choice(declaredNames.map(text))));
  const options: Expression[] = [];
  for (let patternBits = 0; patternBits < 2 ** patterns.length; patternBits += 1) {
    const matched = patterns.filter((_, index) => (patternBits >> index) & 1);
    const parts = objects.flatMap((rule): readonly Part[] => {
      const matchedParts = rule.patterns.filter(([pattern]) => matched.includes(pattern)).map(([, value]) => value);
      if (matchedParts.length > 0) return matchedParts;
      return rule.additional ? [rule.additional] : [];
    });
    const value = translation.translate(parts);
    if (isNever(value)) continue;
    const matchingNames = automatonOfRules({
      patterns: patterns.map((pattern) => ({ pattern, mustHold: matched.includes(pattern) })),
    });
    let keys = [undeclaredNames ? intersection(undeclaredNames, matchingNames) : matchingNames];
    for (const each of nameAutomata) keys = keys.flatMap((key) => each.map((other) => intersection(key, other)));
    const possibleKeys = keys.filter((each) => !isEmpty(each));
    const key = stringFrom((own) =>
      choice(possibleKeys.map((each) => expressionOf(each, own, (set) => escaped(oneOf(set))))),
    );
    if (key.kind === 'language') json.rules.reserve(key.language.size - 1);
    if (!isNever(key)) options.push(json.pair(key, value));
  }
  return choice(options);
}

/**
 * The rest of a string that is none of 'names', with its closing quote. The characters that the string has in common with the beginning of a name,
 * and the first character that differs, must be plain: an escape could spell the name in another way. After these, any characters may follow.
 */
function except(names: readonly string[]): Expression {
  const byFirst = Map.groupBy(
    names.filter((name) => name !== ''),
    (name) => codePoint(name),
  );
  const firsts = characters(...[...byFirst.keys()].map((first): Range => [first, first]));
  return choice([
    ...(names.includes('') ? [] : [text('"')]),
    sequence([oneOf(commonCharacters(PLAIN, otherCharacters(firsts))), ANY_REST]),
    ...[...byFirst].map(([first, group]) =>
      sequence([
        oneOf(commonCharacters(PLAIN, [[first, first]])),
        except(group.map((name) => name.slice(first > 0xffff ? 2 : 1))),
      ]),
    ),
  ]);
}

/** Up to this many values come in any order; more come in the order of their list. */
const MAX_SHUFFLED = 7;

/** Fewest and most items of an array; `most` may be Infinity. */
interface Bounds {
  readonly least: number;
  readonly most: number;
}

/**
 * The language of arrays that hold some of the values, each at most once. It has a rule for each place of an array (see
 * `inAnyOrder` and `inOrder`). A rule is made when it is read.
 *
 * @param values at least as many as the fewest items
 */
function differentValues(json: JsonRules, values: readonly unknown[], bounds: Bounds): Language {
  const items = values.map((value) => sequence([literal(value), json.space]));
  const rules = items.length <= MAX_SHUFFLED ? inAnyOrder(json, items, bounds) : inOrder(json, items, bounds);
  const root = json.within('[', ']', { kind: 'rule', name: '0.0' });
  const get = (name: string): Expression | undefined => {
    if (name === 'root') return root;
    const [first, second] = name.split('.').map(Number);
    return second === undefined ? json.shared.get(name) : rules.rule(first ?? 0, second);
  };
  const states = rules.count * maxStates(items.map((item) => json.withComma(item)));
  return { root: 'root', rules: { get }, isString: false, size: rules.count, states };
}

interface PlaceRules {
  /** Returns the rule for the text that follows a place. */
  rule(first: number, count: number): Expression;
  /** Number of places. */
  readonly count: number;
}

/** Rules by place. A place's first number has a bit for each item before it; its second number counts these items. */
function inAnyOrder(json: JsonRules, items: readonly Expression[], { least, most }: Bounds): PlaceRules {
  const rule = (usedItemBits: number, count: number): Expression => {
    const options = items.flatMap((item, index) => {
      if (count >= most || (usedItemBits >> index) & 1) return [];
      const nextRule: Expression = { kind: 'rule', name: `${usedItemBits | (1 << index)}.${count + 1}` };
      return [sequence([count === 0 ? item : json.withComma(item), nextRule])];
    });
    return choice([...(count >= least ? [EMPTY] : []), ...options]);
  };
  return { rule, count: 2 ** items.length };
}

/** Rules by place. A place's first number is the index of the next value; its second number counts the items so far, as far as the bounds need. */
function inOrder(json: JsonRules, items: readonly Expression[], { least, most }: Bounds): PlaceRules {
  const highest = most === MANY ? Math.max(least, 1) : Math.min(most, items.length);
  const canReachLeast = (index: number, count: number): boolean => count + items.length - index >= least;
  const ruleAt = (index: number, count: number): Expression => ({
    kind: 'rule',
    name: `${index}.${Math.min(count, highest)}`,
  });
  const rule = (index: number, count: number): Expression => {
    const item = items[index];
    if (item === undefined) return EMPTY;
    const mayTakeItem = count < most && canReachLeast(index + 1, count + 1);
    return choice([
      ...(mayTakeItem ? [sequence([count === 0 ? item : json.withComma(item), ruleAt(index + 1, count + 1)])] : []),
      ...(canReachLeast(index + 1, count) ? [ruleAt(index + 1, count)] : []),
    ]);
  };
  return { rule, count: (items.length + 1) * (highest + 1) };
}

/** Context for translating the parts of a schema. */
export interface Translation {
  readonly json: JsonRules;
  readonly cases: Cases;
  /** True if declared properties come in their order, before others. */
  readonly isOrdered: boolean;
  /**
   * The expression for the values that fit all parts.
   *
   * @param strict true to throw Inexpressible instead of leaving negated parts to `check`
   */
  translate(parts: readonly Part[], strict?: boolean): Expression;
  /** Notes that the grammar does not enforce a keyword, so that `check` must. */
  leaveOpen(keyword: string, at: Pointer): void;
}
