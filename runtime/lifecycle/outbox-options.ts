import type { AppendOutcome, NewEvent, Usage } from '#scheduler/invocations/types.ts';
import type { Showing, Unlogged } from '#scheduler/live/server.ts';
import type { Pace } from '#scheduler/policies/paces.ts';

import type { WriteTicks } from './write-ticks.ts';

/** The log of one attempt, as its outbox uses it. */
export interface AttemptLog {
  /** `Invocations.append` of the attempt. @param usage as it was when the last event was added */
  append(firstSeq: number, events: readonly NewEvent[], usage: Usage | undefined): Promise<AppendOutcome>;
  /** `Invocations.report` of the attempt. */
  report(usage: Usage): Promise<AppendOutcome>;
  /** Number of the log's last event; null when the invocation is not this attempt's any more. */
  lastSeq(): Promise<number | null>;
}

/**
 * Why nothing more can be written: another epoch owns the invocation or it has ended (`lost`), its log is full, its tenant may keep no more bytes
 * (`over-quota`; the cause is the `QuotaExceeded`), or the store refused the call.
 */
export type OutboxEnd = 'lost' | 'full' | 'over-quota' | 'broken';

/** What an attempt uses, as its outbox tells it. */
export interface MarkedUsage {
  /** An event is added: what counts as used with it is what has been until here. Called for each one. */
  mark(): void;
  /** What has been used up to the last mark. */
  marked(): Usage | undefined;
}

/** How an attempt shows its events before they are written. */
export interface Shows {
  /** @param unlogged what is shown and not yet in the log */
  begin(unlogged: () => Unlogged): Showing;
  /** When what has been shown is written. */
  readonly ticks: Pick<WriteTicks, 'add' | 'delete'>;
}

export interface OutboxOptions {
  /** By default nothing is shown, and every event is written as soon as it can be. */
  readonly shows?: Shows | undefined;
  /** What the attempt uses; nothing by default. */
  readonly usage?: MarkedUsage;
  /** How fast it may write; as fast as it can by default. Its end does not wait. */
  readonly pace?: Pick<Pace, 'pauseMs' | 'spend'>;
  /** Told once when nothing more can be written. */
  readonly onEnd: (end: OutboxEnd, cause?: unknown) => void;
  /** Whether calls that the store does not answer need not be repeated any more; never by default. */
  readonly abandoned?: () => boolean;
  /** How long the store may need to write what it has acknowledged; 5 s by default: Redis puts a write off for less than 3 s. */
  readonly keepMs?: number;
  /** Bytes of acknowledged events that are kept; 2 MiB by default, more than the largest binary message takes. */
  readonly keepBytes?: number;
}
