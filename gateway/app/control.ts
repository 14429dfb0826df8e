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
  type StartData,
} from '#scheduler/invocations/types.ts';
import type { Versions } from '#scheduler/links/versions.ts';
import type { Timing } from '#scheduler/schedules/rules.ts';
import type { KeyHolder } from '#scheduler/tenants/api-keys.ts';
import { SCOPES, type Scope } from '#scheduler/tenants/rules.ts';
import type { LogLevel } from '#wit/generated/host.ts';

import type {
  Alias,
  Deployed,
  DeployPlan,
  Draining,
  FunctionManifest,
  FunctionVersion,
  Rollback,
  RollbackRequest,
  SetAlias,
} from './schemas/functions.ts';
import type {
  HeldInvocation,
  InvocationFile,
  InvocationPage,
  InvocationQuery,
  ListedInvocation,
  LogEntry,
  LogQuery,
} from './schemas/invocations.ts';
import type {
  GpuHostChange,
  GpuHostState,
  Health,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  ModelInfo,
  PlatformLoad,
} from './schemas/platform.ts';
import type { MinuteRow, QuotaChange, QuotaStatus, UsageQuery, UsageRow } from './schemas/quotas.ts';
import type { Schedule } from './schemas/schedules.ts';
import type {
  ApiKey,
  AuditEntry,
  AuditQuery,
  CreatedKey,
  NewKey,
  Secret,
  Tenant,
  TenantChange,
} from './schemas/tenants.ts';

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
export type { LogLevel };

export interface LogOptions extends Omit<LogQuery, 'since' | 'until' | 'after'> {
  /** Only lines after the entry with this opaque cursor; null for no bound. */
  readonly cursor: string | null;
  readonly follow: boolean;
  /** Only lines of this time and later, in ms since the epoch. */
  readonly sinceMs?: number | undefined;
  /** Only lines before this time, in ms since the epoch. */
  readonly untilMs?: number | undefined;
}

export type {
  EncoderLoad,
  GpuHostChange,
  GpuHostState,
  HostedModel,
  JoinToken,
  JoinTokenRequest,
  MachineChange,
  MachineState,
  ModelLoad,
  PlatformLoad,
  RuntimeLimits,
} from './schemas/platform.ts';
export type { InvocationPage, InvocationQuery, ListedInvocation };

/** State of the platform for operators, and of their own tenant for other callers. */
export interface Operations {
  invocations(call: Call, query: InvocationQuery): Promise<InvocationPage>;
  /** Operators only. */
  load(call: Call): Promise<PlatformLoad>;
  /** Drains a GPU host, or ends its drain; null when no host has that name. Operators only. */
  changeGpuHost(call: Call, name: string, change: GpuHostChange): Promise<GpuHostState | null>;
  /** Drains a machine, or ends its drain; null when no machine has that name. Operators only. */
  changeMachine(call: Call, name: string, change: MachineChange): Promise<MachineState | null>;
  /** Makes a token with which one machine may join. Throws `conflict` where none can. Operators only. */
  createJoinToken(call: Call, request: JoinTokenRequest): Promise<JoinToken>;
  /** Removes a machine for good; false when no machine has that name. Operators only. */
  removeMachine(call: Call, name: string): Promise<boolean>;
  /** The secret that signs the webhooks of the caller's tenant (`whsec_…`). Made on first use, and anew with `rotate`. */
  webhookSecret(call: Call, rotate: boolean): Promise<string>;
}

export type { MinuteRow, QuotaChange, QuotaStatus, UsageQuery, UsageRow };

/** Limits and usage. A key sees those of its own tenant; an `operator` key sees those of every tenant, and sets limits. */
export interface Quotas {
  /** Lists the quotas of a tenant and of its functions; with `fn`, those of the whole tenant and of that function. */
  status(call: Call, tenant: string, fn?: string): Promise<readonly QuotaStatus[]>;
  /**
   * Operators only. Returns the limit that applies after the change; null for none. A change without `expiresAt` ends an override.
   * Throws `invalid-quota`, `unknown-tenant`, `unknown-function`.
   */
  set(call: Call, tenant: string, change: QuotaChange): Promise<QuotaStatus | null>;
  usage(call: Call, query: UsageQuery): Promise<readonly UsageRow[]>;
  /** Usage in each of the last `minutes` minutes, at most 180. */
  minutes(call: Call, tenant: string, minutes: number): Promise<readonly MinuteRow[]>;
}

export type {
  Alias,
  DeployPlan,
  DeployReport,
  Difference,
  Draining,
  Rollback,
  RollbackRequest,
  SetAlias,
  Share,
} from './schemas/functions.ts';

/** Effects of a deploy beyond storing the version. */
export interface DeployTarget {
  /** Alias that then sends all its invocations to the new version; `live` by default, none when null. */
  readonly alias?: string | null | undefined;
  /** A permanent name for the version; refused when another version has it. */
  readonly tag?: string | undefined;
  readonly message?: string | undefined;
  /** Leaves the alias alone when the same content was deployed before. */
  readonly onlyNew?: boolean | undefined;
}

/** Aliases, rollbacks and removals of function versions. */
export interface Releases {
  /** Lists aliases by name, `live` first. Empty when there is no such function. */
  aliases(call: Call, name: string): Promise<readonly Alias[]>;
  /** Past and present states of an alias, newest first; empty when there is no such alias. */
  history(call: Call, name: string, alias: string): Promise<readonly Alias[]>;
  /** Throws `unknown-function`, `invalid-alias`, `conflict`. */
  setAlias(call: Call, name: string, alias: string, change: SetAlias): Promise<Alias>;
  /** False when there was no such alias. Throws `conflict` for `live`, which cannot be removed. */
  removeAlias(call: Call, name: string, alias: string): Promise<boolean>;
  /** Throws `unknown-function`, `unknown-alias`, `invalid-alias`, and `conflict`, for example when the alias has no earlier state. */
  rollback(call: Call, name: string, request: RollbackRequest): Promise<Rollback>;
  /** Predicts a deploy. Throws the errors that a deploy throws before it builds. */
  plan(call: Call, manifest: FunctionManifest, component: Uint8Array, target: DeployTarget): Promise<DeployPlan>;
  /**
   * Removes one version that no alias serves. No new invocation runs the version; it is deleted once its invocations have ended, and `now` cancels
   * these. Returns the draining versions, or null when there is no such version. Throws `conflict` when an alias serves the version.
   */
  removeVersion(call: Call, name: string, version: string, now: boolean): Promise<readonly Draining[] | null>;
  /** Removed versions of a function that still drain, even when the function was deployed again. */
  draining(call: Call, name: string): Promise<readonly Draining[]>;
  /** Lifts the quarantine of a function's versions. Returns the versions that were quarantined; null when there is no such function. */
  liftQuarantine(call: Call, name: string): Promise<readonly string[] | null>;
  /**
   * The version that an invocation of `name` would run; `reference` is an alias or a version, `live` when undefined.
   * Each call draws anew among the weighted versions of an alias. Null when the reference leads to no version.
   */
  resolve(call: Call, name: string, reference: string | undefined): Promise<FunctionVersion | null>;
}

export type { Schedule, Timing };

/** Hint of the errors about a schedule's times. */
export const TIMES_HINT = 'For example: `"cron": "0 3 * * *", "timezone": "Europe/Berlin"`, or `"everyMs": 900000`.';

export interface NewSchedule {
  readonly name: string;
  readonly function: FunctionReference;
  /** JSON text. */
  readonly input: string;
  readonly timing: Timing;
  /** Throws when the version that the reference currently names does not accept the input. */
  readonly check: (version: CheckedFunction) => void;
}

/**
 * A schedule whose input is the stored JSON text. A list of schedules may have megabytes of inputs, and no caller but the client needs their values.
 */
export type StoredSchedule = Omit<Schedule, 'input'> & { readonly inputText: string };

export interface Schedules {
  /** The schedules of the caller's tenant, by name. */
  list(call: Call): Promise<readonly StoredSchedule[]>;
  /**
   * Stores a schedule, or replaces the schedule of the same name. Null when the reference leads to no version; throws `quota-schedules`, and
   * `invalid-input` for a cron pattern that is invalid or never matches.
   */
  put(call: Call, schedule: NewSchedule): Promise<StoredSchedule | null>;
  /** Resumes a suspended schedule, and leaves any other one as it is. Null when there is no such schedule. */
  resume(call: Call, name: string): Promise<StoredSchedule | null>;
  /** False when there was no such schedule. */
  remove(call: Call, name: string): Promise<boolean>;
}

export type { Secret };

export interface Secrets {
  list(call: Call): Promise<readonly Secret[]>;
  /** Stores a new revision. Throws `invalid-secret`. */
  set(call: Call, name: string, value: string): Promise<Secret>;
  /** Returns false when there was no such secret. Throws `conflict` while a version in service uses the secret. */
  remove(call: Call, name: string): Promise<boolean>;
}

export type { ApiKey, AuditEntry, AuditQuery, CreatedKey, NewKey, Tenant, TenantChange };

/**
 * Tenants, their keys and the audit log. A key of the scope `operator` may act on every tenant, a key of the scope `admin` only on its own:
 * for another tenant it gets `forbidden`.
 */
export interface Tenants {
  list(call: Call): Promise<readonly Tenant[]>;
  get(call: Call, name: string): Promise<Tenant | null>;
  /** Throws `conflict` when the name is taken. */
  create(call: Call, name: string, change: TenantChange): Promise<Tenant>;
  change(call: Call, name: string, change: TenantChange): Promise<Tenant | null>;
  /** Lists keys, oldest first. Throws `unknown-tenant`, as `createKey` does. */
  keys(call: Call, tenant: string): Promise<readonly ApiKey[]>;
  createKey(call: Call, tenant: string, key: NewKey): Promise<CreatedKey>;
  /** Makes a key with the same name, scopes and expiry; the old key works for `graceMs` longer. Null when there is no such key. */
  rotateKey(call: Call, tenant: string, id: string, graceMs: number): Promise<CreatedKey | null>;
  removeKey(call: Call, tenant: string, id: string): Promise<boolean>;
  /** Newest first, before the cursor `before`. An operator's call without a tenant reads all tenants. */
  audit(call: Call, query: AuditQuery): Promise<readonly AuditEntry[]>;
}

/** Counts the bytes that a caller holds, as their number grows and shrinks. */
export interface Memory {
  /** Counts this many more bytes. @throws GatewayError `gateway-busy`, `too-many-requests`, see `Bodies.take` */
  hold(bytes: number): void;
  give(bytes: number): void;
}
