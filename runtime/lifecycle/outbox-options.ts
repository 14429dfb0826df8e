import type { AppendOutcome, NewEvent, Usage } from '#scheduler/invocations/types.ts';
import type { Showing, Unlogged } from '#scheduler/live/server.ts';
import type { Pace } from '#scheduler/policies/paces.ts';
import type { WriteTicks } from './write-ticks.ts';

/** The log of one attempt, as its outbox uses it. */
export interface AttemptLog {
  /** `Invocations.write` for the attempt. @param usage what `MarkedUsage.marked` returned just before the call */
  append(firstSeq: number, events: readonly NewEvent[], usage: Usage | undefined): Promise<AppendOutcome>;
  /** `Invocations.report` for the attempt. */
  report(usage: Usage): Promise<AppendOutcome>;
  /** Number of the log's last event; null when this attempt no longer owns the invocation. */
  lastSeq(): Promise<number | null>;
}

/**
 * The reason that no more events can be written. `lost`: another attempt owns the invocation, or the invocation has ended. `full`: its log is full.
 * `over-quota`: its tenant's storage quota is used up; `onEnd` gets the `QuotaExceeded` as the cause. `broken`: the store refused the call.
 */
export type OutboxEnd = 'lost' | 'full' | 'over-quota' | 'broken';

/** An attempt's usage, which the outbox writes along with events. */
export interface MarkedUsage {
  /** Copies the present token counts. The outbox calls it whenever it has queued an event, so that a write reports no tokens of later events. */
  mark(): void;
  /** Usage up to now, but with the token counts of the last `mark`. The outbox calls it for each write. Undefined while there is none to report. */
  marked(): Usage | undefined;
}

/** Shows an attempt's events to the readers that follow its log, before the events are written. */
export interface Shows {
  /** Begins to show events. @param unlogged returns the events that are shown and not yet in the log */
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
  /**
   * Longest time that the store needs to write an acknowledged event to disk; 5 s by default, as Redis takes less than 3 s. Until then the
   * store may lose the event, so the outbox keeps it, to write it again.
   */
  readonly keepMs?: number;
  /** Maximum bytes of kept events; 2 MiB by default, more than the largest binary message takes. The outbox drops older events beyond it. */
  readonly keepBytes?: number;
}
