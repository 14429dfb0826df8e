import type { RepeatStrategy } from 'bullmq';
import { Cron } from 'croner';
import type { Timing } from './rules.ts';

type Pattern = Extract<Timing, { cron: string }>;

/** A field of a pattern: its numbers, and the names that stand for some of them. */
interface Field {
  readonly least: number;
  readonly most: number;
  /** Number of different values: 7 stands for Sunday, as 0 does. */
  readonly size: number;
  /** Names of the values from `least` on. */
  readonly names?: readonly string[];
}

const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const WEEKDAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
const FIELDS: readonly Field[] = [
  { least: 0, most: 59, size: 60 },
  { least: 0, most: 23, size: 24 },
  { least: 1, most: 31, size: 31 },
  { least: 1, most: 12, size: 12, names: MONTHS },
  { least: 0, most: 7, size: 7, names: WEEKDAYS },
];

/** Reason for which a pattern that passed `timingFault` is refused; null when the pattern is valid. */
export function cronFault(pattern: Pattern, now: number): string | null {
  try {
    return nextAt(pattern, now) === null ? `No time fits the pattern "${pattern.cron}".` : null;
  } catch (error) {
    const text = error instanceof Error ? error.message.replace(/^CronPattern: /, '').replace(/\.$/, '') : error;
    return `The pattern "${pattern.cron}" is not valid: ${text}.`;
  }
}

/**
 * The next time of a cron pattern after `now`, ms since the epoch; null when there is none. A time that the local clock skips counts as the first
 * instant after the gap, and one that the clock shows twice as the first of both. Throws for an invalid pattern.
 */
export function nextAt({ cron, timezone }: Pattern, now: number): number | null {
  return new Cron(spelledOut(cron), { timezone, mode: '5-part' }).nextRun(new Date(now))?.getTime() ?? null;
}

/** The times of job schedulers of BullMQ. Its own strategy skips days that begin with a gap, and refuses values that a list names twice. */
export const repeatStrategy: RepeatStrategy = (now, { pattern = '', tz = 'UTC' }) =>
  nextAt({ cron: pattern, timezone: tz }, now) ?? undefined;

/** A part of a field's list: a value or a range, perhaps with a step. */
const PART = /^(?<first>\*|\?|\d{1,2}|[a-z]{3})(?:-(?<last>\d{1,2}|[a-z]{3}))?(?:\/(?<step>\d{1,3}))?$/i;

/** The pattern with lists in place of what croner lacks: ranges over the end of a field (`fri-mon`, `22-2`), `5/15` and steps beyond the end. */
function spelledOut(cron: string): string {
  const fields = cron.split(' ').map((text, i) => {
    const field = FIELDS[i];
    return field === undefined
      ? text
      : text
          .split(',')
          .map((part) => partOf(part, field))
          .join(',');
  });
  return fields.join(' ');
}

function partOf(part: string, { least, most, size, names = [] }: Field): string {
  const { first, last, step } = PART.exec(part)?.groups ?? {};
  if (first === undefined) return part;
  const isAll = first === '*' || first === '?';
  const numberOf = (text: string) => {
    const index = names.indexOf(text.toLowerCase());
    return index >= 0 ? least + index : Number(text);
  };
  const end = least + size - 1;
  const from = isAll ? least : numberOf(first);
  const to = last === undefined ? (isAll || step !== undefined ? end : from) : numberOf(last);
  const stride = Number(step ?? 1);
  const wraps = from > to;
  const isLacking = wraps || stride >= size || (step !== undefined && last === undefined && !isAll);
  const isNumber = (value: number) => value >= least && value <= most;
  // croner reports the faults of a part that is not valid.
  if (!isLacking || !isNumber(from) || !isNumber(to) || stride === 0 || (isAll && last !== undefined)) return part;
  const values = new Set<number>();
  const until = wraps ? to + size : to;
  for (let value = from; value <= until; value += stride) values.add(least + ((value - least) % size));
  return [...values].join(',');
}
