import type { Usage } from '#scheduler/invocations/types.ts';
import type { PageLimit } from '#scheduler/quotas/exceeded.ts';
import type { ObservedRun } from '../telemetry/run-observer.ts';
import type { AttemptMeter } from './attempt-store.ts';
import type { ChildAttempt } from './child-runs.ts';
import type { Outbox } from './outbox.ts';

/** An attempt that the store has begun. */
export interface Attempt extends Omit<ChildAttempt, 'begin'> {
  readonly epoch: number;
  /** 1 for the first attempt. */
  readonly number: number;
  /** KV pages that the tenant may hold. */
  readonly kvPages: PageLimit;
  /** Tokens of the tenant's quotas that the attempt was granted at its beginning; null without a token quota. */
  readonly tokenCeiling: number | null;
  /** When the invocation began to wait for this attempt, milliseconds since the Unix epoch. */
  readonly queuedAt: number;
  /** Usage of the earlier attempts; null for a first attempt. */
  readonly usageBefore: Usage | null;
  /** Reports usage to the store and handles the replies. */
  readonly meter: AttemptMeter;
  /**
   * When the runtime was ready to begin the attempt, milliseconds since the Unix epoch: it then asks the store, unless the store began the attempt
   * with the fetch. A wait in a crowd of launches (`Launches.crowd`) is over by then. The wall time of the run begins later, when the instance is
   * ready.
   */
  readonly startedAt: number;
  /** The platform's clock; `startedAt` is a time of this clock. */
  readonly clock: () => number;
  readonly outbox: Outbox;
  readonly observed: ObservedRun | undefined;
}
