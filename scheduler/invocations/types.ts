import type { Standing } from '../quarantine/policy.ts';
import type { PageLimit, QuotaUse } from '../quotas/exceeded.ts';

/** States of an invocation. The last three are final. */
export type InvocationStatus = 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled';

/** Why an invocation did not succeed. */
export const FAILURE_CODES = [
  'inferlet-error',
  'trap',
  'invalid-result',
  'cpu-limit',
  'memory-limit',
  'output-limit',
  'deadline-exceeded',
  'cancelled',
  'terminated',
  'quota-tokens',
  'quota-gpu-time',
  'quota-cpu-time',
  'quota-pages',
  'quota-storage',
  'device-lost',
  'runtime-lost',
  'quarantined',
  'artifact-unavailable',
  'internal',
] as const;

export type FailureCode = (typeof FAILURE_CODES)[number];

/** Kinds of event in an invocation's log; `result` and `error` are terminal, `gap` stands for events of a lost attempt that readers may have been shown. */
export type EventName = 'start' | 'message' | 'log' | 'metric' | 'gap' | 'result' | 'error';

/** One event of an invocation, numbered from 1; numbers are left out only before a `gap`, and before the end of an invocation whose log took no more. */
export interface InvocationEvent {
  readonly seq: number;
  readonly event: EventName;
  /** JSON text. */
  readonly data: string;
}

/** An event to append; its number follows from its place. */
export type NewEvent = Omit<InvocationEvent, 'seq'>;

/** The event that ends an invocation. `code` says why it failed and is required with `error`. */
export type TerminalEvent =
  | { readonly event: 'result'; readonly data: string }
  | { readonly event: 'error'; readonly data: string; readonly code: FailureCode; readonly message: string };

/** What an invocation used; numbers by name, with units in the names (`inputTokens`, `cpuMs`, `kvPagesPeak`). */
export type Usage = Readonly<Record<string, number>>;

/** Limits of one invocation, all resolved. */
export interface InvocationLimits {
  /** CPU time of the inferlet's own code. */
  readonly cpuMs: number;
  /** Wall time from the start of the attempt. */
  readonly wallMs: number;
  readonly memoryMb: number;
  /** KV pages that it may hold at once. */
  readonly pages: number;
  /** Tokens that it may embed and sample. */
  readonly tokens: number;
  /** Its queues' priorities are held within ±this; the GPU host's default without it. */
  readonly maxPriority?: number;
}

/** What the gateway knows when it accepts a request. */
export interface NewInvocation {
  readonly id: string;
  readonly tenant: string;
  readonly function: string;
  readonly version: string;
  /** Whose function it is; refused unless that tenant has this version of it deployed. Not looked at when absent. */
  readonly functionOwner?: string;
  /** Milliseconds since the Unix epoch. */
  readonly submittedAt: number;
  /** From submission to the end, waiting included. */
  readonly deadlineMs: number;
  /** Whether a second attempt may run when the first is lost. */
  readonly restartable: boolean;
  /** A second request with the same key (in the tenant) gets the first one's invocation. */
  readonly idempotencyKey?: string;
  /** What tells requests with the same key apart: a hash of function and body (`fingerprintOf`). */
  readonly fingerprint?: string;
  /** Where its end is told, see `../webhooks`. */
  readonly webhookUrl?: string;
}

/** A child of a running invocation. Its runtime runs it at once: it waits in no line. */
export interface NewChild extends Omit<NewInvocation, 'idempotencyKey' | 'fingerprint' | 'webhookUrl' | 'restartable'> {
  readonly parent: string;
  /** Epoch of the parent's running attempt; a child of an older one is refused. */
  readonly parentEpoch: number;
  /** The invocation that was admitted, at the head of its line of parents. */
  readonly root: string;
  /** The root's place in line. */
  readonly arrival: number;
  /** Runs parent and child. */
  readonly runtimeId: string;
}

/** The record of an invocation. */
export interface Invocation extends Omit<NewInvocation, 'idempotencyKey' | 'fingerprint' | 'webhookUrl'> {
  /** Who launched it; null when a client did. */
  readonly parent: string | null;
  /** The first of its parents; null when a client launched it. */
  readonly root: string | null;
  readonly status: InvocationStatus;
  /** First come, first served: place in the line of all invocations. */
  readonly arrival: number;
  /** Grows with every attempt, and when the platform ends it; no two attempts have the same, not even when Redis lost that one began. */
  readonly epoch: number;
  /** Attempts begun. */
  readonly attempts: number;
  /** Number of the last event. */
  readonly seq: number;
  /** Runtime of the current or last attempt. */
  readonly runtimeId: string | null;
  /** Start of the current or last attempt. */
  readonly startedAt: number | null;
  readonly endedAt: number | null;
  readonly cancelReason: string | null;
  readonly failure: { readonly code: FailureCode; readonly message: string } | null;
  readonly usage: Usage | null;
  readonly webhook: WebhookState | null;
}

/**
 * How the notification of an invocation's end stands. `waiting`: it has not ended. `pending`: the next attempt is made at `nextAt`. `failed`: no
 * attempt follows.
 */
export interface WebhookState {
  readonly url: string;
  readonly status: 'waiting' | 'pending' | 'delivered' | 'failed';
  /** Attempts made. */
  readonly attempts: number;
  /** HTTP status of the last answer; null when there was none. */
  readonly lastStatus: number | null;
  /** Why the last attempt failed. */
  readonly lastError: string | null;
  /** Milliseconds since the Unix epoch; null when no attempt follows. */
  readonly nextAt: number | null;
}

/** Which invocations are listed, newest first. */
export interface ListQuery {
  readonly function?: string | undefined;
  /** Empty or absent for all. */
  readonly statuses?: readonly InvocationStatus[] | undefined;
  readonly limit: number;
  /** Of an earlier page. */
  readonly cursor?: string | undefined;
}

export interface ListPage {
  /** May be fewer than were asked for while `cursor` says that more follow: one call looks at a bounded number. */
  readonly invocations: readonly Invocation[];
  readonly cursor: string | null;
}

/** `quotas`: those that count and bind, this request included. */
export type CreateOutcome =
  | { readonly created: true; readonly arrival: number; readonly quotas: readonly QuotaUse[] }
  /** The idempotency key is taken by this invocation; nothing was stored. */
  | { readonly created: false; readonly id: string; readonly quotas: readonly QuotaUse[] };

/** What quotas leave to an attempt at its beginning; null for no limit. */
export interface AttemptLimits {
  /** The least that the windows of the token quotas have left. */
  readonly tokensLeft: number | null;
  /** When that window ends, milliseconds since the epoch. */
  readonly tokensUntil: number | null;
  /** KV pages that the tenant may hold at once. */
  readonly kvPages: PageLimit;
}

export type AttemptOutcome =
  | ({
      readonly epoch: number;
      /** Number of the attempt's first event. */
      readonly nextSeq: number;
      readonly attempt: number;
      /** Since when it waited for this attempt, milliseconds since the epoch. */
      readonly queuedAt: number;
      /** What the attempts before it have used; null when there was none. */
      readonly usageBefore: Usage | null;
      /** How its version stands. */
      readonly standing: Standing;
    } & AttemptLimits)
  /** `not-held`: the runtime was declared dead, or the job is not in its hands (any more); somebody else runs it. */
  | { readonly refused: 'ended' | 'already-ran' | 'unknown' | 'not-held' };

/** In whose name something is written that others read: once that attempt is over, nothing more is. */
export interface AttemptName {
  /** Of the invocation. */
  readonly id: string;
  readonly epoch: number;
}

/** Like an attempt that has begun. `parent-ended`: the parent's attempt is over, or was never known to this Redis. */
export type ChildOutcome =
  | ({ readonly epoch: number; readonly nextSeq: number; readonly standing: Standing } & AttemptLimits)
  | { readonly refused: 'parent-ended' | 'already-ran' | 'not-deployed' };

/**
 * `stale`: a newer epoch owns the invocation (this attempt must stop). `ended`: it has its terminal event.
 * `full`: the byte limit of the log, or of all logs of its root's family, would be passed (end the invocation with `output-limit`).
 */
export type AppendOutcome = 'ok' | 'stale' | 'ended' | 'full';
export type FinishOutcome = 'ok' | 'stale' | 'ended' | 'full';
export type FailOutcome = 'ok' | 'ended' | 'unknown';

/** How many attempts a restartable invocation gets: a second loss may be chance, a third is its own doing. */
export const MAX_ATTEMPTS = 3;

/**
 * `requeued`: it waits again; the attempt is over. `not-restartable`, `no-attempts-left`: the attempt ends the invocation itself. `cancelled`:
 * a cancel is under way; end it as cancelled. `stale`, `ended`: like an append's.
 */
export const REQUEUE_OUTCOMES = [
  'requeued',
  'not-restartable',
  'no-attempts-left',
  'cancelled',
  'stale',
  'ended',
] as const;
export type RequeueOutcome = (typeof REQUEUE_OUTCOMES)[number];

/** Whether an event ends the log. */
export function isTerminal(event: EventName): event is 'result' | 'error' {
  return event === 'result' || event === 'error';
}

/** Whether an invocation in this state will change no more. */
export function hasEnded(status: InvocationStatus): boolean {
  return status === 'succeeded' || status === 'failed' || status === 'cancelled';
}
