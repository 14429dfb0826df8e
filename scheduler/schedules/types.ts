import type { Timing } from './rules.ts';

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
