import type { Context } from 'hono';
import type { LogFields, Logger } from '#scheduler/policies/logger.ts';
import { COLLECTED_BYTES } from './bounds.ts';
import type { Call, Principal, Scope } from './control.ts';
import type { Guides } from './docs/pages.ts';
import { GatewayError } from './errors/gateway-error.ts';
import type { AnswerMemory } from './http/answer.ts';
import type { Bodies, Body, BodyLimits, Decoders } from './http/bodies.ts';
import type { OpenStreams, StreamLimits } from './http/open-streams.ts';
import { requireScope } from './require-scope.ts';

/** Variables that middleware sets for handlers. */
export interface AppEnv {
  Variables: {
    requestId: string;
    traceparent: string;
    /** Absent on routes that need no key. */
    principal: Principal | undefined;
    /** Throws `unauthorized` or `tenant-suspended` once the request's key is no longer valid. */
    recheck: (() => Promise<void>) | undefined;
    /** The request's body. It counts towards `Limits.heldBodyBytes`. */
    body: Body;
    /** Counts the memory of the request's answer towards `Limits.heldBodyBytes`. */
    answer: AnswerMemory;
    /** Keeps the request's slot of `AppSettings.streams` after its handler; returns the function that frees it. Absent where no answer stays open. */
    keepOpen: (() => () => void) | undefined;
    /** Headers that the control plane adds to the answer, see `Call.answerHeaders`. */
    answerHeaders: Readonly<Record<string, string>> | undefined;
  };
}

/** Maximum sizes of one request's data, which the gateway enforces before it stores anything, and bounds on all requests together. */
export interface Limits extends BodyLimits, StreamLimits {
  readonly inputBytes: number;
  /** A client's message to an inferlet, once decoded. */
  readonly messageBytes: number;
  readonly fileBytes: number;
  readonly manifestBytes: number;
  readonly componentBytes: number;
  /**
   * JSON texts of the messages that one answer with the outcome collects, counted in UTF-16 code units. The gateway drops later messages and
   * sets `messagesTruncated`.
   */
  readonly collectedBytes: number;
}

export const DEFAULT_LIMITS: Limits = {
  inputBytes: 4 * 1024 * 1024,
  messageBytes: 1024 * 1024,
  fileBytes: 16 * 1024 * 1024,
  manifestBytes: 256 * 1024,
  componentBytes: 64 * 1024 * 1024,
  collectedBytes: COLLECTED_BYTES,
  heldBodyBytes: 256 * 1024 * 1024,
  bodyGraceMs: 20_000,
  bodyBytesPerSecond: 8 * 1024 * 1024,
  streamsPerKey: 4096,
  streams: 16_384,
};

/** Settings of the app with all defaults filled in. */
export interface AppSettings {
  readonly limits: Limits;
  /** Accounts for the bodies and answers of all requests. By default the app creates this object; a caller that reads its counts passes one in. */
  readonly bodies: Bodies;
  /** Decoders of compressed bodies; by default those of `DecompressionStream`. */
  readonly decoders: Decoders;
  /** Counts the answers that stay open. Created like `bodies`. */
  readonly streams: OpenStreams;
  /** Interval of heartbeats on quiet streams; 15,000 by default. workerd notices a departed client at the next heartbeat. */
  readonly heartbeatMs: number;
  /**
   * The gateway holds back the status of an OpenAI-style stream until the first frame, but at most for this long, so that the status can report an
   * early failure. Meanwhile workerd does not notice a departed client. 10,000 by default.
   */
  readonly firstFrameMs: number;
  /** Aborts when the process takes no more work: the gateway reports not ready, and open-ended streams end. */
  readonly draining: AbortSignal | undefined;
  /** Aborts when the process is about to end: the gateway writes the last frame of every stream. */
  readonly shutdown: AbortSignal | undefined;
  readonly version: string;
  /** Content of `/metrics`. Without it, the page does not exist. */
  readonly metrics: MetricsPage | undefined;
  /** The guides of `/docs/guides`. None by default. */
  readonly guides: Guides;
  /** Origins whose pages may call the API from a browser (CORS); `*` for all. Empty by default: no page of another origin may. */
  readonly corsOrigins: readonly string[];
  /** Receives faults with their causes, which clients never see. */
  readonly log: Logger;
  /** At least 32 random bytes that seal the dashboard's sessions. Random when absent; sessions then end with this app. */
  readonly sessionSecret: Uint8Array | undefined;
  /** The client's address: the dashboard bounds sign-in attempts by address. By default all clients count as one address. */
  readonly clientAddress: (c: Context<AppEnv>) => string;
  /**
   * Called once the key of a request is known to be valid, so that the server can count the request towards its tenant's share of connections.
   * Throws `too-many-requests` or `gateway-busy` when the share is used up. By default every request is admitted.
   */
  readonly admit: (c: Context<AppEnv>, principal: Principal) => void;
}

/** Makes the context of a control-plane call. Throws `unauthorized` without a key, and `forbidden` when the key lacks the scope. */
export function callOf(c: Context<AppEnv>, scope?: Scope): Call {
  const principal = c.get('principal');
  if (principal === undefined) throw new GatewayError('unauthorized', 'The request has no API key.');
  if (scope !== undefined) requireScope({ principal }, scope);
  return {
    principal,
    requestId: c.get('requestId'),
    traceparent: c.get('traceparent'),
    signal: c.req.raw.signal,
    memory: c.get('answer'),
    answerHeaders: (headers) => c.set('answerHeaders', headers),
  };
}

/** Lets work go on after the response. workerd would otherwise stop the work; Node never does. */
export function inBackground(c: Context<AppEnv>, work: Promise<unknown>): void {
  try {
    c.executionCtx.waitUntil(work);
  } catch {
    // On Node, reading `executionCtx` throws. The work goes on anyway.
  }
}

/** Log fields for a request that failed because of a fault of the platform. */
export function faultOf(c: Context<AppEnv>, error: GatewayError): LogFields {
  const { method, path } = c.req;
  return { requestId: c.get('requestId'), method, path, error: error.cause ?? error };
}

/** Measurements of the whole platform, as one page. */
export interface MetricsPage {
  /** True when the page needs no key. Otherwise the request needs a key with the scope `operator`. */
  readonly public: boolean;
  /** Prometheus' text format. */
  text(): Promise<string>;
}
