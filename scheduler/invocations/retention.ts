/** How much of an invocation is kept, and for how long. */
export interface Retention {
  /** Record of an ended invocation. */
  readonly recordMs: number;
  /** Events of an ended invocation. */
  readonly eventsMs: number;
  /** About how many events one invocation's log keeps; older ones go first. */
  readonly maxEvents: number;
  /** Bytes of event data that one invocation may log. */
  readonly maxBytes: number;
  /** Bytes of all events that an invocation and its children leave together, results and 64 bytes an event included. */
  readonly familyBytes: number;
  /** About how many lines a function's log keeps, over all its invocations. */
  readonly logLines: number;
  /** A function's log, after its last line. */
  readonly logMs: number;
  /** Invocations listed for a function. */
  readonly recentInvocations: number;
  /** That list, after the last submission. */
  readonly recentMs: number;
  /** For how long a repeated `Idempotency-Key` finds the first request's invocation. */
  readonly idempotencyMs: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/**
 * One day to look at an invocation's events, one week at its record and its function's log. 32 MiB and about 100,000 events are far more
 * than a model's context can stream, and bound what one invocation costs Redis; with all its children it costs twice as much at most.
 */
export const DEFAULT_RETENTION: Retention = {
  recordMs: 7 * DAY_MS,
  eventsMs: DAY_MS,
  maxEvents: 100_000,
  maxBytes: 32 * 1024 * 1024,
  familyBytes: 64 * 1024 * 1024,
  logLines: 2000,
  logMs: 7 * DAY_MS,
  recentInvocations: 200,
  recentMs: 7 * DAY_MS,
  idempotencyMs: DAY_MS,
};
