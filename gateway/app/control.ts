import type { CheckedFunction } from '#scheduler/functions/input-check.ts';
import type { OpenFeed } from '#scheduler/invocations/follower.ts';
import {
  EVENT_NAMES,
  type EventName,
  type InvocationEvent,
  type InvocationStatus,
  type NewInvocation,
  type Position,
  STATUSES,
  type StartData,
} from '#scheduler/invocations/types.ts';
import type { Versions } from '#scheduler/links/versions.ts';
import type { KeyHolder } from '#scheduler/tenants/api-keys.ts';
import { SCOPES, type Scope } from '#scheduler/tenants/rules.ts';
import { LOG_LEVEL_CASES, type LogLevel } from '#wit/generated/host.ts';
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
 * except that of `events` ends when `call.signal` aborts, or earlier at the implementation's own deadline.
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
  /** Finds one version for display: for an alias, the one with the largest share. Null when absent. `Releases.resolve` draws by share instead. */
  function(call: Call, reference: FunctionReference): Promise<FunctionVersion | null>;
  /** The versions of a function that the tenant may invoke: its own, newest first, then the platform's. Empty when there is none. */
  versions(call: Call, name: string): Promise<readonly FunctionVersion[]>;
  /** Builds and stores a version. Identical content gives the same version. A failed build stores nothing. */
  deploy(call: Call, deployment: Deployment): Promise<Deployed>;
  /**
   * Removes a function. No new invocation runs it; each version is deleted once its invocations have ended. `now` cancels those invocations.
   * Returns the draining versions, or null when there is no such function.
   */
  removeFunction(call: Call, name: string, now: boolean): Promise<readonly Draining[] | null>;

  /**
   * Creates an invocation and queues it. Null when the reference leads to no version. Stores nothing when it throws the error of
   * `request.check`, `idempotency-key-reused`, `idempotency-in-flight` (with the member `invocation`) or `invalid-webhook`.
   */
  invoke(call: Call, request: InvokeRequest): Promise<Invoked | null>;
  invocation(call: Call, id: string): Promise<HeldInvocation | null>;
  /** The invocation's input as JSON text. Null for an unknown invocation; throws `unknown-input` when the input was not stored, or was deleted. */
  input(call: Call, id: string): Promise<string | null>;
  /**
   * Deletes the events of an ended invocation, with its outcome, and its input; its record stays. False for an unknown invocation. Throws `conflict`
   * when the invocation has not ended.
   */
  deleteEvents(call: Call, id: string): Promise<boolean>;
  /**
   * The events after a position: stored events, then live ones. Ends after `result` or `error`. The caller has found or made the invocation
   * through this interface before, so the implementation need not check its tenant again. `take` throws when Redis stays unreachable for longer
   * than a client should wait; the caller may then open a feed after the last event that it saw. `call.signal` does not end the feed.
   */
  events(call: Call, id: string, after: Position): OpenFeed<InvocationEvent>;
  /**
   * Sends the inferlet a message or the end of messages. A repeat with the same `idempotencyKey` within a minute delivers nothing. False for
   * an unknown invocation. Throws `conflict` when the invocation has ended or the client has already closed its side, `body-too-large`, and
   * `too-many-requests` when too many messages wait.
   */
  sendMessage(call: Call, id: string, message: SessionMessage, idempotencyKey?: string): Promise<boolean>;
  /**
   * Answers the question of a waiting invocation, which then goes on. Returns the state afterwards, or null when there is no such invocation.
   * Throws `not-waiting`, and `invalid-input` for an answer that does not fit the question's schema.
   */
  answer(call: Call, id: string, answer: PersonAnswer): Promise<HeldInvocation | null>;
  /** Lists an invocation's files by name; null when there is no such invocation. */
  files(call: Call, id: string): Promise<readonly InvocationFile[] | null>;
  /** Name, type and size of a file, before a caller reads it; null when it does not exist. Throws `unknown-invocation`. */
  fileInfo(call: Call, id: string, name: string): Promise<InvocationFile | null>;
  /** Reads a file of an invocation; null when it does not exist. Throws `unknown-invocation`. */
  file(call: Call, id: string, name: string): Promise<FileContent | null>;
  /**
   * Stores a file for the inferlet; an existing name gets the new content. Null when there is no such invocation.
   * Throws `conflict` when the invocation has ended or has too many files. Throws `body-too-large` when the files of the invocation, or of its family
   * (its parents and their children), would exceed their limit. Throws `too-many-requests` when the files of the tenant would exceed theirs.
   */
  putFile(call: Call, id: string, file: FileContent): Promise<InvocationFile | null>;
  /** Asks for cancellation. Returns the state after the request, or null when there is no such invocation. An ended invocation stays as it is. */
  cancel(call: Call, id: string, reason: string): Promise<HeldInvocation | null>;

  /**
   * Yields the log lines that pass the filters: those of one function, or of all functions when `name` is null. With `follow`, live lines come after
   * the stored ones. Once the iteration ends or the caller stops it, all bytes that it held in `call.memory` are given back.
   */
  logs(call: Call, name: string | null, options: LogOptions): AsyncIterable<LogEntry>;

  /** Takes machines into the platform. Absent in a gateway that machines cannot join through, such as one in workerd. */
  readonly joining?: {
    /** Versions of the join exchange that this gateway speaks. */
    readonly versions: Versions;
    /** Answers a machine's request; request and answer are sealed under the token. Throws `join-refused` and `conflict`. */
    join(token: string, sealed: string, version: number): Promise<string>;
  };

  models(call: Call): Promise<readonly ModelInfo[]>;
  /** Like `models`, with `unproven` for the models whose last proof failed. Reads more of the platform's state. */
  provenModels(call: Call): Promise<readonly ModelInfo[]>;
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
export {
  EVENT_NAMES,
  type EventName,
  type InvocationEvent,
  type InvocationStatus,
  SCOPES,
  type Scope,
  STATUSES,
  type StartData,
};

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
  /** Counts the bytes that the control plane holds for the answer. A number known in advance is counted before the bytes are read. */
  readonly memory?: Memory | undefined;
  /** Receives headers for the answer, such as those of rate limits. They also go on an error's answer. */
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
  /** Throws when the version does not accept the input. The control plane calls it with the chosen version before it stores anything. */
  readonly check: (version: CheckedFunction) => void;
  /** The input as JSON text. */
  readonly input: string;
  /** A second request of the tenant with the same key gets the first request's invocation. */
  readonly idempotencyKey?: string | undefined;
  /**
   * True when the client uses the idempotency key for this request alone. If this request fails although its invocation was stored, no later request
   * can find that invocation, so the control plane cancels it.
   */
  readonly hasSingleUseKey?: boolean | undefined;
  /** True when a repeated request may get an invocation that has not ended. Otherwise it is refused with `idempotency-in-flight`. */
  readonly join?: boolean | undefined;
  /** True when the gateway calls `events` from the beginning right after this call. The control plane then prepares for that call. */
  readonly isFollowed?: boolean | undefined;
  /** The invocation's deadline, counted from its submission; the platform's default when absent. */
  readonly cancelAfterMs?: number | undefined;
  /** URL that receives a Standard Webhook when the invocation ends. */
  readonly webhookUrl?: string | undefined;
  /** Invocations of the tenant with the same affinity prefer the same GPU host. */
  readonly affinity?: string | undefined;
  /** At most `limit` invocations of the tenant with this key may wait or run at once; the gateway refuses a further one (`concurrency-key-busy`). */
  readonly concurrency?: NewInvocation['concurrency'];
  /**
   * The invocation starts after `delayMs`. Until then, a later invocation of the same function with this key ends it as `superseded` and starts
   * the delay anew, until `maxMs` have passed since the first invocation.
   */
  readonly debounce?: NewInvocation['debounce'];
  /** Name of the schedule that makes the invocation; the platform sets it, never a client. */
  readonly schedule?: string | undefined;
}

/** `replayed` is true when an earlier request with the same idempotency key made the invocation. */
export type Invoked = HeldInvocation & { readonly replayed?: true | undefined };

/** A client's message to a running inferlet, or the end of messages. */
export type SessionMessage = { readonly text: string } | { readonly bytes: Uint8Array } | { readonly close: true };

/** Maximum bytes of a `PersonAnswer` as JSON text. */
export const MAX_ANSWER_BYTES = 64 * 1024;

/** A person's answer to the question of a waiting invocation. */
export interface PersonAnswer {
  /** The answer as JSON text. */
  readonly text: string;
  /** The value of `text`. */
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

/** From the least severe on. */
export const LEVELS = LOG_LEVEL_CASES;
export type { LogLevel };

/** Maximum past log lines of one request. */
export const MAX_LOG_LINES = 10_000;

export interface LogOptions extends Omit<LogQuery, 'since' | 'until' | 'after'> {
  /** Only lines after the entry with this opaque cursor; null for no bound. */
  readonly cursor: string | null;
  readonly follow: boolean;
  /** Only lines of this time and later, in ms since the epoch. */
  readonly sinceMs?: number | undefined;
  /** Only lines before this time, in ms since the epoch. */
  readonly untilMs?: number | undefined;
}
