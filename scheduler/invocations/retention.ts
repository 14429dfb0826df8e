/** Bounds on the size of stored invocation data, and the time (ms) for which Redis keeps the data. */
export interface Retention {
  /** Record of an ended invocation. */
  readonly recordMs: number;
  /** Events of an ended invocation. */
  readonly eventsMs: number;
  /** Approximate number of events that one invocation's log keeps; the oldest are dropped first. */
  readonly maxEvents: number;
  /** Bytes of event data that one invocation may log. */
  readonly maxBytes: number;
  /** Bytes of all events of an invocation and its children, results and 64 bytes per event included. */
  readonly familyBytes: number;
  /** Approximate number of lines that a function's log keeps, over all its invocations. */
  readonly logLines: number;
  /** Function log, counted from its last line. */
  readonly logMs: number;
  /** Outcome of an ended invocation; at least as long as its events, since the outcome is the last of them. */
  readonly resultsMs: number;
  /** Files of an ended invocation. */
  readonly filesMs: number;
  /** Maximum ended invocations in a function's list. The list also drops those without a record. Unended ones stay. */
  readonly listedOfFunction: number;
  /** The same for a tenant's list. */
  readonly listedOfTenant: number;
  /** Time after an invocation's end during which a repeated `Idempotency-Key` finds it. */
  readonly idempotencyMs: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/**
 * One day for an invocation's events, one week for its record and its function's log. 32 MiB and about 100,000 events are far more than a
 * model's context can stream, and bound the Redis memory of one invocation. An invocation and its children take at most twice as much.
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

/** The arguments that follow `now` in `keptFor` of `scripts/include/end-arguments.lua`. */
export function retentionArguments(retention: Retention): (string | number)[] {
  const { recordMs, eventsMs, logLines, logMs, filesMs, resultsMs } = retention;
  return [recordMs, eventsMs, logLines, `${logMs} ${filesMs} ${Math.max(resultsMs, eventsMs)}`];
}
