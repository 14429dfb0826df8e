import type { InvocationLimits } from '../invocations/types.ts';

/** What a runtime needs to run one invocation; the data of its BullMQ job. */
export interface InvocationJob {
  /** Id of the invocation, and of the job. */
  readonly id: string;
  readonly tenant: string;
  readonly function: string;
  readonly version: string;
  /** JSON text, checked against the manifest's schema. */
  readonly input: string;
  /** First come, first served: `Invocations.create` gives it. */
  readonly arrival: number;
  /** Milliseconds since the Unix epoch. */
  readonly submittedAt: number;
  /** From submission to the end, waiting included. */
  readonly deadlineMs: number;
  readonly limits: InvocationLimits;
  /** Whether it may begin again when an attempt is ended for others, or lost. */
  readonly restartable?: boolean;
  /** Set for a child, which is in no queue: who launched it. */
  readonly parent?: string;
  /** Of a child: the tenant whose function it is. */
  readonly functionOwner?: string;
  /** W3C `traceparent` of the request. */
  readonly traceparent?: string;
  /** With which its runtime fetched it: that alone may begin it. Not in the queue. */
  readonly fetchToken?: string;
}

/** Why a running invocation was told to stop; the `reason` of the signal that `run` gets. */
export interface StopReason {
  /** `cancelled` by a client, `deadline-exceeded`, `runtime-lost` (another runtime owns it now: say nothing more), `terminated` by a drain. */
  readonly code: 'cancelled' | 'deadline-exceeded' | 'runtime-lost' | 'terminated';
  readonly message: string;
}
