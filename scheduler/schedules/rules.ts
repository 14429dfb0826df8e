/** Rules for schedules. This module needs neither Redis nor Node. */

/** A schedule's name appears in URLs and commands. */
export const SCHEDULE_NAME = /^[a-z][a-z0-9-]{0,62}$/;
/** Minimum time between two invocations of a schedule. */
export const LEAST_INTERVAL_MS = 60_000;
/** Maximum time between two invocations of a schedule with an interval. */
export const MOST_INTERVAL_MS = 366 * 86_400_000;
/** Maximum bytes of a schedule's input, JSON text. */
export const MAX_INPUT_BYTES = 16_384;
/** Schedules that a tenant may have unless its quota says otherwise. */
export const DEFAULT_SCHEDULES = 100;

const MAX_CRON_CHARACTERS = 128;
/** Minute, hour, day of the month, month, day of the week; no seconds, so that a schedule never fires more than once a minute. */
const CRON = /^[\dA-Za-z*,/?#-]+(?: [\dA-Za-z*,/?#-]+){4}$/;
/**
 * The value `H`, for which other schedulers draw a number: an `h` that is not part of `thu`, the only name of a day or month with this letter.
 */
const RANDOM_VALUE = /h(?!u)/i;
/** When a schedule fires: at the times of a cron pattern in a time zone, or at once and then at an interval. */
export type Timing = { readonly cron: string; readonly timezone: string } | { readonly everyMs: number };

/** The pattern with one space between its fields and none around them, as `timingFault` expects it. */
export function normalPattern(cron: string): string {
  return cron.trim().replace(/\s+/g, ' ');
}

/** Reason to refuse a timing, with the member at fault; null when its form is right. `cronFault` then checks the pattern. */
export function timingFault(timing: Timing): { readonly field: string; readonly message: string } | null {
  if ('everyMs' in timing) {
    const { everyMs } = timing;
    const fits = Number.isInteger(everyMs) && everyMs >= LEAST_INTERVAL_MS && everyMs <= MOST_INTERVAL_MS;
    return fits ? null : { field: 'everyMs', message: 'An interval has from one minute to 366 days.' };
  }
  if (!isTimeZone(timing.timezone)) return { field: 'timezone', message: `"${timing.timezone}" is not a time zone.` };
  if (timing.cron.length > MAX_CRON_CHARACTERS || !CRON.test(timing.cron))
    return { field: 'cron', message: 'A cron pattern has five fields: minute, hour, day, month, day of the week.' };
  if (RANDOM_VALUE.test(timing.cron))
    return { field: 'cron', message: 'A cron pattern has no `H`: write the minute, hour or day that it stands for.' };
  return null;
}

function isTimeZone(name: string): boolean {
  try {
    return name.length <= 64 && new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
}

/** The invocation that a schedule starts, and when. */
export interface ScheduleSettings {
  readonly name: string;
  readonly function: string;
  /** A version or an alias of the function; empty for `live`. */
  readonly reference: string;
  /** JSON text. */
  readonly input: string;
  readonly timing: Timing;
}

/** Outcome of a scheduled time: an invocation, or the error with which it was refused. */
export interface LastTime {
  /** When the outcome was stored, in milliseconds since the Unix epoch. */
  readonly at: number;
  readonly invocation?: string;
  readonly error?: { readonly code: string; readonly message: string };
  /** True if the schedule makes no invocations from this time on, until it is resumed or put again. */
  readonly suspended?: boolean;
}

export interface Schedule extends ScheduleSettings {
  readonly tenant: string;
  /** Identifies this entry: the schedule that replaces it has another id. */
  readonly id: string;
  /** Milliseconds since the Unix epoch. */
  readonly createdAt: number;
  /** Id of the API key that set the schedule. */
  readonly createdBy: string;
  readonly last: LastTime | null;
}

/** A schedule with its next time, ms since the epoch; null while BullMQ has no job scheduler for it. */
export type TimedSchedule = Schedule & { readonly nextAt: number | null };
