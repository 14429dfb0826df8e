import { getNextMillis } from 'bullmq';
import type { Timing } from './rules.ts';

type Pattern = Extract<Timing, { cron: string }>;

/** Reason for which BullMQ refuses a pattern that passed `timingFault`; null when the pattern is valid. */
export function cronFault(pattern: Pattern, now: number): string | null {
  try {
    return nextAt(pattern, now) === null ? `No time fits the pattern "${pattern.cron}".` : null;
  } catch (error) {
    return `The pattern "${pattern.cron}" is not valid: ${error instanceof Error ? error.message : error}.`;
  }
}

/** The next time of a cron pattern after `now`, ms since the epoch; null when there is none. Throws for an invalid pattern. */
export function nextAt({ cron, timezone }: Pattern, now: number): number | null {
  return getNextMillis(now, { pattern: cron, tz: timezone }) ?? null;
}
