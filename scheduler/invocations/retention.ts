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
  /** The outcome of an ended invocation; never shorter than its events, of which it is the last. */
  readonly resultsMs: number;
  /** Files of an ended invocation. */
  readonly filesMs: number;
  /** Ended invocations that are listed for a function, for `recordMs` after their submission. Those that have not ended are always listed. */
  readonly listedOfFunction: number;
  /** The same for a tenant. */
  readonly listedOfTenant: number;
  /** For how long after its end a repeated `Idempotency-Key` finds the first request's invocation. */
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
  resultsMs: DAY_MS,
  filesMs: DAY_MS,
  listedOfFunction: 1000,
  listedOfTenant: 10_000,
  idempotencyMs: DAY_MS,
};
