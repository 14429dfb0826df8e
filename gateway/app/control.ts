import type { CheckedFunction } from '#scheduler/functions/input-check.ts';
import type { OpenFeed } from '#scheduler/invocations/feed.ts';
import {
  EVENT_NAMES,
  type EventName,
  type InvocationEvent,
  type InvocationStatus,
  type NewInvocation,
  type Position,
  STATUSES,
} from '#scheduler/invocations/types.ts';
import type { Versions } from '#scheduler/links/versions.ts';
import type { KeyHolder } from '#scheduler/tenants/api-keys.ts';
import { SCOPES, type Scope } from '#scheduler/tenants/scopes.ts';
import type { Memory } from './http/bodies.ts';
import type { Operations } from './resources/operations.ts';
import type { Quotas } from './resources/quotas.ts';
import type { DeployTarget, Draining, Releases } from './resources/releases.ts';
import type { Schedules } from './resources/schedules.ts';
import type { Secrets } from './resources/secrets.ts';
import type { Tenants } from './resources/tenants.ts';
import type { Deployed, FunctionManifest, FunctionVersion } from './schemas/functions.ts';
import type { HeldInvocation, InvocationFile, LogEntry, LogQuery } from './schemas/invocations.ts';
import type { Health, ModelInfo } from './schemas/platform.ts';

/**
 * The app's interface to the rest of the platform. `gateway/node` implements it on Redis, `gateway/worker` by HTTP to a Node gateway.
 *
 * Every method throws `GatewayError` for faults that a client may read; the gateway turns any other error into `internal`. Every wait
 * ends when `call.signal` aborts, or earlier at the implementation's own deadline.
 */
export interface ControlPlane {
  readonly releases: Releases;
  readonly secrets: Secrets;
  readonly tenants: Tenants;
  readonly quotas: Quotas;
  readonly operations: Operations;
  readonly schedules: Schedules;

  /** Resolves to the key's principal, or null for an unknown key. Throws `tenant-suspended`, and `unauthorized` for an expired key. */
  authenticate(apiKey: string): Promise<Principal | null>;

  /** Lists by name the functions that the tenant may invoke. Each entry is the version with the largest share of `live`, or else the newest. */
  functions(call: Call): Promise<readonly FunctionVersion[]>;
  /** Finds one version for display: for an alias, the version with the largest share. Null when absent. See `Releases.resolve`. */
  function(call: Call, reference: FunctionReference): Promise<FunctionVersion | null>;
  /** All versions, newest first; empty when there is no such function. */
  versions(call: Call, name: string): Promise<readonly FunctionVersion[]>;
  /** Builds and stores a version. Identical content gives the same version. A failed build stores nothing. */
  deploy(call: Call, deployment: Deployment): Promise<Deployed>;
  /**
   * Removes a function. No new invocation runs it; its versions go once their invocations have ended. `now` cancels those invocations.
   * Returns the draining versions, or null when there is no such function.
   */
  removeFunction(call: Call, name: string, now: boolean): Promise<readonly Draining[] | null>;

  /**
   * Creates an invocation and queues it. Null when the reference leads to no version. Stores nothing when it throws the error of
   * `request.check`, `idempotency-key-reused`, `idempotency-in-flight` (with the member `invocation`) or `invalid-webhook`.
   */
  invoke(call: Call, request: InvokeRequest): Promise<Invoked | null>;
  invocation(call: Call, id: string): Promise<HeldInvocation | null>;
  /** The input, JSON text. Null for an unknown invocation; throws `unknown-input` when the input is not stored, or was deleted. */
  input(call: Call, id: string): Promise<string | null>;
  /**
   * The events after a position: stored events, then live ones. Ends after `result` or `error`. `take` throws when Redis stays unreachable
   * for longer than a client should wait; the caller may then retry after the last event that it saw. `call.signal` does not end the feed.
   */
  events(call: Call, id: string, after: Position): OpenFeed<InvocationEvent>;
  /**
   * Sends the inferlet a message or the end of messages. A repeat with the same `idempotencyKey` within a minute delivers nothing. False for
   * an unknown invocation; throws `conflict` for an ended one.
   */
  sendMessage(call: Call, id: string, message: SessionMessage, idempotencyKey?: string): Promise<boolean>;
  /**
   * Answers the question of a waiting invocation, which then goes on. Returns the state afterwards, or null when there is no such invocation.
   * Throws `not-waiting`, and `invalid-input` for an answer that the question's schema refuses.
   */
  answer(call: Call, id: string, answer: PersonAnswer): Promise<HeldInvocation | null>;
  /** Lists an invocation's files by name; null when there is no such invocation. */
  files(call: Call, id: string): Promise<readonly InvocationFile[] | null>;
  /** Name, type and size of a file, before a caller reads it; null when it does not exist. Throws `unknown-invocation`. */
  fileInfo(call: Call, id: string, name: string): Promise<InvocationFile | null>;
  /** Reads a file of an invocation; null when it does not exist. Throws `unknown-invocation`. */
  file(call: Call, id: string, name: string): Promise<FileContent | null>;
  /**
   * Stores a file for the inferlet; an existing name gets the new content. Null when there is no such invocation. Throws
   * `conflict` when the invocation has ended or has too many files, `body-too-large` when its files would be too large together.
   */
  putFile(call: Call, id: string, file: FileContent): Promise<InvocationFile | null>;
  /** Asks for cancellation. Returns the state afterwards, or null when there is no such invocation. An ended invocation stays as it is. */
  cancel(call: Call, id: string, reason: string): Promise<HeldInvocation | null>;

  /**
   * Log lines of a function's invocations (of all functions when null) that pass the filters; with `follow`, live lines after them. Gives
   * back all that it holds of `call.memory` when it ends or the caller stops it.
   */
  logs(call: Call, name: string | null, options: LogOptions): AsyncIterable<LogEntry>;

  /** Takes machines into the platform. Absent where no machine can join. */
  readonly joining?: {
    /** Versions of the exchange that this gateway speaks. */
    readonly versions: Versions;
    /** The answer to a machine's request, both sealed under a token. Throws `join-refused` and `conflict`. */
    join(token: string, sealed: string, version: number): Promise<string>;
  };

  models(call: Call): Promise<readonly ModelInfo[]>;
  /** Reports for each part of the platform whether it can do work. Never throws. */
  health(): Promise<Health>;
}

export type { Deployed, FunctionManifest, FunctionVersion, VersionAlias } from './schemas/functions.ts';
export type {
  HeldInvocation,
  InvocationFile,
  InvocationState,
  Json,
  LogEntry,
  WebhookDelivery,
} from './schemas/invocations.ts';
export type { Health, ModelInfo, ModelKind } from './schemas/platform.ts';
export { EVENT_NAMES, type EventName, type InvocationEvent, type InvocationStatus, SCOPES, type Scope, STATUSES };

/** The tenant and key that a request acts for. */
export type Principal = KeyHolder;

/** Context of each call into the control plane. */
export interface Call {
  readonly principal: Principal;
  readonly requestId: string;
  /** W3C trace context of this request's span. */
  readonly traceparent: string;
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal;
  /** The control plane counts here the bytes that it holds for the answer. It counts before it reads when it knows the size. */
  readonly memory?: Memory | undefined;
  /** Receives headers for the answer, whatever its status, such as those of rate limits. */
  readonly answerHeaders?: ((headers: Readonly<Record<string, string>>) => void) | undefined;
}

export interface FunctionReference {
  readonly name: string;
  /** A version or an alias; `live` when absent. */
  readonly version?: string | undefined;
}

export interface Deployment {
  readonly name: string;
  readonly manifest: FunctionManifest;
  readonly component: Uint8Array;
  readonly target: DeployTarget;
}

export interface InvokeRequest {
  readonly function: FunctionReference;
  /** Throws when the version does not accept the input. The gateway that chooses the version calls this before it stores anything. */
  readonly check: (version: CheckedFunction) => void;
  /** JSON text. */
  readonly input: string;
  /** A second request of the tenant with the same key gets the first request's invocation. */
  readonly idempotencyKey?: string | undefined;
  /** True when the key is for this request alone: after an error, no later request finds its invocation. */
  readonly hasSingleUseKey?: boolean | undefined;
  /** True lets a repeated request join an invocation that has not ended; else the gateway refuses it with `idempotency-in-flight`. */
  readonly join?: boolean | undefined;
  /** True when the gateway follows the invocation for its client at once. */
  readonly isFollowed?: boolean | undefined;
  /** Deadline, from submission; the platform's default when absent. */
  readonly cancelAfterMs?: number | undefined;
  /** URL that receives a Standard Webhook when the invocation ends. */
  readonly webhookUrl?: string | undefined;
  /** Invocations of the tenant with the same affinity prefer the same GPU host. */
  readonly affinity?: string | undefined;
  /** At most `limit` invocations of the tenant with this key wait or run at once; the gateway refuses another one (`concurrency-key-busy`). */
  readonly concurrency?: NewInvocation['concurrency'];
  /**
   * The invocation starts after `delayMs`. Until then, a later invocation of the same function with this key ends it as `superseded` and starts
   * the delay anew, until `maxMs` have passed since the first invocation.
   */
  readonly debounce?: NewInvocation['debounce'];
  /** Name of the schedule that makes the invocation; the platform sets it, never a client. */
  readonly schedule?: string | undefined;
}

/** `replayed`: an earlier request with the same idempotency key made the invocation. */
export type Invoked = HeldInvocation & { readonly replayed?: true | undefined };

/** A client's message to a running inferlet, or the end of messages. */
export type SessionMessage = { readonly text: string } | { readonly bytes: Uint8Array } | { readonly close: true };

/** Maximum bytes of a person's answer, as JSON text. */
export const MAX_ANSWER_BYTES = 64 * 1024;

/** The answer of a person. */
export interface PersonAnswer {
  /** JSON text, and the value that it stands for. */
  readonly text: string;
  readonly value: unknown;
  /** Number of the answered question; by default the open one. */
  readonly question?: number | undefined;
}

/** Media type of a file or an answer that states none. */
export const DEFAULT_MEDIA_TYPE = 'application/octet-stream';

export interface FileContent {
  readonly name: string;
  readonly mediaType: string;
  readonly content: Uint8Array;
}

export const LEVELS = ['debug', 'info', 'warn', 'error'] as const;
export type LogLevel = (typeof LEVELS)[number];

/** Maximum past lines of one request. */
export const MAX_LOG_LINES = 10_000;

export interface LogOptions extends Omit<LogQuery, 'since' | 'until' | 'after'> {
  /** Opaque cursor of an earlier entry. */
  readonly cursor: string | null;
  readonly follow: boolean;
  /** Only lines of this time and later, in ms since the epoch. */
  readonly sinceMs?: number | undefined;
  /** Only lines before this time. */
  readonly untilMs?: number | undefined;
}
