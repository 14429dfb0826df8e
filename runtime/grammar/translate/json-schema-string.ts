import { StepBudget } from '#scheduler/functions/schema/budget.ts';
import { hasFormat } from '#scheduler/functions/schema/formats.ts';
import type { Characters } from './characters.ts';
import { choice, type Expression, isNever, NEVER, oneOf, RuleSet, sequence, text } from './expression.ts';
import { escaped, type JsonRules, languageOf } from './json.ts';
import type { Case } from './json-schema-case.ts';
import { FORMATS } from './json-schema-formats.ts';
import { Inexpressible, mistake, type Pointer } from './json-schema-object.ts';
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
export function stringExpression(json: JsonRules, rules: TextRules, at: Pointer): Expression {
  const { minLength = 0, maxLength = MANY, patterns = [], formats = [], unlisted = [] } = rules;
  for (const format of formats) refuseUnknown(format, at);
  const excludedTexts = unlisted.filter((value) => typeof value === 'string');
  if (minLength > maxLength) return NEVER;
  const isMeasured = minLength > 0 || maxLength < MANY;
  const ruleCount = patterns.length + formats.length + (isMeasured ? 1 : 0) + (excludedTexts.length > 0 ? 1 : 0);
  if (ruleCount === 0) return json.string;
  if (ruleCount === 1 && isMeasured) return json.stringOf(minLength, maxLength);
  const key = JSON.stringify([minLength, maxLength, patterns, formats, excludedTexts]);
  const made = strings.getOrMake(key, () => {
    if (ruleCount > 1 && isMeasured)
      return stringOfLength(automatonOfRules({ patterns, formats, unlisted }), minLength, maxLength);
    return stringFrom((own) => contentOf(rules, own, ruleCount === 1));
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
  const [format] = rules.formats ?? [];
  if (isAlone && pattern?.mustHold) return escaped(regexSearch(pattern.pattern));
  if (isAlone && format !== undefined) return escaped(regex(FORMATS.get(format) ?? ''));
  return expressionOf(automatonOfRules(rules), ownRules, escapedClass);
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
export function automatonOfRules({ minLength, maxLength, patterns, formats, unlisted }: TextRules): Automaton {
  const rules = { minLength, maxLength, patterns, formats, unlisted };
  return ruleAutomata.getOrMake(JSON.stringify(rules), () => makeAutomatonOfRules(rules));
}

function makeAutomatonOfRules({
  minLength = 0,
  maxLength = MANY,
  patterns = [],
  formats = [],
  unlisted = [],
}: TextRules): Automaton {
  const excludedTexts = unlisted.filter((value) => typeof value === 'string');
  const all = [
    ...formats.map(automatonOfFormat),
    ...patterns.map(({ pattern, mustHold }) => {
      const automaton = automatonOfRegex(pattern, false);
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
 * True if a text keeps the rules for its length, patterns and formats. `hasFormat` checks formats, as it does in the validator of inputs. The regular
 * expression of a format, which is in the grammars, matches only some of the format's texts.
 */
export function fitsText(
  value: string,
  { minLength = 0, maxLength = MANY, patterns = [], formats = [] }: TextRules,
): boolean {
  const length = [...value].length;
  if (length < minLength || length > maxLength) return false;
  return (
    patterns.every(({ pattern, mustHold }) => matches(automatonOfRegex(pattern, false), value) === mustHold) &&
    formats.every((format) => hasFormat(value, format, ENDLESS))
  );
}

function refuseUnknown(format: string, at: Pointer): void {
  if (FORMATS.has(format)) return;
  const names = [...FORMATS.keys()].join(', ');
  throw mistake(at, `the format ${JSON.stringify(format)} is not kept; known: ${names}`);
}

function automatonOfFormat(format: string): Automaton {
  const pattern = FORMATS.get(format);
  if (pattern === undefined) throw new Inexpressible('a format without a regular expression');
  return automatonOfRegex(pattern, true);
}

function automatonOfRegex(pattern: string, isWhole: boolean): Automaton {
  return patternAutomata.getOrMake(`${isWhole} ${pattern}`, () => {
    parseRegex(pattern);
    return automatonOf(isWhole ? regex(pattern) : regexSearch(pattern));
  });
}

export function quoted(expression: Expression): Expression {
  return sequence([text('"'), expression, text('"')]);
}
