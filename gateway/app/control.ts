import { SCOPES, type Scope } from '#scheduler/tenants/scopes.ts';
import type { Operations } from './control/operations.ts';
import type { Quotas } from './control/quotas.ts';
import type { Alias, DeployReport, DeployTarget, Draining, Releases, Share } from './control/releases.ts';
import type { Secrets } from './control/secrets.ts';
import type { Tenants } from './control/tenants.ts';
import type { ErrorCode } from './errors/codes.ts';

/**
 * What the app needs from the rest of the platform. `gateway/node` implements it on Redis, `gateway/worker.ts` by HTTP to a Node gateway.
 *
 * Every method throws `GatewayError` and nothing else that a client should read; whatever else is thrown becomes `internal`. Every wait
 * ends when `call.signal` aborts, or earlier by a deadline of the implementation's own.
 */
export interface ControlPlane {
  readonly releases: Releases;
  readonly secrets: Secrets;
  readonly tenants: Tenants;
  readonly quotas: Quotas;
  readonly operations: Operations;

  /** Who holds this key, or null. Throws `tenant-suspended`, and `unauthorized` for a key that has expired. */
  authenticate(apiKey: string): Promise<Principal | null>;

  /** Each function that the tenant may invoke, by name: the version that `live` serves most, the newest where it serves none. */
  functions(call: Call): Promise<readonly FunctionVersion[]>;
  /** One version, for whoever looks at it: of an alias, the one that it serves most. Null when there is none. See `Releases.resolve`. */
  function(call: Call, reference: FunctionReference): Promise<FunctionVersion | null>;
  /** All versions, newest first; empty when there is no such function. */
  versions(call: Call, name: string): Promise<readonly FunctionVersion[]>;
  /** Builds and stores a version. Identical content is the same version. Nothing is stored unless it builds. */
  deploy(call: Call, deployment: Deployment): Promise<Deployed>;
  /**
   * Removes a function: nothing new runs it, and its versions go when their invocations have ended; `now` cancels those. What is left to drain,
   * or null when there is no such function.
   */
  removeFunction(call: Call, name: string, now: boolean): Promise<readonly Draining[] | null>;

  /**
   * Creates an invocation and queues it. The input is JSON text that the version's schema has accepted. Throws `idempotency-key-reused`,
   * `idempotency-in-flight` (with the member `invocation`), `invalid-webhook`; then nothing was stored.
   */
  invoke(call: Call, request: InvokeRequest): Promise<Invoked>;
  invocation(call: Call, id: string): Promise<HeldInvocation | null>;
  /**
   * The events after `afterSeq`: those written so far, then live ones. Ends after `result` or `error`. Throws when it cannot go on (the
   * store is gone for longer than a client should wait); the caller may then try again with the last sequence that it saw.
   */
  events(call: Call, id: string, afterSeq: number): AsyncIterable<InvocationEvent>;
  /** Hands a message to the inferlet, or tells it that none will follow. False when there is no such invocation; throws `conflict` when it has ended. */
  sendMessage(call: Call, id: string, message: SessionMessage): Promise<boolean>;
  /** What files an invocation has, by name; null when there is no such invocation. */
  files(call: Call, id: string): Promise<readonly InvocationFile[] | null>;
  /** A file of an invocation, or null when it is not there (any more). Throws `unknown-invocation`. */
  file(call: Call, id: string, name: string): Promise<FileContent | null>;
  /**
   * Puts a file where the inferlet can get it; a name that is taken gets the new content. Null when there is no such invocation; throws
   * `conflict` when it has ended or has too many files, `body-too-large` when all of them together would be.
   */
  putFile(call: Call, id: string, file: FileContent): Promise<InvocationFile | null>;
  /** Asks for cancellation. The state afterwards, or null when there is no such invocation. An ended one stays as it is. */
  cancel(call: Call, id: string, reason: string): Promise<HeldInvocation | null>;

  /** Log lines of a function's invocations (of all functions when null) that pass the filters, then live ones when `follow`. */
  logs(call: Call, name: string | null, options: LogOptions): AsyncIterable<LogEntry>;

  models(call: Call): Promise<readonly ModelInfo[]>;
  /** Whether work can be done, part by part. Never throws. */
  health(): Promise<Health>;
}

export { SCOPES, type Scope };

/** Whom a request acts for. */
export interface Principal {
  readonly tenant: string;
  /** Names the key in logs without revealing it. */
  readonly keyId: string;
  readonly scopes: readonly Scope[];
}

/** What goes with each call into the control plane. */
export interface Call {
  readonly principal: Principal;
  readonly requestId: string;
  /** W3C trace context of this request's span. */
  readonly traceparent: string;
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal;
  /** Takes headers that belong on the answer, whatever it is (those of rate limits). */
  readonly answerHeaders?: ((headers: Readonly<Record<string, string>>) => void) | undefined;
}

export interface FunctionReference {
  readonly name: string;
  /** A version or an alias; `live` when absent. */
  readonly version?: string | undefined;
}

/** Any JSON value, as parsed. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** `pie.json`, checked. The app reads `name` and `input`; the rest is shown as it is. */
export interface FunctionManifest {
  readonly name: string;
  readonly description?: string | undefined;
  /** JSON schema of the input. */
  readonly input?: unknown;
  readonly [member: string]: unknown;
}

export interface FunctionVersion {
  readonly name: string;
  /** Content hash of manifest and component. */
  readonly version: string;
  readonly manifest: FunctionManifest;
  /** sha256 of the component, hexadecimal. */
  readonly componentHash: string;
  readonly componentBytes: number;
  /** ISO 8601. */
  readonly createdAt: string;
  /** Id of the key that deployed it first. */
  readonly createdBy?: string | undefined;
  readonly message?: string | undefined;
  /** What `live` serves of this function, where functions are listed; empty when a bare name means nothing. */
  readonly live?: readonly Share[] | undefined;
  /** The names that serve this version, where versions are listed, with its part of each. */
  readonly aliases?: readonly VersionAlias[] | undefined;
  /** Since when it is quarantined, where functions are listed (ISO 8601); absent when it is not. */
  readonly quarantinedAt?: string | undefined;
  /** Of the platform: it stands in for a function that the tenant does not have. */
  readonly platform?: true;
}

export interface VersionAlias {
  readonly alias: string;
  /** Percent of the alias's invocations. */
  readonly weight: number;
  readonly tag?: true | undefined;
}

export interface Deployment {
  readonly name: string;
  readonly manifest: FunctionManifest;
  readonly component: Uint8Array;
  readonly target: DeployTarget;
}

export interface Deployed {
  readonly function: FunctionVersion;
  /** False when this content was deployed before. */
  readonly created: boolean;
  /** The alias that serves it now; null when the traffic was left alone. */
  readonly alias: Alias | null;
  readonly report: DeployReport;
  /** What the manifest grants, in words. */
  readonly grants: readonly string[];
  readonly warnings: readonly string[];
}

export interface InvokeRequest {
  readonly function: FunctionVersion;
  /** JSON text. */
  readonly input: string;
  /** A second request of the tenant with the same key gets the first one's invocation. */
  readonly idempotencyKey?: string | undefined;
  /** A repeated request joins an invocation that has not ended, instead of being refused with `idempotency-in-flight`. */
  readonly join?: boolean | undefined;
  /** The deadline, from submission; the platform's own without it. */
  readonly cancelAfterMs?: number | undefined;
  /** Where the end is told, as a Standard Webhook. */
  readonly webhookUrl?: string | undefined;
}

/** `replayed`: an earlier request with the same idempotency key has made it. */
export type Invoked = HeldInvocation & { readonly replayed?: true | undefined };

/** How the notification of an end stands; see `WebhookState` of the scheduler. */
export interface WebhookDelivery {
  /** Without query. */
  readonly url: string;
  readonly status: 'waiting' | 'pending' | 'delivered' | 'failed';
  readonly attempts: number;
  /** HTTP status of the last answer. */
  readonly lastStatus: number | null;
  readonly lastError: string | null;
  /** ISO 8601; null when no attempt follows. */
  readonly nextAt: string | null;
}

export type InvocationStatus = 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled';

export interface InvocationState {
  readonly id: string;
  readonly function: string;
  readonly version: string;
  readonly status: InvocationStatus;
  /** The invocation that launched it; absent when a client did. */
  readonly parent?: string | undefined;
  /** ISO 8601. */
  readonly createdAt: string;
  readonly startedAt?: string | undefined;
  readonly endedAt?: string | undefined;
  /** What it returned, once it has succeeded. */
  readonly output?: Json | undefined;
  /** Why it failed, once it has. */
  readonly error?: { readonly code: ErrorCode; readonly message: string } | undefined;
  readonly usage?: Readonly<Record<string, unknown>> | undefined;
  /** Attempts begun; above 1 for a restartable function that was begun again. `usage` is the sum over them. */
  readonly attempts: number;
  /** Sequence number of the last event so far; 0 when there is none. */
  readonly lastEventId: number;
  /** Absent when none was asked for. */
  readonly webhook?: WebhookDelivery | undefined;
}

/** An invocation as a gateway has it: its output may be a `JsonText`. */
export interface HeldInvocation extends Omit<InvocationState, 'output'> {
  readonly output?: unknown;
}

export const EVENT_NAMES = ['start', 'message', 'log', 'metric', 'gap', 'result', 'error'] as const;
export type EventName = (typeof EVENT_NAMES)[number];

export interface InvocationEvent {
  /** From 1 up. Numbers are left out where an attempt was lost with events that nobody keeps (`gap`). */
  readonly seq: number;
  readonly event: EventName;
  /** JSON text on one line. */
  readonly data: string;
}

/** What a client says to a running inferlet. */
export type SessionMessage = { readonly text: string } | { readonly bytes: Uint8Array } | { readonly close: true };

/** A file between a client and its invocation. */
export interface InvocationFile {
  readonly name: string;
  readonly mediaType: string;
  readonly bytes: number;
}

export interface FileContent {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
}

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

export interface LogOptions {
  /** Opaque; from an earlier entry. */
  readonly cursor: string | null;
  readonly follow: boolean;
  /** The newest so many of the past entries. */
  readonly limit: number;
  /** Only this level and worse ones. */
  readonly level: LogLevel;
  /** Only this invocation's. */
  readonly invocation?: string | undefined;
  /** Only lines of this time and later, ms since the epoch. */
  readonly sinceMs?: number | undefined;
  /** Only lines before this time. */
  readonly untilMs?: number | undefined;
  /** Only lines of invocations that are in this state now. */
  readonly status?: InvocationStatus | undefined;
  /** Only lines that hold this text, in upper or lower case. */
  readonly search?: string | undefined;
}

export interface LogEntry {
  readonly cursor: string;
  readonly function: string;
  readonly invocation: string;
  /** ISO 8601. */
  readonly time: string;
  readonly level: LogLevel;
  readonly message: string;
}

export interface ModelInfo {
  readonly name: string;
  /** Tokens that the model was trained to see at once. */
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** Slots of a KV page. */
  readonly pageSize: number;
  readonly pageCount: number;
  readonly traits: readonly string[];
  /** This is another name of that model. */
  readonly aliasOf?: string | undefined;
}

export interface Health {
  readonly ready: boolean;
  readonly checks: readonly { readonly name: string; readonly ok: boolean; readonly detail?: string }[];
}
