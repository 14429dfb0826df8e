import type { OpenFeed } from '#scheduler/invocations/feed.ts';
import type { Position } from '#scheduler/invocations/types.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import {
  type Call,
  type ControlPlane,
  type Deployed,
  type Deployment,
  type Draining,
  EVENT_NAMES,
  type FileContent,
  type FunctionReference,
  type FunctionVersion,
  type Health,
  type HeldInvocation,
  type InvocationEvent,
  type InvocationFile,
  type Invoked,
  type InvokeRequest,
  type LogEntry,
  type LogOptions,
  type ModelInfo,
  type Operations,
  type PersonAnswer,
  type Principal,
  type Quotas,
  type Releases,
  type Schedules,
  type Secrets,
  type SessionMessage,
  type Tenants,
} from '../app/control.ts';
import { GatewayError, inFlight as inFlightError } from '../app/errors/gateway-error.ts';
import { type PulledSource, pulledFeed } from '../app/http/event-stream.ts';
import { parseWithOutput } from '../app/http/json.ts';
import { eventId, positionOf } from '../app/invocations/event-id.ts';
import { PieClient } from '../client/client.ts';
import { errorFromEvent, limitHeadersOf, PieError } from '../client/errors.ts';
import { type Frame, FrameStream } from '../client/event-source.ts';
import { type Fetch, Http } from '../client/http.ts';
import { invocationHeaders } from '../client/invoking.ts';
import { isFound, options, orNull, translate, translating } from './origin.ts';
import {
  OriginOperations,
  OriginQuotas,
  OriginReleases,
  OriginSchedules,
  OriginSecrets,
  OriginTenants,
} from './resources.ts';

export interface OriginOptions {
  /** Address of a Node gateway. */
  readonly url: string;
  /** A service binding's fetch; the global fetch by default. */
  readonly fetch?: Fetch;
  /** Gets errors whose details clients do not see. */
  readonly log: Logger;
}

/** Time that the edge caches an accepted key. The cache grants nothing, because the origin checks every call again. */
const KEY_CACHE_MS = 5000;
const MAX_CACHED_KEYS = 1000;
/** The edge repeats a submission for this long after a lost answer: long enough for a restart of the origin. */
const REPEAT_MS = 5000;

/** The two clients of the origin that send one principal's key. Only `http` repeats requests, for `REPEAT_MS`. */
interface Origin {
  readonly http: Http;
  readonly client: PieClient;
}

/** The control plane by HTTP: a gateway at the edge that forwards to a Node gateway, which holds all state. */
export class OriginControlPlane implements ControlPlane {
  readonly releases: Releases;
  readonly secrets: Secrets;
  readonly tenants: Tenants;
  readonly quotas: Quotas;
  readonly operations: Operations;
  readonly schedules: Schedules;
  readonly #options: OriginOptions;
  /** Clients of the origin by principal, so that a principal need not contain its key. */
  readonly #origins = new WeakMap<Principal, Origin>();
  readonly #principalsByKey = new Map<string, { principal: Principal; until: number }>();

  constructor(options: OriginOptions) {
    this.releases = new OriginReleases((call) => this.#originOf(call).client);
    this.secrets = new OriginSecrets((call) => this.#originOf(call).client);
    this.tenants = new OriginTenants((call) => this.#originOf(call).client);
    this.quotas = new OriginQuotas((call) => this.#originOf(call).client);
    this.operations = new OriginOperations((call) => this.#originOf(call).client);
    this.schedules = new OriginSchedules((call) => this.#originOf(call).client);
    this.#options = options;
  }

  async authenticate(apiKey: string): Promise<Principal | null> {
    const cached = this.#principalsByKey.get(apiKey);
    if (cached !== undefined && cached.until > performance.now()) return cached.principal;
    this.#principalsByKey.delete(apiKey);
    const origin = this.#open(apiKey);
    const principal = await translating(() => origin.client.self()).catch((error: unknown) => {
      if (error instanceof GatewayError && error.code === 'unauthorized') return null;
      throw error;
    });
    if (principal === null) return null;
    this.#origins.set(principal, origin);
    if (this.#principalsByKey.size >= MAX_CACHED_KEYS) this.#principalsByKey.clear();
    this.#principalsByKey.set(apiKey, { principal, until: performance.now() + KEY_CACHE_MS });
    return principal;
  }

  functions(call: Call): Promise<readonly FunctionVersion[]> {
    return translating(() => this.#originOf(call).client.functions(options(call)));
  }

  function(call: Call, { name, version }: FunctionReference): Promise<FunctionVersion | null> {
    const reference = version === undefined ? name : `${name}@${version}`;
    return orNull('unknown-function', () => this.#originOf(call).client.function(reference, options(call)));
  }

  async versions(call: Call, name: string): Promise<readonly FunctionVersion[]> {
    return (await orNull('unknown-function', () => this.#originOf(call).client.versions(name, options(call)))) ?? [];
  }

  deploy(call: Call, { manifest, component, target }: Deployment): Promise<Deployed> {
    return translating(() =>
      this.#originOf(call).client.deploy(manifest, new Uint8Array(component), { ...options(call), ...target }),
    );
  }

  removeFunction(call: Call, name: string, now: boolean): Promise<readonly Draining[] | null> {
    return orNull('unknown-function', () =>
      this.#originOf(call).client.removeFunction(name, { ...options(call), now }),
    );
  }

  invoke(call: Call, request: InvokeRequest): Promise<Invoked> {
    return translating(async () => {
      if (request.idempotencyKey !== undefined) return this.#submit(call, request);
      // When an answer is lost, a retry with this key finds the invocation. Without a key, a retry would make a second invocation.
      const keyedRequest = { ...request, idempotencyKey: crypto.randomUUID(), hasSingleUseKey: true, join: true };
      const { http } = this.#originOf(call);
      const invoked = await http.retrying(() => this.#submit(call, keyedRequest), call.signal, true, isLost);
      // The caller sent no key, so its answer is no replay.
      return { ...invoked, replayed: undefined };
    });
  }

  invocation(call: Call, id: string): Promise<HeldInvocation | null> {
    return orNull('unknown-invocation', () => this.#ask(call, pathOf(id)));
  }

  input(call: Call, id: string): Promise<string | null> {
    return orNull('unknown-invocation', () => this.#originOf(call).client.inputText(id, options(call)));
  }

  deleteEvents(call: Call, id: string): Promise<boolean> {
    return isFound('unknown-invocation', () => this.#originOf(call).client.deleteEvents(id, options(call)));
  }

  events(call: Call, id: string, after: Position): OpenFeed<InvocationEvent> {
    const open = (signal: AbortSignal) =>
      this.#originOf(call).http.request(`${pathOf(id)}/events`, {
        signal,
        headers: { ...headers(call), accept: 'text/event-stream', 'last-event-id': eventId(after) },
      });
    return pulledFeed(() => new OriginEvents(id, open));
  }

  async sendMessage(call: Call, id: string, message: SessionMessage, idempotencyKey?: string): Promise<boolean> {
    const { client } = this.#originOf(call);
    return isFound('unknown-invocation', () =>
      'close' in message
        ? client.closeSession(id, options(call))
        : client.send(id, 'text' in message ? message.text : message.bytes, { ...options(call), idempotencyKey }),
    );
  }

  files(call: Call, id: string): Promise<readonly InvocationFile[] | null> {
    return orNull('unknown-invocation', () => this.#originOf(call).client.files(id, options(call)));
  }

  async fileInfo(call: Call, id: string, name: string): Promise<InvocationFile | null> {
    const { http, client } = this.#originOf(call);
    const path = `${pathOf(id)}/files/${encodeURIComponent(name)}`;
    return translating(async () => {
      const head = { ...headers(call), accept: '*/*', 'accept-encoding': 'identity' };
      const headAnswer = await http
        .request(path, { method: 'HEAD', signal: call.signal, headers: head })
        .catch(nullWithoutProblem);
      const [mediaType, bytes] = [headAnswer?.headers.get('content-type'), headAnswer?.headers.get('content-length')];
      if (mediaType && bytes) return { name, mediaType, bytes: Number(bytes) };
      // Ask for the list: its refusal has an error code, which that of a HEAD lacks because it has no body. The list also states the size, which a
      // proxy may have dropped.
      return (await client.files(id, options(call))).find((file) => file.name === name) ?? null;
    });
  }

  file(call: Call, id: string, name: string): Promise<FileContent | null> {
    return orNull('unknown-file', () => this.#originOf(call).client.file(id, name, options(call)));
  }

  putFile(call: Call, id: string, { name, mediaType, content }: FileContent): Promise<InvocationFile | null> {
    const bytes = new Uint8Array(content);
    return orNull('unknown-invocation', () =>
      this.#originOf(call).client.putFile(id, name, bytes, { ...options(call), mediaType }),
    );
  }

  answer(call: Call, id: string, { text, question }: PersonAnswer): Promise<HeldInvocation | null> {
    const query = question === undefined ? '' : `?question=${question}`;
    return orNull('unknown-invocation', () => this.#ask(call, `${pathOf(id)}/answer${query}`, 'POST', text));
  }

  cancel(call: Call, id: string, reason: string): Promise<HeldInvocation | null> {
    const path = `${pathOf(id)}?reason=${encodeURIComponent(reason)}`;
    return orNull('unknown-invocation', () => this.#ask(call, path, 'DELETE'));
  }

  async *logs(call: Call, name: string | null, query: LogOptions): AsyncGenerator<LogEntry, void, undefined> {
    const { client } = this.#originOf(call);
    const { cursor, follow, sinceMs, untilMs, ...filters } = query;
    const logQuery = {
      ...options(call),
      ...withoutUndefined(filters),
      ...(cursor === null ? {} : { after: cursor }),
      ...(sinceMs === undefined ? {} : { since: new Date(sinceMs).toISOString() }),
      ...(untilMs === undefined ? {} : { until: new Date(untilMs).toISOString() }),
    };
    try {
      if (follow) yield* client.followLogs(name, logQuery);
      else yield* await client.logs(name, logQuery);
    } catch (error) {
      if (!call.signal.aborted) throw translate(error);
    }
  }

  models(call: Call): Promise<readonly ModelInfo[]> {
    return translating(() => this.#originOf(call).client.models(options(call)));
  }

  provenModels(call: Call): Promise<readonly ModelInfo[]> {
    return this.models(call);
  }

  async health(): Promise<Health> {
    try {
      return await this.#open('').client.ready();
    } catch (error) {
      this.#options.log.warn({ error }, 'the origin is not ready');
      return { ready: false, checks: [{ name: 'origin', ok: false, detail: 'does not answer' }] };
    }
  }

  async #submit(call: Call, request: InvokeRequest): Promise<Invoked> {
    const { function: fn, input, hasSingleUseKey, join, webhookUrl } = request;
    const { http } = this.#originOf(call);
    // The origin chooses the version and checks the input.
    const reference = encodeURIComponent(fn.version === undefined ? fn.name : `${fn.name}@${fn.version}`);
    try {
      const response = await http.request(`/v1/functions/${reference}/invocations`, {
        method: 'POST',
        body: input,
        signal: call.signal,
        headers: {
          ...headers(call),
          prefer: hasSingleUseKey === true ? 'respond-async, single-use-key' : 'respond-async',
          ...invocationHeaders({ ...request, webhook: webhookUrl }),
        },
      });
      call.answerHeaders?.(limitHeadersOf(response.headers));
      const state = await http.parsed<HeldInvocation>(response, call.signal, parseWithOutput);
      return { ...state, ...(response.headers.has('idempotency-replayed') ? { replayed: true } : {}) };
    } catch (error) {
      const inFlight =
        error instanceof PieError && error.code === 'idempotency-in-flight' ? error.invocation : undefined;
      if (inFlight === undefined) throw error;
      if (join !== true) throw inFlightError(inFlight);
      return { ...(await this.#ask(call, pathOf(inFlight))), replayed: true };
    }
  }

  /** Sends a request about an invocation to the origin; `body` is JSON text. The output in the answer stays JSON text. */
  async #ask(call: Call, path: string, method = 'GET', body?: string): Promise<HeldInvocation> {
    const { http } = this.#originOf(call);
    const requestHeaders = { ...headers(call), ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const response = await http.request(path, { method, body, signal: call.signal, headers: requestHeaders });
    return http.parsed(response, call.signal, parseWithOutput);
  }

  #originOf(call: Call): Origin {
    const origin = this.#origins.get(call.principal);
    if (origin === undefined) throw new GatewayError('internal', 'The principal is not of this control plane.');
    return origin;
  }

  #open(apiKey: string): Origin {
    const settings = { ...this.#options, apiKey, reconnectMs: 0 };
    return { http: new Http({ ...settings, reconnectMs: REPEAT_MS }), client: new PieClient(settings) };
  }
}

function headers(call: Call): Record<string, string> {
  return { 'x-request-id': call.requestId, traceparent: call.traceparent };
}

function pathOf(id: string): string {
  return `/v1/invocations/${encodeURIComponent(id)}`;
}

/** True when the origin's own answer is missing: the connection failed, or a proxy answered in its place. */
function isLost({ code, status }: PieError): boolean {
  return code === 'connection-failed' || (code === 'bad-response' && (status < 400 || status >= 500));
}

/** Null for an answer without a problem document; throws any other error. */
function nullWithoutProblem(error: unknown): null {
  if (error instanceof PieError && error.code === 'bad-response') return null;
  throw error;
}

type Defined<T> = { [Key in keyof T]: Exclude<T[Key], undefined> };

/** Drops the members that are undefined. */
function withoutUndefined<T extends object>(value: T): Partial<Defined<T>> {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as Partial<Defined<T>>;
}

/** A connection that brings nothing for this time counts as broken: the origin sends a heartbeat every 15 s. */
const IDLE_TIMEOUT_MS = 60_000;

/** The events of one invocation as the origin streams them. */
class OriginEvents implements PulledSource<InvocationEvent> {
  readonly #id: string;
  readonly #open: (signal: AbortSignal) => Promise<Response>;
  readonly #connectionAbort = new AbortController();
  #frames: FrameStream | undefined;
  #failure: unknown;

  /** @param open requests the stream; its connection ends with the signal */
  constructor(id: string, open: (signal: AbortSignal) => Promise<Response>) {
    this.#id = id;
    this.#open = open;
  }

  /** @throws GatewayError */
  async next(): Promise<InvocationEvent[] | null> {
    if (this.#failure !== undefined) throw this.#failure;
    try {
      this.#frames ??= await this.#connect();
      for (let frames = await this.#frames?.read(); frames; frames = await this.#frames?.read()) {
        const events = this.#eventsOf(frames);
        if (events.length > 0) return events;
        if (this.#failure !== undefined) throw this.#failure;
      }
    } catch (error) {
      throw translate(error);
    }
    // The reader stops at a terminal event, so reaching this line means that the origin is gone.
    throw new GatewayError('origin-unavailable', 'The origin ended the stream early.');
  }

  close(): void {
    this.#frames?.close();
    this.#connectionAbort.abort();
  }

  async #connect(): Promise<FrameStream | undefined> {
    const { signal } = this.#connectionAbort;
    const { body } = await this.#open(signal);
    return body === null ? undefined : new FrameStream(body, { idleTimeoutMs: IDLE_TIMEOUT_MS, signal });
  }

  /** Events before the first error frame without an id. That frame has the origin's own error, which `next` throws. */
  #eventsOf(frames: readonly Frame[]): InvocationEvent[] {
    const events: InvocationEvent[] = [];
    for (const frame of frames) {
      const event = EVENT_NAMES.find((name) => name === frame.event);
      if (event === undefined) continue;
      const position = frame.hasId ? positionOf(frame.id) : null;
      if (position) events.push({ seq: position.seq, epoch: position.epoch ?? 0, event, data: frame.data });
      else if (event === 'error') {
        this.#failure = translate(errorFromEvent(JSON.parse(frame.data), this.#id));
        break;
      }
    }
    return events;
  }
}
