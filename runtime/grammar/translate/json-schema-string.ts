import { StepBudget } from '#scheduler/functions/schema/budget.ts';
import { hasFormat } from '#scheduler/functions/schema/validator.ts';
import type { Characters } from './characters.ts';
import { choice, type Expression, isNever, NEVER, oneOf, RuleSet, sequence, text } from './expression.ts';
import { escaped, type JsonRules, languageOf } from './json.ts';
import type { Case } from './json-schema-case.ts';
import { automatonOfFormat, FORMATS, type Format } from './json-schema-formats.ts';
import { BoundedCache } from './known.ts';
import { parseRegex, regex, regexSearch } from './regex.ts';
import {
  type Automaton,
  automatonCache,
  automatonOf,
  complement,
  expressionOf,
  intersection,
  lengths,
  matches,
} from './regular.ts';
import { countedRules } from './regular-counted.ts';

const MANY = Number.POSITIVE_INFINITY;
const patternAutomata = automatonCache();
const ruleAutomata = automatonCache();

type TextRules = Pick<Case, 'minLength' | 'maxLength' | 'patterns' | 'formats' | 'unlisted'>;

/** Maximum states of the automata of remembered strings: about 50 MB. */
const MAX_KNOWN = 200_000;
const strings = new BoundedCache<Expression>(MAX_KNOWN, (made) =>
  made.kind === 'language' ? made.language.states : 1,
);

/** The strings that keep all rules of a case. @throws Inexpressible if the automaton of the rules is too large */
export function stringExpression(json: JsonRules, rules: TextRules): Expression {
  const { minLength = 0, patterns = [], unlisted = [] } = rules;
  const formats = [...new Set(rules.formats)].filter((format) => FORMATS.has(format));
  const maxLength = maxLengthOf(rules);
  const excludedTexts = unlisted.filter((value) => typeof value === 'string');
  if (minLength > maxLength) return NEVER;
  const isMeasured = minLength > 0 || maxLength < MANY;
  const ruleCount = patterns.length + formats.length + (isMeasured ? 1 : 0) + (excludedTexts.length > 0 ? 1 : 0);
  if (ruleCount === 0) return json.string;
  if (ruleCount === 1 && isMeasured) return json.stringOf(minLength, maxLength);
  const key = JSON.stringify([minLength, maxLength, patterns, formats, excludedTexts]);
  const made = strings.getOrMake(key, () => {
    if (ruleCount > 1 && isMeasured)
      return stringOfLength(automatonOfContent({ patterns, formats, unlisted }), minLength, maxLength);
    return stringFrom((own) => contentOf({ patterns, formats, unlisted }, own, ruleCount === 1));
  });
  // The string's rules count towards the schema's limit, as if the schema did not share them. The root does not count:
  // a string that is not shared is an expression within the schema's rules, and has no root rule.
  if (made.kind === 'language') json.rules.reserve(made.language.size - 1);
  return made;
}

/** JSON strings. `make` returns the expression of the text between the quotes, and may add rules to the set it gets. */
export function stringFrom(make: (ownRules: RuleSet) => Expression): Expression {
  const ownRules = new RuleSet(MANY, () => new Error('this set has no limit'));
  const content = make(ownRules);
  return isNever(content) ? NEVER : { kind: 'language', language: languageOf(ownRules.grammar(quoted(content)).rules) };
}

/** @param isAlone true if there is only one rule */
function contentOf(rules: TextRules, ownRules: RuleSet, isAlone: boolean): Expression {
  const [pattern] = rules.patterns ?? [];
  const [format] = formatsOf(rules);
  if (isAlone && pattern?.mustHold) return escaped(regexSearch(pattern.pattern));
  if (isAlone && format)
    return choice([escaped(regex(format.pattern)), ...(format.more ? [format.more(ownRules)] : [])]);
  return expressionOf(automatonOfContent(rules), ownRules, escapedClass);
}

/** The JSON strings of those texts of an automaton that have `min` to `max` characters. @throws Inexpressible if `max` is too large */
function stringOfLength(automaton: Automaton, min: number, max: number): Expression {
  const counted = countedRules(automaton, min, max, escapedClass);
  if (!counted) return NEVER;
  const { first, get, states } = counted;
  const root = sequence([text('"'), first, text('"')]);
  const rules = { get: (name: string) => (name === 'root' ? root : get(name)) };
  return {
    kind: 'language',
    language: { root: 'root', rules, isString: true, size: automaton.accepts.length, states },
  };
}

function escapedClass(set: Characters): Expression {
  return escaped(oneOf(set));
}

/** The texts that keep all rules. @throws Inexpressible if the automaton of the rules is too large */
export function automatonOfRules(rules: TextRules): Automaton {
  const { minLength, patterns, formats, unlisted } = rules;
  return automatonOfContent({ minLength, maxLength: maxLengthOf(rules), patterns, formats, unlisted });
}

/** The maximum length of a case's texts, also for its formats. */
function maxLengthOf(rules: TextRules): number {
  return Math.min(rules.maxLength ?? MANY, ...formatsOf(rules).map(({ maxLength = MANY }) => maxLength));
}

/** The texts that keep all rules, but not the maximum lengths of formats. */
function automatonOfContent(rules: TextRules): Automaton {
  return ruleAutomata.getOrMake(JSON.stringify(rules), () => makeAutomaton(rules));
}

function makeAutomaton({
  minLength = 0,
  maxLength = MANY,
  patterns = [],
  formats = [],
  unlisted = [],
}: TextRules): Automaton {
  const excludedTexts = unlisted.filter((value) => typeof value === 'string');
  const all = [
    ...formats.flatMap((name) => {
      const format = FORMATS.get(name);
      return format ? [automatonOfFormat(name, format)] : [];
    }),
    ...patterns.map(({ pattern, mustHold }) => {
      const automaton = automatonOfPattern(pattern);
      return mustHold ? automaton : complement(automaton);
    }),
    ...(minLength > 0 || maxLength < MANY ? [lengths(minLength, maxLength)] : []),
    ...(excludedTexts.length > 0 ? [complement(automatonOf(choice(excludedTexts.map(text))))] : []),
  ];
  return all.reduce(intersection, lengths(0, MANY));
}

/** No limit on the steps of `hasFormat`: it refuses long texts, which bounds its steps. */
const ENDLESS = new StepBudget(MANY);

/**
 * True if a text keeps the rules for its length, patterns and formats. `hasFormat` checks formats, as it does in the validator of inputs. It
 * accepts a few texts more than the grammars, such as IPv4 addresses with leading zeros.
 */
export function fitsText(
  value: string,
  { minLength = 0, maxLength = MANY, patterns = [], formats = [] }: TextRules,
): boolean {
  const length = [...value].length;
  if (length < minLength || length > maxLength) return false;
  return (
    patterns.every(({ pattern, mustHold }) => matches(automatonOfPattern(pattern), value) === mustHold) &&
    formats.every((format) => !FORMATS.has(format) || hasFormat(value, format, ENDLESS))
  );
}

/** The formats of a case that grammars keep. */
function formatsOf({ formats = [] }: TextRules): readonly Format[] {
  return formats.flatMap((name) => FORMATS.get(name) ?? []);
}

function automatonOfPattern(pattern: string): Automaton {
  return patternAutomata.getOrMake(pattern, () => {
    parseRegex(pattern);
    return automatonOf(regexSearch(pattern));
  });
}

export function quoted(expression: Expression): Expression {
  return sequence([text('"'), expression, text('"')]);
}
