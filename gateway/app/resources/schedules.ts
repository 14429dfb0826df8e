import type { CheckedFunction } from '#scheduler/functions/input-check.ts';
import type { Timing } from '#scheduler/schedules/rules.ts';
import type { Call, FunctionReference } from '../control.ts';
import type { Schedule } from '../schemas/schedules.ts';

export type { Schedule, Timing };

/** Hint of the errors about a schedule's times. */
export const TIMES_HINT = 'For example: `"cron": "0 3 * * *", "timezone": "Europe/Berlin"`, or `"everyMs": 900000`.';

export interface NewSchedule {
  readonly name: string;
  readonly function: FunctionReference;
  /** JSON text. */
  readonly input: string;
  readonly timing: Timing;
  /** Throws when the version that the reference currently names does not accept the input. */
  readonly check: (version: CheckedFunction) => void;
}

/**
 * A schedule whose input is the stored JSON text. A list of schedules may have megabytes of inputs, and no caller but the client needs their values.
 */
export type StoredSchedule = Omit<Schedule, 'input'> & { readonly inputText: string };

export interface Schedules {
  /** The schedules of the caller's tenant, by name. */
  list(call: Call): Promise<readonly StoredSchedule[]>;
  /**
   * Stores a schedule, or replaces the schedule of the same name. Null when the reference leads to no version; throws `quota-schedules`, and
   * `invalid-input` for a cron pattern that is invalid or never matches.
   */
  put(call: Call, schedule: NewSchedule): Promise<StoredSchedule | null>;
  /** Resumes a suspended schedule, and leaves any other one as it is. Null when there is no such schedule. */
  resume(call: Call, name: string): Promise<StoredSchedule | null>;
  /** False when there was no such schedule. */
  remove(call: Call, name: string): Promise<boolean>;
}
