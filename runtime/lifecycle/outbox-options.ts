import type { AppendOutcome, NewEvent, Usage } from '#scheduler/invocations/types.ts';
import type { Showing, Unlogged } from '#scheduler/live/server.ts';
import type { Pace } from '#scheduler/policies/paces.ts';
import type { WriteTicks } from './write-ticks.ts';

/** The log of one attempt, as its outbox uses it. */
export interface AttemptLog {
  /** `Invocations.append` of the attempt. @param usage usage at the time when the last event was added */
  append(firstSeq: number, events: readonly NewEvent[], usage: Usage | undefined): Promise<AppendOutcome>;
  /** `Invocations.report` of the attempt. */
  report(usage: Usage): Promise<AppendOutcome>;
  /** Number of the log's last event; null when this attempt no longer owns the invocation. */
  lastSeq(): Promise<number | null>;
}

/**
 * The reason that no more events can be written. `lost`: another epoch owns the invocation, or the invocation has ended. `full`: its log is full.
 * `over-quota`: its tenant's storage quota is used up; the cause is the `QuotaExceeded`. `broken`: the store refused the call.
 */
export type OutboxEnd = 'lost' | 'full' | 'over-quota' | 'broken';

/** An attempt's usage, as its outbox reports it. */
export interface MarkedUsage {
  /** Marks the usage that is reported with an added event. Called for each event. */
  mark(): void;
  /** Usage up to the last mark. */
  marked(): Usage | undefined;
}

/** Shows an attempt's events to followers before they are written. */
export interface Shows {
  /** @param unlogged returns the events that are shown and not yet in the log */
  begin(unlogged: () => Unlogged): Showing;
  /** Triggers the writes of shown events. */
  readonly ticks: Pick<WriteTicks, 'add' | 'delete'>;
}

export interface OutboxOptions {
  /** By default no events are shown early, and each event is written as soon as possible. */
  readonly shows?: Shows | undefined;
  /** The attempt's usage; none by default. */
  readonly usage?: MarkedUsage;
  /** Limits the rate of writes; unlimited by default. The terminal event does not wait for the pace. */
  readonly pace?: Pick<Pace, 'pauseMs' | 'spend'>;
  /** Called once when no more events can be written. */
  readonly onEnd: (end: OutboxEnd, cause?: unknown) => void;
  /** True when the outbox may give up calls that the store does not answer; never by default. */
  readonly isAbandoned?: () => boolean;
  /** Longest time that the store needs to write acknowledged events to disk; 5 s by default: Redis puts a write off for less than 3 s. */
  readonly keepMs?: number;
  /** Maximum bytes of acknowledged events that are kept; 2 MiB by default, more than the largest binary message takes. */
  readonly keepBytes?: number;
}
