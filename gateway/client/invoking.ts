import type { InvocationState, Json } from '../app/control.ts';
import type { Outcome as HeldOutcome, MessageData } from '../app/schemas/invocations.ts';
import { errorFromEvent, PieError } from './errors.ts';
import { type CallOptions, common, type Http, type RequestOptions } from './http.ts';
import { InvocationStream } from './invocation-stream.ts';

export interface InvokeOptions extends CallOptions {
  /** Cancel the invocation when this client disconnects before its end. Otherwise it keeps running. */
  readonly cancelOnDisconnect?: boolean;
  /**
   * Invoking again with the same key and input returns the first invocation's outcome. While that invocation runs, the gateway refuses with
   * `idempotency-in-flight`; the error's `invocation` is the id to attach to. By default a random key makes this client's own retries safe.
   */
  readonly idempotencyKey?: string;
  /** Deadline from now on, queueing included; the invocation then ends with `deadline-exceeded`. */
  readonly cancelAfterMs?: number;
  /** An https URL to which the platform sends a notification of the end (Standard Webhooks). */
  readonly webhook?: string;
  /** 1 to 256 visible ASCII characters. Invocations with the same affinity prefer the same GPU host, which has the prefixes of their prompts. */
  readonly affinity?: string;
  /**
   * At most `limit` (1 by default) of the tenant's invocations with this key wait or run at once; another one is refused with
   * `concurrency-key-busy`. The key has 1 to 256 visible ASCII characters.
   */
  readonly concurrency?: { readonly key: string; readonly limit?: number };
  /**
   * The invocation starts after `delayMs` (1 s to 24 h). Until then, a later invocation of the same function with this key replaces it: the
   * replaced one ends as `superseded`, and its error's `successor` names the later one. Each replacement starts the delay anew, until `maxMs`
   * (ten delays by default) have passed since the first invocation.
   */
  readonly debounce?: { readonly key: string; readonly delayMs: number; readonly maxMs?: number };
}

export type Outcome = HeldOutcome & { readonly output: Json };

/** Invokes and streams. Resolves once the invocation exists. */
export async function invokeStream(
  http: Http,
  path: string,
  input: unknown,
  options: InvokeOptions,
): Promise<InvocationStream> {
  const headers = preferenceHeaders(options);
  const request = requestOf(input, options, { accept: 'text/event-stream', ...headers });
  const openStream = (id: string, response: Response | null) =>
    new InvocationStream(http, id, response, '0', { signal: options.signal, headers });
  return sendOrAttach(
    http,
    options,
    async () => {
      const response = await http.request(path, request);
      const id = /^\/v1\/invocations\/([^/]+)$/.exec(response.headers.get('content-location') ?? '')?.[1];
      if (id === undefined)
        throw new PieError('bad-response', 'The answer does not name its invocation.', { status: response.status });
      return openStream(decodeURIComponent(id), response);
    },
    async (id) => openStream(id, null),
  );
}

/** Invokes and waits for the outcome. Throws when the invocation fails. */
export async function invokeForOutcome(
  http: Http,
  path: string,
  input: unknown,
  options: InvokeOptions,
): Promise<Outcome> {
  const headers = preferenceHeaders(options);
  const request = requestOf(input, options, { accept: 'application/json', ...headers });
  return sendOrAttach(
    http,
    options,
    () => http.json<Outcome>(path, { ...request, patient: true }),
    (id) => outcomeOf(new InvocationStream(http, id, null, '0', { signal: options.signal, headers })),
    true,
  );
}

/** Invokes and does not wait. */
export async function invokeAsync(
  http: Http,
  path: string,
  input: unknown,
  options: InvokeOptions,
): Promise<InvocationState> {
  const request = requestOf(input, options, { prefer: 'respond-async' });
  return sendOrAttach(
    http,
    options,
    () => http.json<InvocationState>(path, request),
    (id) => http.json<InvocationState>(`/v1/invocations/${encodeURIComponent(id)}`, common(options)),
  );
}

/** Options of an invocation that the client sends as headers. */
type HeaderOptions = {
  readonly [K in 'idempotencyKey' | 'cancelAfterMs' | 'webhook' | 'affinity' | 'concurrency' | 'debounce']?:
    | InvokeOptions[K]
    | undefined;
};

/** Headers of a request with a JSON body that makes an invocation. */
export function invocationHeaders(options: HeaderOptions): Record<string, string> {
  const { idempotencyKey, cancelAfterMs, webhook, affinity, concurrency, debounce } = options;
  return {
    'content-type': 'application/json',
    ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
    ...(cancelAfterMs === undefined ? {} : { 'cancel-after': `${Math.max(1, Math.round(cancelAfterMs))}ms` }),
    ...(webhook === undefined ? {} : { 'webhook-url': webhook }),
    ...(affinity === undefined ? {} : { 'x-session-affinity': affinity }),
    ...(concurrency === undefined
      ? {}
      : { 'concurrency-key': concurrency.key, 'concurrency-limit': String(concurrency.limit ?? 1) }),
    ...(debounce === undefined ? {} : debounceHeaders(debounce)),
  };
}

const debounceHeaders = ({ key, delayMs, maxMs }: NonNullable<InvokeOptions['debounce']>) => ({
  'debounce-key': key,
  'debounce-delay': `${Math.round(delayMs)}ms`,
  ...(maxMs === undefined ? {} : { 'debounce-max': `${Math.round(maxMs)}ms` }),
});

export function preferenceHeaders(options: { readonly cancelOnDisconnect?: boolean }): Record<string, string> {
  return options.cancelOnDisconnect === true ? { prefer: 'cancel-on-disconnect' } : {};
}

/**
 * Sends a request, with retries, until it succeeds or fails for good. A request whose answer was lost may have made its invocation: the gateway
 * then refuses the retry as in flight, and the client attaches to that invocation. At the first try with the caller's own key, the client does
 * not attach: another request may have used the key.
 *
 * @param patient true when the answer may come late; see `Http.retrying`
 */
function sendOrAttach<T>(
  http: Http,
  options: InvokeOptions,
  send: () => Promise<T>,
  attach: (id: string) => Promise<T>,
  patient = false,
): Promise<T> {
  let mayAttach = options.idempotencyKey === undefined;
  const attempt = async (): Promise<T> => {
    try {
      return await send();
    } catch (error) {
      const isInFlight = error instanceof PieError && error.code === 'idempotency-in-flight';
      if (isInFlight && mayAttach && error.invocation !== undefined) return attach(error.invocation);
      mayAttach = true;
      throw error;
    }
  };
  return http.retrying(attempt, options.signal, patient);
}

function requestOf(input: unknown, options: InvokeOptions, headers: Record<string, string>): RequestOptions {
  const { idempotencyKey = crypto.randomUUID() } = options;
  return {
    method: 'POST',
    signal: options.signal,
    body: JSON.stringify(input ?? {}),
    headers: { ...common(options).headers, ...headers, ...invocationHeaders({ ...options, idempotencyKey }) },
  };
}

async function outcomeOf(stream: InvocationStream): Promise<Outcome> {
  const messages: MessageData[] = [];
  let keptCount = 0;
  for await (const event of stream) {
    // A new attempt voids the messages of the earlier one, except those that came before a question.
    if (event.event === 'start') messages.length = keptCount;
    else if (event.event === 'question') keptCount = messages.length;
    else if (event.event === 'message') messages.push(event.data);
    else if (event.event === 'error') throw errorFromEvent(event.data, stream.id);
    else if (event.event === 'result') {
      const { output, usage } = event.data;
      return { id: stream.id, status: 'succeeded', output: output ?? null, messages, usage };
    }
  }
  throw new PieError('bad-response', 'The stream ended without an outcome.', { invocation: stream.id });
}
