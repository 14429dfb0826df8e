import { STANDINGS, type Standing } from '../quarantine/policy.ts';
import { type Metered, optionalNumber, pageLimitOf } from '../quotas/exceeded.ts';
import { SequenceGap, StoreError } from '../store/errors.ts';
import type { Store } from '../store/store.ts';
import type { AttemptLimits, FailureCode } from './types.ts';

/** The answer to a call that reported no usage. */
export function unmetered<Outcome>(outcome: Outcome): Metered<Outcome> {
  return { outcome, exceeded: null, tokens: null, kvPages: null };
}

/** Parses the reply of `attemptLimits` in the scripts. */
export function attemptLimits([ceiling, pages, readAt]: readonly unknown[]): AttemptLimits {
  return { tokenCeiling: optionalNumber(ceiling), kvPages: pageLimitOf(pages, readAt) };
}

/** Parses the reply of `standingOf` in the scripts. */
export function standingFrom(value: unknown): Standing {
  const standing = STANDINGS.find((one) => one === value);
  if (standing === undefined) throw unexpected('standing', value);
  return standing;
}

/** A text of a reply; undefined for '', which scripts return for an absent text. */
export function optionalText(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Returns a reply that must be a list. */
export function tuple(reply: unknown): unknown[] {
  if (!Array.isArray(reply)) throw unexpected('script', reply);
  return reply;
}

/** The error for a reply `[-3, number of the last event]`; null for any other reply. */
export function gap(id: string, seq: number, reply: unknown): SequenceGap | null {
  if (!Array.isArray(reply) || reply[0] !== -3 || typeof reply[1] !== 'number') return null;
  const lastSeq = reply[1];
  return new SequenceGap(
    `Event ${seq} of invocation ${id} does not follow ${lastSeq}, the last one of its log.`,
    lastSeq,
  );
}

/** The error for a reply that the script never gives. */
export function unexpected(script: string, reply: unknown): StoreError {
  return new StoreError('store-corrupt', `The script ${script} answered ${JSON.stringify(reply)}.`);
}

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

/** The first keys and arguments of a script that may end one invocation; `endings.lua` reads them. */
export function endingArguments(
  store: Store,
  retention: Retention,
  id: string,
): { keys: string[]; args: (string | number)[] } {
  const { keys } = store;
  return {
    keys: [keys.invocation(id), keys.events(id), keys.inbox(id), keys.deadlines],
    args: [id, keys.live(id), keys.inboxChannel(id), store.clock(), ...retentionArguments(retention)],
  };
}

/** Data of the `error` event with which the platform ends an invocation. */
export function errorData(code: FailureCode, message: string): string {
  return JSON.stringify({ code, message });
}
