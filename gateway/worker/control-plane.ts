import type { Logger } from '#scheduler/policies/logger.ts';
import type {
  Call,
  ControlPlane,
  HeldInvocation,
  Invoked,
  InvokeRequest,
  Principal,
  Schedule,
} from '../app/control.ts';
import type { ErrorCode } from '../app/errors/codes.ts';
import { GatewayError, inFlight as inFlightError } from '../app/errors/gateway-error.ts';
import { pulledFeed } from '../app/http/event-stream.ts';
import { exactJson, parseWithOutput } from '../app/http/json.ts';
import { eventId } from '../app/invocations/event-id.ts';
import { PieClient } from '../client/client.ts';
import { limitHeadersOf, PieError } from '../client/errors.ts';
import { type Fetch, Http } from '../client/http.ts';
import { invocationHeaders } from '../client/invoking.ts';
import { OriginEvents, translate } from './origin.ts';

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

/** Asks the origin with the caller's key. */
type Ask<T> = (client: PieClient, options: ReturnType<typeof optionsOf>) => Promise<T>;

/**
 * The control plane by HTTP: a gateway at the edge that forwards to a Node gateway, which holds all state, checks every call again, and decides. Only
 * keys are cached.
 */
export function originControlPlane(settings: OriginOptions): ControlPlane {
  /** Clients of the origin by principal, so that a principal need not contain its key. */
  const origins = new WeakMap<Principal, Origin>();
  const principals = new Map<string, { principal: Principal; until: number }>();

  function open(apiKey: string): Origin {
    const options = { ...settings, apiKey, reconnectMs: 0 };
    return { http: new Http({ ...options, reconnectMs: REPEAT_MS }), client: new PieClient(options) };
  }
  function originOf(call: Call): Origin {
    const origin = origins.get(call.principal);
    if (origin === undefined) throw new GatewayError('internal', 'The principal is not of this control plane.');
    return origin;
  }
  async function ask<T>(call: Call, work: Ask<T>): Promise<T> {
    try {
      return await work(originOf(call).client, optionsOf(call));
    } catch (error) {
      throw translate(error);
    }
  }
  /** Like `ask`, but resolves to null when the origin answers with the error `code`. */
  async function find<T>(code: ErrorCode, call: Call, work: Ask<T>): Promise<T | null> {
    try {
      return await ask(call, work);
    } catch (error) {
      if (error instanceof GatewayError && error.code === code) return null;
      throw error;
    }
  }
  /** True once the work is done; false when the origin answers with the error `code`: the object does not exist. */
  async function done(code: ErrorCode, call: Call, work: Ask<unknown>): Promise<boolean> {
    return (await find(code, call, async (client, options) => [await work(client, options)])) !== null;
  }
  /** Sends a request about an invocation to the origin; `body` is JSON text. The output in the answer stays JSON text. */
  async function held(call: Call, path: string, method = 'GET', body?: string): Promise<HeldInvocation> {
    const { http } = originOf(call);
    const headers = { ...headersOf(call), ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const response = await http.request(path, { method, body, signal: call.signal, headers });
    return http.parsed(response, call.signal, parseWithOutput);
  }
  async function submit(call: Call, request: InvokeRequest): Promise<Invoked> {
    const { input, hasSingleUseKey, join, webhookUrl } = request;
    const { http } = originOf(call);
    try {
      const response = await http.request(`/v1/functions/${encodeURIComponent(nameOf(request.function))}/invocations`, {
        method: 'POST',
        body: input,
        signal: call.signal,
        headers: {
          ...headersOf(call),
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
      return { ...(await held(call, pathOf(inFlight))), replayed: true };
    }
  }

  return {
    async authenticate(apiKey) {
      const cached = principals.get(apiKey);
      if (cached !== undefined && cached.until > performance.now()) return cached.principal;
      principals.delete(apiKey);
      const origin = open(apiKey);
      const principal = await origin.client.self().catch((caught: unknown) => {
        const error = translate(caught);
        if (error instanceof GatewayError && error.code === 'unauthorized') return null;
        throw error;
      });
      if (principal === null) return null;
      origins.set(principal, origin);
      if (principals.size >= MAX_CACHED_KEYS) principals.clear();
      principals.set(apiKey, { principal, until: performance.now() + KEY_CACHE_MS });
      return principal;
    },
    functions: (call) => ask(call, (client, o) => client.functions(o)),
    function: (call, reference) => find('unknown-function', call, (client, o) => client.function(nameOf(reference), o)),
    versions: async (call, name) =>
      (await find('unknown-function', call, (client, o) => client.versions(name, o))) ?? [],
    deploy: (call, { manifest, component, target }) =>
      ask(call, (client, o) => client.deploy(manifest, new Uint8Array(component), { ...o, ...target })),
    removeFunction: (call, name, now) =>
      find('unknown-function', call, (client, o) => client.removeFunction(name, { ...o, now })),
    invoke: (call, request) =>
      ask(call, async () => {
        if (request.idempotencyKey !== undefined) return submit(call, request);
        // When an answer is lost, a retry with this key finds the invocation. Without a key, a retry would make a second invocation.
        const keyedRequest = { ...request, idempotencyKey: crypto.randomUUID(), hasSingleUseKey: true, join: true };
        const { http } = originOf(call);
        const invoked = await http.retrying(() => submit(call, keyedRequest), call.signal, true, isLost);
        // The caller sent no key, so its answer is no replay.
        return { ...invoked, replayed: undefined };
      }),
    invocation: (call, id) => find('unknown-invocation', call, () => held(call, pathOf(id))),
    input: (call, id) => find('unknown-invocation', call, (client, o) => client.inputText(id, o)),
    deleteEvents: (call, id) => done('unknown-invocation', call, (client, o) => client.deleteEvents(id, o)),
    events(call, id, after) {
      const headers = { ...headersOf(call), accept: 'text/event-stream', 'last-event-id': eventId(after) };
      const { http } = originOf(call);
      const stream = (signal: AbortSignal) => http.request(`${pathOf(id)}/events`, { signal, headers });
      return pulledFeed(() => new OriginEvents(id, stream));
    },
    sendMessage: (call, id, message, idempotencyKey) =>
      done('unknown-invocation', call, (client, o) =>
        'close' in message
          ? client.closeSession(id, o)
          : client.send(id, 'text' in message ? message.text : message.bytes, { ...o, idempotencyKey }),
      ),
    answer(call, id, { text, question }) {
      const query = question === undefined ? '' : `?question=${question}`;
      return find('unknown-invocation', call, () => held(call, `${pathOf(id)}/answer${query}`, 'POST', text));
    },
    files: (call, id) => find('unknown-invocation', call, (client, o) => client.files(id, o)),
    fileInfo: (call, id, name) =>
      ask(call, async (client, o) => {
        const head = { ...headersOf(call), accept: '*/*', 'accept-encoding': 'identity' };
        const answer = await originOf(call)
          .http.request(`${pathOf(id)}/files/${encodeURIComponent(name)}`, {
            method: 'HEAD',
            signal: call.signal,
            headers: head,
          })
          .catch(nullWithoutProblem);
        const [mediaType, bytes] = [answer?.headers.get('content-type'), answer?.headers.get('content-length')];
        if (mediaType && bytes) return { name, mediaType, bytes: Number(bytes) };
        // Ask for the list: its refusal has an error code, which that of a HEAD lacks because it has no body. The list also states the size, which a
        // proxy may have dropped.
        return (await client.files(id, o)).find((file) => file.name === name) ?? null;
      }),
    file: (call, id, name) => find('unknown-file', call, (client, o) => client.file(id, name, o)),
    putFile: (call, id, { name, mediaType, content }) =>
      find('unknown-invocation', call, (client, o) =>
        client.putFile(id, name, new Uint8Array(content), { ...o, mediaType }),
      ),
    cancel: (call, id, reason) =>
      find('unknown-invocation', call, () =>
        held(call, `${pathOf(id)}?reason=${encodeURIComponent(reason)}`, 'DELETE'),
      ),
    async *logs(call, name, { cursor, follow, sinceMs, untilMs, ...filters }) {
      const { client } = originOf(call);
      const query = {
        ...optionsOf(call),
        ...withoutUndefined(filters),
        ...(cursor === null ? {} : { after: cursor }),
        ...(sinceMs === undefined ? {} : { since: new Date(sinceMs).toISOString() }),
        ...(untilMs === undefined ? {} : { until: new Date(untilMs).toISOString() }),
      };
      try {
        if (follow) yield* client.followLogs(name, query);
        else yield* await client.logs(name, query);
      } catch (error) {
        if (!call.signal.aborted) throw translate(error);
      }
    },
    models: (call) => ask(call, (client, o) => client.models(o)),
    provenModels: (call) => ask(call, (client, o) => client.models(o)),
    async health() {
      try {
        return await open('').client.ready();
      } catch (error) {
        settings.log.warn({ error }, 'the origin is not ready');
        return { ready: false, checks: [{ name: 'origin', ok: false, detail: 'does not answer' }] };
      }
    },
    releases: {
      aliases: async (call, name) =>
        (await find('unknown-function', call, (client, o) => client.aliases(name, o))) ?? [],
      history: async (call, name, alias) =>
        (await find('unknown-alias', call, (client, o) => client.aliasHistory(name, alias, o))) ?? [],
      setAlias: (call, name, alias, change) => ask(call, (client, o) => client.setAlias(name, alias, change, o)),
      removeAlias: (call, name, alias) =>
        done('unknown-alias', call, (client, o) => client.removeAlias(name, alias, o)),
      rollback: (call, name, request) => ask(call, (client, o) => client.rollback(name, request, o)),
      plan: (call, manifest, component, target) =>
        ask(call, (client, o) => client.planDeploy(manifest, new Uint8Array(component), { ...o, ...target })),
      removeVersion: (call, name, version, now) =>
        find('unknown-function', call, (client, o) => client.removeVersion(name, version, { ...o, now })),
      draining: (call, name) => ask(call, (client, o) => client.draining(name, o)),
      liftQuarantine: (call, name) => find('unknown-function', call, (client, o) => client.liftQuarantine(name, o)),
      resolve: (call, name, version) =>
        find('unknown-function', call, (client, o) => client.function(nameOf({ name, version }), { ...o, draw: true })),
    },
    secrets: {
      list: (call) => ask(call, ({ secrets }, o) => secrets.list(o)),
      set: (call, name, value) => ask(call, ({ secrets }, o) => secrets.set(name, value, o)),
      remove: (call, name) => done('unknown-secret', call, ({ secrets }, o) => secrets.remove(name, o)),
    },
    tenants: {
      list: (call) => ask(call, ({ tenants }, o) => tenants.list(o)),
      get: (call, name) => find('unknown-tenant', call, ({ tenants }, o) => tenants.get(name, o)),
      create: (call, name, change) => ask(call, ({ tenants }, o) => tenants.create(name, change, o)),
      change: (call, name, change) => find('unknown-tenant', call, ({ tenants }, o) => tenants.change(name, change, o)),
      keys: (call, tenant) => ask(call, ({ tenants }, o) => tenants.keys(tenant, o)),
      createKey: (call, tenant, key) => ask(call, ({ tenants }, o) => tenants.createKey(key, tenant, o)),
      rotateKey: (call, tenant, id, graceMs) =>
        find('unknown-key', call, ({ tenants }, o) => tenants.rotateKey(id, graceMs, tenant, o)),
      removeKey: (call, tenant, id) => done('unknown-key', call, ({ tenants }, o) => tenants.removeKey(id, tenant, o)),
      audit: (call, query) => ask(call, ({ tenants }, o) => tenants.audit({ ...o, ...query })),
    },
    quotas: {
      status: (call, tenant, fn) => ask(call, ({ quotas }, o) => quotas.list({ ...o, tenant, function: fn })),
      set: (call, tenant, change) => ask(call, ({ quotas }, o) => quotas.set(change, { ...o, tenant })),
      usage: (call, query) => ask(call, ({ quotas }, o) => quotas.usage({ ...o, ...query })),
      minutes: (call, tenant, minutes) => ask(call, ({ quotas }, o) => quotas.minutes(minutes, { ...o, tenant })),
    },
    operations: {
      invocations: (call, query) => ask(call, ({ operations }, o) => operations.invocations({ ...o, ...query })),
      load: (call) => ask(call, ({ operations }, o) => operations.load(o)),
      changeGpuHost: (call, name, change) =>
        find('unknown-gpu-host', call, ({ operations }, o) => operations.changeGpuHost(name, change, o)),
      changeMachine: (call, name, change) =>
        find('unknown-machine', call, ({ operations }, o) => operations.changeMachine(name, change, o)),
      createJoinToken: (call, request) => ask(call, ({ operations }, o) => operations.createJoinToken(request, o)),
      removeMachine: (call, name) =>
        done('unknown-machine', call, ({ operations }, o) => operations.removeMachine(name, o)),
      webhookSecret: (call, rotate) => ask(call, ({ operations }, o) => operations.webhookSecret({ ...o, rotate })),
    },
    schedules: {
      list: (call) => ask(call, async ({ schedules }, o) => (await schedules.list(o)).map(toStored)),
      // No check of the input here: the origin resolves the reference to a version, and checks the input against that version.
      put: (call, { name, function: fn, input, timing }) =>
        find('unknown-function', call, async ({ schedules }, o) =>
          toStored(await schedules.put(name, { function: nameOf(fn), input: exactJson(input), ...timing }, o)),
        ),
      resume: (call, name) =>
        find('unknown-schedule', call, async ({ schedules }, o) => toStored(await schedules.resume(name, o))),
      remove: (call, name) => done('unknown-schedule', call, ({ schedules }, o) => schedules.remove(name, o)),
    },
  };
}

/** Options that a request to the origin takes over from the call. */
function optionsOf(call: Call) {
  return { signal: call.signal, requestId: call.requestId, traceparent: call.traceparent };
}

function headersOf(call: Call): Record<string, string> {
  return { 'x-request-id': call.requestId, traceparent: call.traceparent };
}

function nameOf({ name, version }: { readonly name: string; readonly version?: string | undefined }): string {
  return version === undefined ? name : `${name}@${version}`;
}

function pathOf(id: string): string {
  return `/v1/invocations/${encodeURIComponent(id)}`;
}

function toStored({ input, ...schedule }: Schedule) {
  return { ...schedule, inputText: JSON.stringify(input) };
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
