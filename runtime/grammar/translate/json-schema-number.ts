import { DIGITS } from './characters.ts';
import {
  choice,
  EMPTY,
  type Expression,
  isNever,
  NEVER,
  oneOf,
  optional,
  RuleSet,
  repeat,
  sequence,
  text,
} from './expression.ts';
import { type JsonRules, languageOf } from './json.ts';
import { decimalPlacesOf, multiplesOf } from './json-multiples.ts';
import { decimals, integers } from './json-number.ts';
import type { Case } from './json-schema-case.ts';
import { Inexpressible } from './json-schema-object.ts';
import { BoundedCache } from './known.ts';
import { automatonOf, complement, expressionOf, intersection } from './regular.ts';

/** Decimal digits that a double surely distinguishes. */
const MAX_DIGITS = 15;
/** Maximum digits after the point, unless a `multipleOf` needs more. */
const MIN_PLACES = 6;
const UNLIMITED = Number.POSITIVE_INFINITY;
/** Maximum states of the automata of remembered numbers: about 30 MB. */
const MAX_KNOWN = 100_000;
const numbers = new BoundedCache<Expression>(MAX_KNOWN, (made) =>
  made.kind === 'language' ? made.language.states : 1,
);

/** The numbers that a case of a schema allows. @throws Inexpressible when its multiples or excluded numbers cannot be expressed */
export function numberExpression(
  json: JsonRules,
  { integers: isInteger, low, high, multiples = [], unlisted }: Case,
): Expression {
  const excludedNumbers = (unlisted ?? []).filter((value) => typeof value === 'number');
  if (multiples.length === 0 && excludedNumbers.length === 0) {
    if (isInteger) return integers(low, high);
    return low || high ? decimals(low, high) : json.number;
  }
  const key = JSON.stringify({ whole: isInteger, low, high, multiples, others: excludedNumbers });
  const made = numbers.getOrMake(key, () => {
    const bounded = automatonOf(isInteger ? integers(low, high) : decimals(low, high));
    const places = isInteger ? 0 : Math.max(MIN_PLACES, ...multiples.map(({ of }) => decimalPlacesOf(of)));
    const automaton = [
      automatonOf(shortNumbers(places)),
      ...multiples.map(({ of, mustHold }) => (mustHold ? multiplesOf(of) : complement(multiplesOf(of)))),
      ...(excludedNumbers.length > 0 ? [complement(automatonOf(choice(excludedNumbers.map(spellings))))] : []),
    ].reduce(intersection, bounded);
    const ownRules = new RuleSet(UNLIMITED, () => new Error('this set has no limit'));
    const number = expressionOf(automaton, ownRules);
    return isNever(number) ? NEVER : { kind: 'language', language: languageOf(ownRules.grammar(number).rules, false) };
  });
  // The root rule does not count: see `stringExpression`.
  if (made.kind === 'language') json.rules.reserve(made.language.size - 1);
  return made;
}

/** Numbers of at most 15 digits: up to `places` of them after the point, and the others before it. */
function shortNumbers(places: number): Expression {
  if (places >= MAX_DIGITS) throw new Inexpressible('the multiples have too many places');
  const digits = (maxCount: number): Expression => repeat(oneOf(DIGITS), 1, maxCount);
  const fraction = places === 0 ? EMPTY : optional(sequence([text('.'), digits(places)]));
  return sequence([optional(text('-')), digits(MAX_DIGITS - places), fraction]);
}

/** All texts of a number without an exponent. */
function spellings(value: number): Expression {
  const decimalText = String(Object.is(value, -0) ? 0 : value);
  if (decimalText.includes('e')) throw new Inexpressible('a number with an exponent');
  const zeros = repeat(text('0'), 0, Number.POSITIVE_INFINITY);
  const spelled = decimalText.includes('.')
    ? sequence([text(decimalText), zeros])
    : sequence([text(decimalText), optional(sequence([text('.'), zeros]))]);
  return value === 0 ? sequence([optional(text('-')), spelled]) : spelled;
}
