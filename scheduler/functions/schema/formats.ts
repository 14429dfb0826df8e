import { format as library } from '@cfworker/json-schema';
import type { StepBudget } from './budget.ts';
import { PROPERTY_ESCAPE } from './pattern-syntax.ts';

/** Longest text that can have a format. V8 backtracks in the expressions below. This limit bounds their time, as measured. */
const MAX_FORMAT_LENGTH = 2048;

/** Steps charged for a check, and further ones for each character. */
const FORMAT_STEPS = 20;
const FORMAT_CHARACTER_STEPS = 4;
/** Steps charged for each `\p{…}` in a text with the format `regex`: V8 takes up to a quarter of a millisecond. */
const PROPERTY_STEPS = 10_000;

/** A label of a host name, with single hyphens. The library's own expression for it takes exponential time. */
const LABEL = '[a-z\\u00a1-\\uffff0-9]+(?:-[a-z\\u00a1-\\uffff0-9]+)*';
const PRIVATE_IPV4 =
  '(?!10(?:\\.\\d{1,3}){3})(?!127(?:\\.\\d{1,3}){3})(?!169\\.254(?:\\.\\d{1,3}){2})(?!192\\.168(?:\\.\\d{1,3}){2})(?!172\\.(?:1[6-9]|2\\d|3[0-1])(?:\\.\\d{1,3}){2})';
const IPV4 =
  '(?:[1-9]\\d?|1\\d\\d|2[01]\\d|22[0-3])(?:\\.(?:1?\\d{1,2}|2[0-4]\\d|25[0-5])){2}(?:\\.(?:[1-9]\\d?|1\\d\\d|2[0-4]\\d|25[0-4]))';
const URL_TEXT = new RegExp(
  `^(?:https?|ftp)://(?:\\S+@)?(?:${PRIVATE_IPV4}${IPV4}|${LABEL}(?:\\.${LABEL})*\\.[a-z\\u00a1-\\uffff]{2,})(?::\\d{2,5})?(?:/\\S*)?$`,
  'iu',
);

const FORMATS: ReadonlyMap<string, (text: string) => boolean> = new Map([
  ...Object.entries(library),
  ['url', (text: string) => URL_TEXT.test(text)],
]);

/** True when a text has a format. Every text passes an unknown format. */
export function hasFormat(text: string, name: string, budget: StepBudget): boolean {
  const matches = FORMATS.get(name);
  if (matches === undefined) return true;
  if (text.length > MAX_FORMAT_LENGTH) return false;
  const propertyCount = name === 'regex' ? (text.match(PROPERTY_ESCAPE)?.length ?? 0) : 0;
  budget.spend(FORMAT_STEPS + FORMAT_CHARACTER_STEPS * text.length + PROPERTY_STEPS * propertyCount);
  return matches(text);
}
