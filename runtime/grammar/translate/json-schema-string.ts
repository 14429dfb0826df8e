import type { Characters } from './characters.ts';
import { choice, type Expression, oneOf, sequence, text } from './expression.ts';
import { escaped, type JsonRules } from './json.ts';
import type { Case } from './json-schema-case.ts';
import { FORMATS } from './json-schema-formats.ts';
import { mistake, type Pointer } from './json-schema-object.ts';
import { parseRegex, regex, regexSearch } from './regex.ts';
import {
  type Automaton,
  automatonOf,
  complement,
  expressionOf,
  intersection,
  KnownAutomata,
  lengths,
  matches,
} from './regular.ts';

const MANY = Number.POSITIVE_INFINITY;
const patternAutomata = new KnownAutomata();
const languages = new KnownAutomata();

type TextRules = Pick<Case, 'minLength' | 'maxLength' | 'patterns' | 'formats' | 'unlisted'>;

/** Strings of a case. @throws Inexpressible if an automaton for its rules together is too large */
export function stringExpression(json: JsonRules, rules: TextRules, at: Pointer): Expression {
  const { minLength = 0, maxLength = MANY, patterns = [], formats = [], unlisted = [] } = rules;
  for (const format of formats) refuseUnknown(format, at);
  const others = unlisted.filter((value) => typeof value === 'string');
  const isMeasured = minLength > 0 || maxLength < MANY;
  const [pattern, ...more] = patterns;
  const [format, ...moreFormats] = formats;
  const rulesTold = patterns.length + formats.length + (isMeasured ? 1 : 0) + (others.length > 0 ? 1 : 0);
  if (rulesTold === 0) return json.string;
  if (rulesTold === 1 && isMeasured) return json.stringOf(minLength, maxLength);
  if (rulesTold === 1 && pattern?.kept && more.length === 0) return quoted(escaped(regexSearch(pattern.pattern)));
  if (rulesTold === 1 && format !== undefined && moreFormats.length === 0) {
    return quoted(escaped(regex(FORMATS.get(format) ?? '')));
  }
  const written = (set: Characters): Expression => escaped(oneOf(set));
  return quoted(expressionOf(language(rules), json.rules, written));
}

/** Texts that keep all rules. @throws Inexpressible if an automaton for its rules together is too large */
export function language({ minLength, maxLength, patterns, formats, unlisted }: TextRules): Automaton {
  const rules = { minLength, maxLength, patterns, formats, unlisted };
  return languages.get(JSON.stringify(rules), () => madeLanguage(rules));
}

function madeLanguage({
  minLength = 0,
  maxLength = MANY,
  patterns = [],
  formats = [],
  unlisted = [],
}: TextRules): Automaton {
  const others = unlisted.filter((value) => typeof value === 'string');
  const all = [
    ...formats.map((format) => automatonOfRegex(FORMATS.get(format) ?? '', true)),
    ...patterns.map(({ pattern, kept }) => {
      const automaton = automatonOfRegex(pattern, false);
      return kept ? automaton : complement(automaton);
    }),
    ...(minLength > 0 || maxLength < MANY ? [lengths(minLength, maxLength)] : []),
    ...(others.length > 0 ? [complement(automatonOf(choice(others.map(text))))] : []),
  ];
  return all.reduce(intersection, lengths(0, MANY));
}

export function fitsText(
  value: string,
  { minLength = 0, maxLength = MANY, patterns = [], formats = [] }: TextRules,
): boolean {
  const length = [...value].length;
  if (length < minLength || length > maxLength) return false;
  return (
    patterns.every(({ pattern, kept }) => matches(automatonOfRegex(pattern, false), value) === kept) &&
    formats.every((format) => matches(automatonOfRegex(FORMATS.get(format) ?? '', true), value))
  );
}

function refuseUnknown(format: string, at: Pointer): void {
  if (FORMATS.has(format)) return;
  const names = [...FORMATS.keys()].join(', ');
  throw mistake(at, `the format ${JSON.stringify(format)} is not kept; known: ${names}`);
}

function automatonOfRegex(pattern: string, whole: boolean): Automaton {
  return patternAutomata.get(`${whole} ${pattern}`, () => {
    parseRegex(pattern);
    return automatonOf(whole ? regex(pattern) : regexSearch(pattern));
  });
}

export function quoted(expression: Expression): Expression {
  return sequence([text('"'), expression, text('"')]);
}
