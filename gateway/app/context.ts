import type { Context } from 'hono';
import { includesScope } from '#scheduler/tenants/scopes.ts';
import type { Call, Principal, Scope } from './control.ts';
import { GatewayError } from './errors/gateway-error.ts';
import type { Bodies, Body, BodyLimits } from './http/bodies.ts';
import type { OpenStreams, StreamLimits } from './http/open-streams.ts';
import type { MetricsPage } from './routes/metrics.ts';

/** What middleware leaves for handlers. */
export interface AppEnv {
  Variables: {
    requestId: string;
    traceparent: string;
    /** Absent on routes that anyone may read. */
    principal: Principal | undefined;
    /** Throws `unauthorized` or `tenant-suspended` once the request's key is not to be used any more. */
    recheck: (() => Promise<void>) | undefined;
    /** The request's body, bounded. */
    body: Body;
    /** Keeps the place of an answer that stays open; what it returns gives the place back. Absent on routes that answer at once. */
    keepOpen: (() => () => void) | undefined;
    /** Headers for the answer that the control plane has given. */
    answerHeaders: Readonly<Record<string, string>> | undefined;
  };
}

/** Sizes that are enforced before anything is stored, and what all requests may hold at once. */
export interface Limits extends BodyLimits, StreamLimits {
  /** The input of an invocation. */
  readonly inputBytes: number;
  /** A client's message to an inferlet, decoded. */
  readonly messageBytes: number;
  /** A file for an inferlet. */
  readonly fileBytes: number;
  readonly manifestBytes: number;
  readonly componentBytes: number;
  /** Messages that a waiting (JSON) answer collects; what comes after is left out and flagged. */
  readonly collectedBytes: number;
}

export const DEFAULT_LIMITS: Limits = {
  inputBytes: 4 * 1024 * 1024,
  messageBytes: 1024 * 1024,
  fileBytes: 16 * 1024 * 1024,
  manifestBytes: 256 * 1024,
  componentBytes: 64 * 1024 * 1024,
  collectedBytes: 16 * 1024 * 1024,
  heldBodyBytes: 256 * 1024 * 1024,
  bodyGraceMs: 20_000,
  bodyBytesPerSecond: 8 * 1024 * 1024,
  streamsPerKey: 4096,
  streams: 16_384,
};

/** One line for the operator's log. */
export interface LogRecord {
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly requestId?: string;
  readonly error?: unknown;
}

/** Settings of the app, complete. */
export interface AppSettings {
  readonly limits: Limits;
  readonly bodies: Bodies;
  readonly streams: OpenStreams;
  readonly heartbeatMs: number;
  readonly firstFrameMs: number;
  readonly draining: AbortSignal | undefined;
  readonly shutdown: AbortSignal | undefined;
  readonly version: string;
  readonly metrics: MetricsPage | undefined;
  readonly log: (record: LogRecord) => void;
  readonly sessionSecret: Uint8Array | undefined;
  readonly clientAddress: (c: Context<AppEnv>) => string;
}

/** What goes with a call into the control plane, for a key that has the scope. Throws `unauthorized` or `forbidden`. */
export function callOf(c: Context<AppEnv>, scope?: Scope): Call {
  const principal = c.get('principal');
  if (principal === undefined) throw new GatewayError('unauthorized', 'The request has no API key.');
  if (scope !== undefined && !includesScope(principal.scopes, scope)) {
    throw new GatewayError('forbidden', `The API key ${principal.keyId} lacks the scope "${scope}".`);
  }
  return {
    principal,
    requestId: c.get('requestId'),
    traceparent: c.get('traceparent'),
    signal: c.req.raw.signal,
    answerHeaders: (headers) => c.set('answerHeaders', headers),
  };
}

/** Lets work outlive the response where the platform would otherwise stop it (workerd); elsewhere it simply goes on. */
export function inBackground(c: Context<AppEnv>, work: Promise<unknown>): void {
  try {
    c.executionCtx.waitUntil(work);
  } catch {
    // Node has no execution context: nothing would stop the work.
  }
}
