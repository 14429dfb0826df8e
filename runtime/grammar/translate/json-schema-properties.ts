import {
  characters,
  codePoint,
  intersection as commonCharacters,
  complement as otherCharacters,
  type Range,
} from './characters.ts';
import {
  choice,
  type Expression,
  isNever,
  type Member,
  type Members,
  membersOf,
  NEVER,
  oneOf,
  sequence,
  text,
} from './expression.ts';
import { ANY_REST, escaped, PLAIN } from './json.ts';
import type { Translation } from './json-schema.ts';
import type { Case } from './json-schema-case.ts';
import { Inexpressible, type Part, type Pointer } from './json-schema-object.ts';
import { automatonOfRules, stringFrom } from './json-schema-string.ts';
import { fits, fitsCase, partsOf } from './json-schema-values.ts';
import { automatonOf, complement, expressionOf, intersection, isEmpty } from './regular.ts';

const MANY = Number.POSITIVE_INFINITY;
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
