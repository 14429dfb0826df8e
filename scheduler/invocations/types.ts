import type { Standing } from '../quarantine/policy.ts';
import type { PageLimit, QuotaUse } from '../quotas/exceeded.ts';
import { ENDING_QUOTA_CODES } from '../quotas/names.ts';
import type { Usage } from '../usage/metered.ts';

export type { Usage };

/** States of an invocation. In the state `waiting`, it waits for a person's answer. The last three states are final. */
export const STATUSES = ['queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled'] as const;
export type InvocationStatus = (typeof STATUSES)[number];

/** Pattern of an invocation's id. */
export const INVOCATION_ID = /^[A-Za-z0-9_-]{1,128}$/;
/** `<submission time>.<id>` of the last invocation that a page of a list looked at. */
export const INVOCATION_CURSOR = /^(\d{1,15})\.([A-Za-z0-9_-]{1,128})$/;

/** Reasons for which an invocation did not succeed. */
export const FAILURE_CODES = [
  'inferlet-error',
  'trap',
  'invalid-result',
  'cpu-limit',
  'memory-limit',
  'output-limit',
  'deadline-exceeded',
  'cancelled',
  'superseded',
  'terminated',
  'unavailable',
  ...ENDING_QUOTA_CODES,
  'quota-pages',
  'quota-storage',
  'device-lost',
  'runtime-lost',
  'quarantined',
  'artifact-unavailable',
  'internal',
] as const;

export type FailureCode = (typeof FAILURE_CODES)[number];

/**
 * Kinds of event in a log. `question` ends an attempt that asks a person. `result` and `error` are terminal. `gap` replaces events of a lost
 * attempt that readers may have seen.
 */
export const EVENT_NAMES = ['start', 'message', 'log', 'metric', 'gap', 'question', 'result', 'error'] as const;
export type EventName = (typeof EVENT_NAMES)[number];

/**
 * One event, numbered from 1. An attempt may show events to followers before the log has stored them. Numbers are skipped only before a `gap`,
 * and before a terminal event when the log has refused events that followers had been shown.
 */
export interface InvocationEvent {
  readonly seq: number;
  /** Epoch of the attempt that the event belongs to. */
  readonly epoch: number;
  readonly event: EventName;
  /** JSON text. */
  readonly data: string;
}

/** An event to append; its position determines its number. */
export type NewEvent = Omit<InvocationEvent, 'seq' | 'epoch'>;

/**
 * A reader's position: the reader has the events up to number `seq`, which belongs to the attempt `epoch`. A Redis that loses writes may lose
 * events that the reader has, and a later attempt then uses their numbers; `epoch` tells the two attempts apart. `epoch` is null for a reader
 * that knows only a number.
 */
export interface Position {
  readonly epoch: number | null;
  readonly seq: number;
}

/** The event that ends an invocation. `code` is the failure reason, required with `error`. */
export type TerminalEvent =
  | { readonly event: 'result'; readonly data: string }
  | { readonly event: 'error'; readonly data: string; readonly code: FailureCode; readonly message: string };

/** Limits of one invocation, with all defaults filled in. */
export interface InvocationLimits {
  /** CPU time of the inferlet's own code. */
  readonly cpuMs: number;
  /** Wall time from the start of the attempt. */
  readonly wallMs: number;
  readonly memoryMb: number;
  /** KV pages of each model that the invocation may hold at once. */
  readonly pages: number;
  /**
   * For `limits.pages: "context"`: number of whole contexts of its largest model that the invocation may hold. The runtime, which knows the models,
   * raises `pages` to them.
   */
  readonly contexts?: number;
  /** Tokens that the invocation may embed and sample. */
  readonly tokens: number;
  /** The GPU host clamps the priorities of the invocation's command queues to ±this; without it, to ± the host's default. */
  readonly maxPriority?: number;
}

/** Latency targets of an invocation's calls on a GPU host, milliseconds. */
export interface LatencyTargets {
  /** From the arrival of a prompt on the GPU host to the end of the step that computes the prompt. */
  readonly firstTokenMs: number;
  /** The same for each later token. */
  readonly perTokenMs: number;
}

/** A new invocation as the gateway accepts it. */
export interface NewInvocation {
  readonly id: string;
  readonly tenant: string;
  readonly function: string;
  readonly version: string;
  /** Owner of the function. The store refuses the invocation unless that tenant has this version deployed; not checked when absent. */
  readonly functionOwner?: string;
  /** Milliseconds since the Unix epoch. */
  readonly submittedAt: number;
  /** Time allowed from submission to the end, including waiting. */
  readonly deadlineMs: number;
  /** True when another attempt may begin after one is lost or ended to make room. */
  readonly restartable: boolean;
  /** A second request with the same key (in the tenant) gets the first one's invocation. */
  readonly idempotencyKey?: string;
  /** Hash of function and body (`fingerprintOf`), which distinguishes requests with the same key. */
  readonly fingerprint?: string;
  /** URL that is notified of the invocation's end, see `../webhooks`. */
  readonly webhookUrl?: string;
  /** Invocations of the tenant with the same affinity run on the same GPU host while it has room. */
  readonly affinity?: string;
  /** At most `limit` invocations of the tenant with this key wait or run at once; the store refuses another one. */
  readonly concurrency?: { readonly key: string; readonly limit: number };
  /**
   * The invocation waits for `delayMs`. A later one of the same function with this key takes its place and starts the delay anew. The last delay
   * ends at most `maxMs` after the first submission.
   */
  readonly debounce?: { readonly key: string; readonly delayMs: number; readonly maxMs: number };
  /** Name of the schedule that made the invocation; absent for one of a client. */
  readonly schedule?: string;
}

/** A child of a running invocation. The parent's runtime runs it at once, without a queue. */
export interface NewChild
  extends Omit<
    NewInvocation,
    | 'idempotencyKey'
    | 'fingerprint'
    | 'webhookUrl'
    | 'affinity'
    | 'concurrency'
    | 'debounce'
    | 'schedule'
    | 'restartable'
  > {
  readonly parent: string;
  /** Epoch of the parent's running attempt; the store refuses a child of an older attempt. */
  readonly parentEpoch: number;
  /** The topmost ancestor: the invocation that was admitted. A root and all its descendants are a family, which shares some limits. */
  readonly root: string;
  /** Arrival number of the root. */
  readonly arrival: number;
  /** Runtime that runs parent and child. */
  readonly runtimeId: string;
}

/** The record of an invocation. Times are milliseconds since the Unix epoch. */
export interface Invocation
  extends Omit<
    NewInvocation,
    'idempotencyKey' | 'fingerprint' | 'webhookUrl' | 'affinity' | 'concurrency' | 'debounce' | 'schedule'
  > {
  /** Name of the schedule that made the invocation; null when none did. */
  readonly schedule: string | null;
  /** Parent invocation; null when a client launched this one. */
  readonly parent: string | null;
  /** Topmost ancestor; null when a client launched this invocation. */
  readonly root: string | null;
  /**
   * With placement by invocation, the key by which admission chose the GPU host (`chosenKey` in ../admission/needs.lua): the key of an affinity,
   * or a key that names a host. Null when the invocation's id served as the key. Also null before admission, with placement by tenant, and for a
   * child.
   */
  readonly placement: string | null;
  readonly status: InvocationStatus;
  /** Place in the order of all invocations (first come, first served). */
  readonly arrival: number;
  /** Grows with every attempt, and when the platform ends the invocation. Unique per attempt, even if Redis forgets an attempt. */
  readonly epoch: number;
  /** Number of attempts that have begun since the last wait for a person; without such a wait, number of all attempts. */
  readonly attempts: number;
  /** Number of the last event. */
  readonly seq: number;
  /** Runtime of the current or last attempt. */
  readonly runtimeId: string | null;
  /** Start of the current or last attempt. */
  readonly startedAt: number | null;
  readonly endedAt: number | null;
  readonly cancelReason: string | null;
  /** End of the debounce delay; null when the invocation does not wait for one. */
  readonly notBefore: number | null;
  /** The later invocation with the same debounce key that took its place; null when none did. */
  readonly successor: string | null;
  /** The question whose answer the invocation waits for; null when it waits for none. */
  readonly question: Question | null;
  readonly failure: { readonly code: FailureCode; readonly message: string } | null;
  /** Bytes of the data of the `result` event; 0 without such an event. */
  readonly resultBytes: number;
  readonly usage: Usage | null;
  readonly webhook: WebhookState | null;
}

/** A question to a person, as the event `question` has it. */
export interface Question {
  readonly text: string;
  /** JSON Schema of the answer. */
  readonly schema: Readonly<Record<string, unknown>>;
  /** End of the wait, ISO 8601. */
  readonly until: string;
}

export const WEBHOOK_STATUSES = ['waiting', 'pending', 'delivered', 'failed'] as const;

/**
 * State of the notification of an invocation's end. `waiting`: the invocation has not ended. `pending`: the next attempt is due at
 * `nextAt`. `failed`: no attempt follows.
 */
export interface WebhookState {
  readonly url: string;
  readonly status: (typeof WEBHOOK_STATUSES)[number];
  /** Delivery attempts made. */
  readonly attempts: number;
  /** HTTP status of the last answer; null when there was none. */
  readonly lastStatus: number | null;
  /** Error of the last attempt. */
  readonly lastError: string | null;
  /** Milliseconds since the Unix epoch; null when no attempt follows. */
  readonly nextAt: number | null;
}

/** Filter of a list of invocations, newest first. */
export interface ListQuery {
  readonly function?: string | undefined;
  /** Empty or absent for all. */
  readonly statuses?: readonly InvocationStatus[] | undefined;
  readonly limit: number;
  /** `ListPage.cursor` of the preceding page; absent for the first page. */
  readonly cursor?: string | undefined;
}

export interface ListPage {
  /** May be fewer than `limit` even when `cursor` is set, since one call looks at a bounded number of invocations. */
  readonly invocations: readonly Invocation[];
  /** Null when no page follows. */
  readonly cursor: string | null;
}

/**
 * Outcome of a submission. `quotas`: the counted quotas that limit this request, and their use. The use includes this request, unless the
 * request found an earlier invocation by its idempotency key.
 */
export type Submitted =
  | {
      readonly created: true;
      readonly id: string;
      readonly arrival: number;
      /** End of the invocation's debounce delay. */
      readonly notBefore?: number;
      readonly quotas: readonly QuotaUse[];
    }
  /** The idempotency key belongs to invocation `id`; nothing was stored. */
  | { readonly created: false; readonly id: string; readonly quotas: readonly QuotaUse[] };

/** Amounts that the quotas leave to an attempt when it begins; null for no limit. */
export interface AttemptLimits {
  /** Tokens that the attempt may charge before it asks for more, see `TokenGrant`. */
  readonly tokenCeiling: number | null;
  /** KV pages that the tenant may hold at once. */
  readonly kvPages: PageLimit;
}

export type AttemptOutcome =
  | ({
      readonly epoch: number;
      /** Number of the attempt's first event. */
      readonly nextSeq: number;
      readonly attempt: number;
      /** Start of the wait for this attempt, milliseconds since the epoch. */
      readonly queuedAt: number;
      /** Usage of the earlier attempts; null for the first attempt. */
      readonly usageBefore: Usage | null;
      /** Standing of the function version. */
      readonly standing: Standing;
    } & AttemptLimits)
  /**
   * `already-ran`: another attempt runs, or the one attempt of an invocation that is not restartable has begun.
   * `ended`: the invocation has ended, or waits for a person. `not-held`: the runtime was declared dead, or does not
   * hold the job; the invocation goes on elsewhere.
   */
  | { readonly refused: 'ended' | 'already-ran' | 'unknown' | 'not-held' };

/** Names the attempt that writes shared data; the store refuses the write once that attempt is over. */
export interface AttemptName {
  /** Id of the invocation. */
  readonly id: string;
  readonly epoch: number;
}

/** Like `AttemptOutcome`. `parent-ended`: the parent's attempt is over, or Redis does not know that attempt. */
export type ChildOutcome =
  | ({ readonly epoch: number; readonly nextSeq: number; readonly standing: Standing } & AttemptLimits)
  | { readonly refused: 'parent-ended' | 'already-ran' | 'not-deployed' };

/**
 * `stale`: the invocation has a newer epoch, so this attempt must stop. `ended`: the invocation has its terminal event.
 * `full`: the write would exceed the byte limit of the log, or that of all logs of the family; the attempt must end the invocation with
 * `output-limit`.
 */
export type AppendOutcome = 'ok' | 'stale' | 'ended' | 'full';
/**
 * `unwritten`: the store refused the attempt's last events, or the result together with them, and wrote no event. The
 * other outcomes are as in `AppendOutcome`.
 */
export type FinishOutcome = 'ok' | 'stale' | 'ended' | 'full' | 'unwritten';
export type FailOutcome = 'ok' | 'ended' | 'unknown';

/** Attempts that a restartable invocation gets: a second loss may be chance, but a third is probably the invocation's fault. */
export const MAX_ATTEMPTS = 3;

/**
 * `requeued`: the invocation waits again; the attempt is over. `not-restartable`, `no-attempts-left`: the attempt must end the invocation.
 * `cancelled`: a cancel is in progress; end the invocation as cancelled. `stale`, `ended`: as in `AppendOutcome`.
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

/** True when an event of this kind ends the log. */
export function isTerminal(event: EventName): event is 'result' | 'error' {
  return event === 'result' || event === 'error';
}

/** True when this state is final. */
export function hasEnded(status: InvocationStatus): boolean {
  return status === 'succeeded' || status === 'failed' || status === 'cancelled';
}

/** Bytes of one file. */
export const MAX_FILE_BYTES = 16 * 1024 * 1024;
/** Bytes of all files of one invocation. */
export const MAX_FILES_BYTES = 64 * 1024 * 1024;
/** Bytes of all files of an invocation and its children together, names and descriptions included. */
export const MAX_FAMILY_FILES_BYTES = 128 * 1024 * 1024;
/** Bytes of all files of one tenant, names and descriptions included. Files of ended invocations count while they are kept. */
export const MAX_TENANT_FILES_BYTES = 1024 * 1024 * 1024;
/** Files of one invocation. */
export const MAX_FILES = 256;
/** Pattern of a file name; restrictive, since names appear in URLs and commands. */
export const FILE_NAME = /^[A-Za-z0-9._-]{1,128}$/;
/** Pattern of a media type, parameters included. */
export const MEDIA_TYPE = /^[\w.+-]{1,64}\/[\w.+-]{1,64}(?:;[\x20-\x7e]{0,120})?$/;

/** Checks a file before the store accepts it. Returns the fault as text, or null. */
export function fileFault(name: string, mediaType: string, size: number): string | null {
  if (!FILE_NAME.test(name))
    return `"${name.slice(0, 130)}" is not a name of a file: 1 to 128 letters, digits, ".", "_", "-".`;
  if (!MEDIA_TYPE.test(mediaType)) return `"${mediaType.slice(0, 130)}" is not a media type, such as "text/plain".`;
  if (size > MAX_FILE_BYTES) return `The file has ${size} bytes; ${MAX_FILE_BYTES} is the limit.`;
  return null;
}

const OUTPUT = '{"output":';
const USAGE = ',"usage":';

/** The data of a `result` event. @param output JSON text */
export const resultData = (output: string, usage: Usage): string =>
  `${OUTPUT}${output}${USAGE}${JSON.stringify(usage)}}`;

/** The output and the usage in the data of a `result` event, as they were written; null for any other data. */
export function partsOf(data: string): { readonly output: string; readonly usage: string } | null {
  // Usage maps names to numbers, so the last match is its beginning.
  const end = data.lastIndexOf(USAGE);
  if (!data.startsWith(OUTPUT) || end < OUTPUT.length) return null;
  return { output: data.slice(OUTPUT.length, end), usage: data.slice(end + USAGE.length, -1) };
}

/** Data of events that runtimes write and others read, as JSON. */

/** Data of `start`. */
export interface StartData {
  readonly invocation: string;
  readonly function: string;
  readonly version: string;
  readonly queuedMs: number;
  readonly coldStart: boolean;
  /** Set from the second attempt on. It takes back earlier attempts' messages, but not those before a `question`. */
  readonly attempt?: number;
  /** The invocation that launched this one. */
  readonly parent?: string;
}

/** Data of `metric`, the times of an attempt in milliseconds. */
export interface MetricData extends LaunchTimings, SpanReport {
  readonly queuedMs: number;
  readonly preemptedMs?: number;
  /** From the start of the program to its first host call. */
  readonly firstCallMs?: number;
}

/** How long the steps before an inferlet's first instruction took, in milliseconds. */
export interface LaunchTimings {
  /** Fetching the component and building its artifact; 0 when the artifact was in memory or on disk. */
  readonly buildMs: number;
  /** Waiting until the sandbox has compiled the core modules; 0 when its pool has the program. */
  readonly compileMs: number;
  /** Making the instance; 0 when the sandbox had a ready instance, made in advance. */
  readonly instantiateMs: number;
}

/** The kept spans in the order of their beginnings, and the number of dropped spans. */
export interface SpanReport {
  readonly spans?: readonly Span[];
  readonly moreSpans?: number;
}

/** A part of an inferlet's work, such as a node of a workflow, as the event `metric` of its attempt reports it. */
export interface Span {
  readonly name: string;
  readonly kind: string;
  /** Milliseconds after the start of the inferlet. */
  readonly fromMs: number;
  readonly toMs: number;
  readonly failed?: true;
}

/** Bounds of the latency targets in milliseconds, as `[minimum, maximum]`. */
export const LATENCY_BOUNDS = {
  firstTokenMs: [1, 60_000],
  perTokenMs: [1, 10_000],
} as const satisfies Record<keyof LatencyTargets, readonly [number, number]>;

/** True when both targets are whole numbers within their bounds. */
export function areLatencyTargets(targets: LatencyTargets): boolean {
  return (['firstTokenMs', 'perTokenMs'] as const).every((name) => {
    const [least, most] = LATENCY_BOUNDS[name];
    return Number.isInteger(targets[name]) && targets[name] >= least && targets[name] <= most;
  });
}
