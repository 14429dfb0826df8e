import type { Operations } from './control/operations.ts';
import type { Quotas } from './control/quotas.ts';
import type { Releases } from './control/releases.ts';
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

  /** Who holds this key, or null. */
  authenticate(apiKey: string): Promise<Principal | null>;

  /** The newest version of each function that the tenant may invoke, by name. */
  functions(call: Call): Promise<readonly FunctionVersion[]>;
  /** One version, the newest when none is named; null when there is none. */
  function(call: Call, reference: FunctionReference): Promise<FunctionVersion | null>;
  /** All versions, newest first; empty when there is no such function. */
  versions(call: Call, name: string): Promise<readonly FunctionVersion[]>;
  /** Builds and stores a version. Identical content is the same version. Nothing is stored unless it builds. */
  deploy(call: Call, deployment: Deployment): Promise<Deployed>;
  /** Whether there was such a function. */
  removeFunction(call: Call, name: string): Promise<boolean>;

  /** Creates an invocation and queues it. The input is JSON text that the version's schema has accepted. */
  invoke(call: Call, request: InvokeRequest): Promise<InvocationState>;
  invocation(call: Call, id: string): Promise<InvocationState | null>;
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
  cancel(call: Call, id: string, reason: string): Promise<InvocationState | null>;

  /** Log lines of a function's invocations after `cursor` (all kept ones when null), then live ones when `follow`. */
  logs(call: Call, name: string, options: LogOptions): AsyncIterable<LogEntry>;

  models(call: Call): Promise<readonly ModelInfo[]>;
  /** Whether work can be done, part by part. Never throws. */
  health(): Promise<Health>;
}

export const SCOPES = ['invoke', 'deploy', 'admin', 'operator'] as const;
/** What a key may do. `admin` includes `invoke` and `deploy`; `operator` includes `admin`, and acts on every tenant. */
export type Scope = (typeof SCOPES)[number];

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
  /** Of the platform: it stands in for a function that the tenant does not have. */
  readonly platform?: true;
}

export interface Deployment {
  readonly name: string;
  readonly manifest: FunctionManifest;
  readonly component: Uint8Array;
}

export interface Deployed {
  readonly function: FunctionVersion;
  /** False when this content was deployed before. */
  readonly created: boolean;
}

export interface InvokeRequest {
  readonly function: FunctionVersion;
  /** JSON text. */
  readonly input: string;
  /** A second request of the tenant with the same key gets the first one's invocation. */
  readonly idempotencyKey?: string | undefined;
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
  /** Sequence number of the last event so far; 0 when there is none. */
  readonly lastEventId: number;
}

export const EVENT_NAMES = ['start', 'message', 'log', 'metric', 'result', 'error'] as const;
export type EventName = (typeof EVENT_NAMES)[number];

export interface InvocationEvent {
  /** From 1, without gaps. */
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
}

export interface LogEntry {
  readonly cursor: string;
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
