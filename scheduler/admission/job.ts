import type { InvocationLimits, LatencyTargets } from '../invocations/types.ts';

/** Data for the attempt after a question to a person: the state that the asking attempt left, and the answer as JSON text. */
export interface Resumption {
  readonly state: string;
  readonly answer: { readonly tag: 'answered'; readonly val: string } | { readonly tag: 'expired' };
}

/** The data of a BullMQ job: everything that a runtime needs to run one invocation. */
export interface InvocationJob {
  /** Id of the invocation, and of the job. */
  readonly id: string;
  readonly tenant: string;
  readonly function: string;
  readonly version: string;
  /** JSON text, checked against the manifest's schema. */
  readonly input: string;
  /** Place in the order of all invocations; `Invocations.create` assigns it. */
  readonly arrival: number;
  /** Milliseconds since the Unix epoch. */
  readonly submittedAt: number;
  /** Time allowed from submission to the end, including waiting. */
  readonly deadlineMs: number;
  readonly limits: InvocationLimits;
  /** Latency targets that the tenant's quota granted to the invocation or, for a child, to its root. */
  readonly latency?: LatencyTargets;
  /** True when another attempt may begin after an attempt was lost, or was ended to make room for other invocations. */
  readonly restartable?: boolean;
  /** Invocation that launched this child; a child is in no queue. */
  readonly parent?: string;
  /** For a child: the tenant that owns the function. */
  readonly functionOwner?: string;
  /** Key by which admission placed the invocation (`chosenKey`); absent when its id is the key, and with placement by tenant. */
  readonly placement?: string;
  /** State and answer of the last question to a person; absent when the invocation has asked nothing. */
  readonly resumption?: Resumption;
  /** Channel of the process that submitted the invocation and follows it. */
  readonly submitter?: string;
  /** W3C `traceparent` of the request. */
  readonly traceparent?: string;
  /**
   * Token of the call (`JobFetcher.take`) in which a runtime took the job from the queue. An attempt begins only if the
   * runtime still holds the job under this token. The job in the queue has no token: `JobFetcher` adds it to the job
   * that it returns.
   */
  readonly fetchToken?: string;
}

/** Reason for a running invocation to stop; the `reason` of the signal that `run` gets. */
export interface StopReason {
  /** `cancelled` by a client, `deadline-exceeded`, `runtime-lost` (another runtime owns the invocation: stop writing), `terminated` by a drain. */
  readonly code: 'cancelled' | 'deadline-exceeded' | 'runtime-lost' | 'terminated';
  readonly message: string;
}

/** Key of runtime memory, in MiB, among counts of pages by model. No model has such a name. */
export const MEMORY = '#memory';

/** Part of slots and pages kept for tenants that hold little, so a newcomer need not wait for another tenant's invocation to end. */
export const DEFAULT_RESERVE = 1 / 16;

/** Peak usage of a run, including its children. */
export interface Peak {
  /** KV pages by model. */
  readonly pages: Readonly<Record<string, number>>;
  readonly memoryMb: number;
}

/** Redis forgets the learned peaks of a version this long after its last run. */
export const LEARNED_MS = 30 * 86_400_000;

/** Arguments that pass a peak to a script: each model, and `MEMORY`, followed by its peak, rounded up. */
export function peakPairs({ pages, memoryMb }: Peak): (string | number)[] {
  return Object.entries({ ...pages, [MEMORY]: memoryMb }).flatMap(([model, peak]) => [
    model,
    Math.max(0, Math.ceil(peak)),
  ]);
}
