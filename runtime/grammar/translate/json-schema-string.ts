import { StepBudget } from '#scheduler/functions/schema/budget.ts';
import { hasFormat } from '#scheduler/functions/schema/validator.ts';
import type { Characters } from './characters.ts';
import { choice, type Expression, isNever, NEVER, oneOf, RuleSet, sequence, text } from './expression.ts';
import { escaped, type JsonRules, languageOf } from './json.ts';
import type { Case } from './json-schema-case.ts';
import { BoundedCache } from './known.ts';
import { parseRegex, regex, regexSearch } from './regex.ts';
import {
  type Automaton,
  automatonCache,
  automatonOf,
  complement,
  concatenation,
  countedRules,
  expressionOf,
  intersection,
  lengths,
  matches,
} from './regular.ts';

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

function quoted(expression: Expression): Expression {
  return sequence([text('"'), expression, text('"')]);
}

/** A format of strings that grammars keep. */
interface Format {
  /** A regular expression for whole texts. */
  readonly pattern: string;
  /** Maximum characters of a text. */
  readonly maxLength?: number;
  /** The text before the part that `pattern` describes, with a maximum length of its own. */
  readonly head?: { readonly pattern: string; readonly maxLength: number };
  /** Makes the expression of further texts, which no small automaton has. Only strings without further rules have these texts. */
  readonly more?: (rules: RuleSet) => Expression;
}

const MONTH_DAYS =
  '(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])';
/** Years that 4 divides, but not 100 unless 400 divides them. */
const LEAP_YEAR = '([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)';
const DATE = `([0-9]{4}-(${MONTH_DAYS})|${LEAP_YEAR}-02-29)`;
/** The standards have no bound on the digits of a fraction or a duration. Without one, a model that likes digits would write nothing else. */
const SOME_DIGITS = '[0-9]{1,20}';
const FRACTION = `(\\.${SOME_DIGITS})?`;
const OFFSET = '([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])';
/** A leap second ends the last minute of a day in UTC: `leapSeconds` has the offsets other than zero. */
const TIME = `(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]${FRACTION}${OFFSET}|23:59:60${FRACTION}([Zz]|[+-]00:00))`;

const DURATION_TIME = `T(${SOME_DIGITS}H(${SOME_DIGITS}M(${SOME_DIGITS}S)?)?|${SOME_DIGITS}M(${SOME_DIGITS}S)?|${SOME_DIGITS}S)`;
const DURATION_DATE = `(${SOME_DIGITS}Y(${SOME_DIGITS}M(${SOME_DIGITS}D)?)?|${SOME_DIGITS}M(${SOME_DIGITS}D)?|${SOME_DIGITS}D)`;
const DURATION = `P(${SOME_DIGITS}W|${DURATION_DATE}(${DURATION_TIME})?|${DURATION_TIME})`;

const HEX = '[0-9A-Fa-f]';
const BYTE = '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
const IPV4 = `${BYTE}(\\.${BYTE}){3}`;
const GROUP = `${HEX}{1,4}`;
const LAST_GROUPS = `(${GROUP}:${GROUP}|${IPV4})`;
/** For each number of groups after the `::`, the texts with as many groups before it as may stand there (RFC 3986, 3.2.2). */
const IPV6 = [
  `(${GROUP}:){6}${LAST_GROUPS}`,
  `::(${GROUP}:){5}${LAST_GROUPS}`,
  ...[4, 3, 2, 1, 0].map((after) => `${groupsBefore(4 - after)}::(${GROUP}:){${after}}${LAST_GROUPS}`),
  `${groupsBefore(5)}::${GROUP}`,
  `${groupsBefore(6)}::`,
].join('|');

function groupsBefore(most: number): string {
  return `((${GROUP}:){0,${most}}${GROUP})?`;
}

const LETTER_OR_DIGIT = '[A-Za-z0-9]';
const LDH = '[A-Za-z0-9-]';
/** A label of a host name. None has `--` as its third and fourth characters: a grammar cannot tell the valid `xn--` labels from others. */
const LABEL = `(${LETTER_OR_DIGIT}|${LETTER_OR_DIGIT}{2}|${LETTER_OR_DIGIT}${LDH}{1,2}${LETTER_OR_DIGIT}|${LETTER_OR_DIGIT}${LDH}(${LETTER_OR_DIGIT}${LDH}|-${LETTER_OR_DIGIT})${LDH}{0,58}${LETTER_OR_DIGIT})`;
const DOMAIN_LABEL = `${LETTER_OR_DIGIT}(${LDH}{0,61}${LETTER_OR_DIGIT})?`;
const ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
/** The part before the `@`: RFC 5321, 4.1.2, with at most 64 characters (4.5.3.1.1). */
const LOCAL_PART = `${ATOM}(\\.${ATOM})*|"([ !#-\\[\\]-~]|\\\\[ -~])*"`;
const DOMAIN = `@(${DOMAIN_LABEL}(\\.${DOMAIN_LABEL})*|\\[(${IPV4}|[Ii][Pp][Vv]6:(${IPV6}))\\])`;

const UNRESERVED = 'A-Za-z0-9._~-';
const SUB_DELIMS = "!$&'()*+,;=";
const ENCODED = `%${HEX}{2}`;
const oneFrom = (characters: string): string => `([${characters}${SUB_DELIMS}${UNRESERVED}]|${ENCODED})`;
const SEGMENT_CHARACTER = oneFrom(':@');
const REGISTERED_NAME = `${oneFrom('')}*`;
const IP_LITERAL = `\\[(${IPV6}|[Vv]${HEX}+\\.[:${SUB_DELIMS}${UNRESERVED}]+)\\]`;
const AUTHORITY = `(${oneFrom(':')}*@)?(${IP_LITERAL}|${REGISTERED_NAME})(:[0-9]*)?`;
const SEGMENTS = `(/${SEGMENT_CHARACTER}*)*`;
const ABSOLUTE_PATH = `/(${SEGMENT_CHARACTER}+${SEGMENTS})?`;
const SUFFIX = `(\\?${oneFrom(':@/?')}*)?(#${oneFrom(':@/?')}*)?`;
/** Common validators refuse a scheme without a path or an authority, so it is left out. */
const URI = `[A-Za-z][A-Za-z0-9+.-]*:(//${AUTHORITY}${SEGMENTS}|${ABSOLUTE_PATH}|${SEGMENT_CHARACTER}+${SEGMENTS})${SUFFIX}`;
const RELATIVE_REFERENCE = `(//${AUTHORITY}${SEGMENTS}|${ABSOLUTE_PATH}|${oneFrom('@')}+${SEGMENTS}|)${SUFFIX}`;

/**
 * The formats that grammars keep, as JSON Schema's standards define them: RFC 3339 for dates, times and durations, RFC 3986 for URIs, RFC 5321 for
 * email addresses, RFC 1123 for host names, RFC 4291 for IPv6 and RFC 6901 for JSON pointers. Every other format is an annotation.
 */
export const FORMATS: ReadonlyMap<string, Format> = new Map<string, Format>([
  ['date', { pattern: DATE }],
  ['time', { pattern: TIME, more: leapSeconds }],
  [
    'date-time',
    { pattern: `${DATE}[Tt]${TIME}`, more: (rules) => sequence([regex(`${DATE}[Tt]`), leapSeconds(rules)]) },
  ],
  ['duration', { pattern: DURATION }],
  ['uuid', { pattern: `${HEX}{8}-${HEX}{4}-${HEX}{4}-${HEX}{4}-${HEX}{12}` }],
  ['ipv4', { pattern: IPV4 }],
  ['ipv6', { pattern: IPV6 }],
  ['hostname', { pattern: `${LABEL}(\\.${LABEL})*`, maxLength: 253 }],
  ['email', { pattern: DOMAIN, maxLength: 254, head: { pattern: LOCAL_PART, maxLength: 64 } }],
  ['uri', { pattern: URI }],
  ['uri-reference', { pattern: `${URI}|${RELATIVE_REFERENCE}` }],
  ['json-pointer', { pattern: '(/([^~/]|~[01])*)*' }],
]);

const automata = automatonCache();

/** The automaton of a format's texts, without those of `more` and without the format's `maxLength`. @throws Inexpressible if it is too large */
function automatonOfFormat(name: string, { pattern, head }: Format): Automaton {
  return automata.getOrMake(name, () => {
    const tail = automatonOf(regex(pattern));
    return head
      ? concatenation(intersection(automatonOf(regex(head.pattern)), lengths(0, head.maxLength)), tail)
      : tail;
  });
}

const HOURS = Array.from({ length: 24 }, (_, hour) => String(hour).padStart(2, '0'));
const MINUTES = Array.from({ length: 60 }, (_, minute) => String(minute).padStart(2, '0'));
const DAY_MINUTES = 24 * 60;

/** The leap seconds with an offset from UTC. For each local time, the offsets with which it is 23:59 in UTC. */
function leapSeconds(rules: RuleSet): Expression {
  const seconds = rules.add('seconds', sequence([text(':60'), regex(FRACTION)]));
  const offsetOf = (minutes: number): string => `${HOURS[Math.floor(minutes / 60)]}:${MINUTES[minutes % 60]}`;
  return choice(
    HOURS.map((hour, hourIndex) => {
      const minutes = MINUTES.map((minute, minuteIndex) => {
        const ahead = (hourIndex * 60 + minuteIndex + 1) % DAY_MINUTES;
        const behind = DAY_MINUTES - ahead;
        const offsets = [text(`+${offsetOf(ahead)}`), ...(ahead > 0 ? [text(`-${offsetOf(behind)}`)] : [])];
        return sequence([text(minute), seconds, choice(offsets)]);
      });
      return sequence([text(`${hour}:`), rules.add('minutes', choice(minutes))]);
    }),
  );
}
