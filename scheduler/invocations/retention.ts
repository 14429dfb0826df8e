/** Bounds on stored data of invocations. A field in `Ms` is the time for which Redis keeps its data; the other fields bound size or number. */
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
  /** Log of a function, from its last line on. */
  readonly logMs: number;
  /** Outcome of an ended invocation. It is the last of the events, so Redis keeps it at least for `eventsMs`. */
  readonly resultsMs: number;
  /** Files of an ended invocation. */
  readonly filesMs: number;
  /** Maximum ended invocations in a function's list. The list also drops old ones whose record is gone. Invocations that have not ended stay. */
  readonly listedOfFunction: number;
  /** The same for a tenant's list. */
  readonly listedOfTenant: number;
  /** Time after an invocation's end during which a repeated `Idempotency-Key` finds it. */
  readonly idempotencyMs: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/**
 * One day for an invocation's events, one week for its record and its function's log. The bounds of 32 MiB and about 100,000 events limit the
 * memory that one invocation takes in Redis; the output that fits a model's context is far smaller. A family takes at most twice as much.
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

/** The arguments that follow `now` in `keptFor` of `endings.lua`. */
export function retentionArguments(retention: Retention): (string | number)[] {
  const { recordMs, eventsMs, logLines, logMs, filesMs, resultsMs } = retention;
  return [recordMs, eventsMs, logLines, `${logMs} ${filesMs} ${Math.max(resultsMs, eventsMs)}`];
}
