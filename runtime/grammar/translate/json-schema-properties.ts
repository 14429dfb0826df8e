import { charactersOf, intersection as commonCharacters, complement as otherCharacters } from './characters.ts';
import {
  choice,
  EMPTY,
  type Expression,
  isNever,
  NEVER,
  oneOf,
  optional,
  repeat,
  sequence,
  text,
} from './expression.ts';
import { ANY_REST, escaped, literal, PLAIN } from './json.ts';
import type { Translation } from './json-schema.ts';
import type { Case } from './json-schema-case.ts';
import { Inexpressible, type Part, type Pointer } from './json-schema-object.ts';
import { language, stringFrom } from './json-schema-string.ts';
import { fits, fitsCase, partsOf } from './json-schema-values.ts';
import { automatonOf, complement, expressionOf, intersection, isEmpty } from './regular.ts';

const MANY = Number.POSITIVE_INFINITY;
/** Maximum patterns for names: each set of patterns that a name may match is a case of its own. */
const MAX_PATTERNS = 5;

interface Property {
  /** '"name": value' with the space after it. */
  readonly pair: Expression;
  readonly required: boolean;
}

/** An object: declared properties in their order, then others where they are allowed, within 'minProperties' and 'maxProperties'. */
export function objectExpression(translation: Translation, rules: Case, at: Pointer): Expression {
  const { json } = translation;
  const { objects = [], names = [], required, minProperties: least = 0, maxProperties: most = MANY } = rules;
  if (objects.length === 0 && names.length === 0 && !required && least === 0 && most === MANY) return json.object;
  const isOpen = objects.some(({ additional }) => additional) || !objects.some(({ declares }) => declares);
  const properties = declared(translation, rules, isOpen);
  const other = others(translation, rules, isOpen, at);
  // Names of undeclared properties may repeat, so only the first surely counts.
  if (!isNever(other) && least > 1) translation.leaveOpen('minProperties', at);
  const known = new Map<string, Expression>();
  return json.within('{', '}', from(0, 0));

  /** Properties from 'index' on, after 'written' properties. Counts only as far as the limits need. */
  function from(index: number, written: number): Expression {
    const count = Math.min(written, most === MANY ? Math.max(least, 1) : written);
    const key = `${index} ${count}`;
    const made = known.get(key) ?? json.rules.add('members', members(index, count));
    known.set(key, made);
    return made;
  }

  function members(index: number, written: number): Expression {
    const property = properties[index];
    if (!property) return additional(written);
    const pair = written === 0 ? property.pair : json.next(property.pair);
    const here = written < most && !isNever(pair) ? sequence([pair, from(index + 1, written + 1)]) : NEVER;
    return property.required ? here : choice([here, from(index + 1, written)]);
  }

  function additional(written: number): Expression {
    const low = Math.max(0, least - written);
    const high = most - written;
    if (high <= 0 || isNever(other)) return low > 0 ? NEVER : EMPTY;
    if (written > 0) return repeat(json.next(other), low, high);
    const all = sequence([other, repeat(json.next(other), Math.max(0, low - 1), high - 1)]);
    return low === 0 ? optional(all) : all;
  }
}

/** Names from 'required' and from the rules that declare properties; if `isOpen`, also from the rules that only forbid. */
function namesOf({ objects = [], required = new Set() }: Case, isOpen: boolean): readonly string[] {
  const declaring = objects.filter(({ declares }) => declares || isOpen);
  return [...new Set([...declaring.flatMap(({ properties }) => [...properties.keys()]), ...required])];
}

function declared(translation: Translation, rules: Case, isOpen: boolean): Property[] {
  const { json, cases } = translation;
  const { names = [], required } = rules;
  return namesOf(rules, isOpen).map((name) => {
    const parts = partsOf(rules, name);
    const allowed = names.length === 0 || fits(name, names, cases);
    const value = allowed ? translation.translate(parts) : NEVER;
    const isRequired = required?.has(name) ?? false;
    if (isNever(value)) return { pair: NEVER, required: isRequired };
    return { pair: json.rules.add('pair', json.pair(literal(name), value)), required: isRequired };
  });
}

/** An undeclared property; `NEVER` where none is allowed. */
function others(translation: Translation, rules: Case, isOpen: boolean, at: Pointer): Expression {
  const { json } = translation;
  const { objects = [], names = [] } = rules;
  const patterns = [...new Set(objects.flatMap((rule) => rule.patterns.map(([pattern]) => pattern)))];
  if (!isOpen && patterns.length === 0) return NEVER;
  const known = namesOf(rules, true);
  if (patterns.length === 0 && names.length === 0) {
    const value = translation.translate(objects.flatMap(({ additional }) => additional ?? []));
    if (isNever(value)) return NEVER;
    const key = known.length === 0 ? json.string : json.rules.add('key', sequence([text('"'), except(known)]));
    return json.rules.add('other', json.pair(key, value));
  }
  try {
    return json.rules.add('other', patterned(translation, rules, patterns, known, isOpen));
  } catch (error) {
    if (!(error instanceof Inexpressible)) throw error;
    translation.leaveOpen(patterns.length > 0 ? 'patternProperties' : 'propertyNames', at);
    return json.rules.add('other', json.pair(json.string, json.value));
  }
}

/** Undeclared properties by the set of patterns that their names match. */
function patterned(
  translation: Translation,
  rules: Case,
  patterns: readonly string[],
  known: readonly string[],
  isOpen: boolean,
): Expression {
  const { json, cases } = translation;
  const { objects = [], names = [] } = rules;
  if (patterns.length > MAX_PATTERNS) throw new Inexpressible('too many patterns');
  const fitting = names.map((name) => {
    const all = cases.of([name]).filter(({ types }) => types?.has('string') ?? true);
    return all.map((each) => {
      const texts = each.listed?.filter((value) => typeof value === 'string');
      const listed = texts?.filter((value) => fitsCase(value, each, cases));
      return listed ? automatonOf(choice(listed.map(text))) : language(each);
    });
  });
  const unknown = known.length === 0 ? undefined : complement(automatonOf(choice(known.map(text))));
  const options: Expression[] = [];
  for (let chosen = 0; chosen < 2 ** patterns.length; chosen += 1) {
    const matched = patterns.filter((_, index) => (chosen >> index) & 1);
    if (matched.length === 0 && !isOpen) continue;
    const parts = objects.flatMap((rule): readonly Part[] => {
      const own = rule.patterns.filter(([pattern]) => matched.includes(pattern)).map(([, value]) => value);
      return own.length > 0 ? own : rule.additional ? [rule.additional] : [];
    });
    const value = translation.translate(parts);
    if (isNever(value)) continue;
    const rest = language({ patterns: patterns.map((pattern) => ({ pattern, kept: matched.includes(pattern) })) });
    let keys = [unknown ? intersection(unknown, rest) : rest];
    for (const each of fitting) keys = keys.flatMap((key) => each.map((other) => intersection(key, other)));
    const kept = keys.filter((each) => !isEmpty(each));
    const key = stringFrom((own) => choice(kept.map((each) => expressionOf(each, own, (set) => escaped(oneOf(set))))));
    if (key.kind === 'language') json.rules.reserve(key.language.size - 1);
    if (!isNever(key)) options.push(json.pair(key, value));
  }
  return choice(options);
}

/**
 * The rest of a string that is none of 'names', with its closing quote. Characters that the string has in common with the beginning of a name, and
 * the first one that differs, must be plain: an escape could spell the name in another way. Any characters may follow.
 */
function except(names: readonly string[]): Expression {
  const byFirst = Map.groupBy(
    names.filter((name) => name !== ''),
    (name) => [...name][0] ?? '',
  );
  const otherwise = commonCharacters(PLAIN, otherCharacters(charactersOf([...byFirst.keys()].join(''))));
  return choice([
    ...(names.includes('') ? [] : [text('"')]),
    sequence([oneOf(otherwise), ANY_REST]),
    ...[...byFirst].map(([first, group]) =>
      sequence([
        oneOf(commonCharacters(PLAIN, charactersOf(first))),
        except(group.map((name) => name.slice(first.length))),
      ]),
    ),
  ]);
}
