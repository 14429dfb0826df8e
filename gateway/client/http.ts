import { errorFromResponse, PieError } from './errors.ts';

/** The part of the global `fetch` that the client needs. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface ClientOptions {
  /** Address of the gateway, such as `http://127.0.0.1:8787`. */
  readonly url: string;
  readonly apiKey: string;
  /** `globalThis.fetch` by default; pass a service binding's `fetch` in workerd. */
  readonly fetch?: Fetch;
  /**
   * Limit on the wait for an answer, and on each silence within the answer's body; 60,000 by default. Streams have only the limit on the wait.
   * Deployments, uploads of files and `invokeAndWait` have only the limit on silence.
   */
  readonly timeoutMs?: number;
  /** Longest time that the client tries to resume a broken stream or to retry a refused connection; 30,000 by default. */
  readonly reconnectMs?: number;
  /** A stream that is silent for this long counts as broken; 60,000 by default (the gateway's heartbeat comes every 15 s). */
  readonly idleTimeoutMs?: number;
}

export interface RequestOptions {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | FormData | Uint8Array<ArrayBuffer> | undefined;
  readonly signal?: AbortSignal | undefined;
  /** When true, the time to the first byte of the answer has no limit. */
  readonly patient?: boolean;
  /** An error status to accept as an answer. */
  readonly alsoStatus?: number;
}

/** A control character other than a tab. The negated class excludes every character that is no control character (`\P{Cc}`), and the tab. */
const CONTROL_EXCEPT_TAB = /[^\P{Cc}\t]/u;
const HEADER_RULE = 'Use visible ASCII characters only: no line breaks and no letters of other alphabets.';

/** Sends the client's requests: adds address, key and deadline, and throws {@link PieError}. */
export class Http {
  readonly reconnectMs: number;
  readonly idleTimeoutMs: number;
  readonly #base: string;
  readonly #apiKey: string;
  readonly #fetch: Fetch;
  readonly #timeoutMs: number;

  constructor(options: ClientOptions) {
    this.#base = options.url.replace(/\/+$/, '');
    this.#apiKey = options.apiKey;
    this.#fetch = options.fetch ?? ((url, init) => globalThis.fetch(url, init));
    this.#timeoutMs = options.timeoutMs ?? 60_000;
    this.reconnectMs = options.reconnectMs ?? 30_000;
    this.idleTimeoutMs = options.idleTimeoutMs ?? 60_000;
  }

  /** Returns an answer with a success status. Throws {@link PieError}, or the signal's reason when the caller aborted. */
  async request(path: string, options: RequestOptions = {}): Promise<Response> {
    const headers = headersOf({
      accept: 'application/json',
      ...options.headers,
      authorization: `Bearer ${this.#apiKey}`,
    });
    const timeout = new AbortController();
    const signal = options.signal === undefined ? timeout.signal : AbortSignal.any([options.signal, timeout.signal]);
    const timer =
      options.patient === true
        ? undefined
        : setTimeout(
            () => timeout.abort(new DOMException(`no answer within ${this.#timeoutMs} ms`, 'TimeoutError')),
            this.#timeoutMs,
          );
    let response: Response;
    try {
      // Pass the address instead of a `Request`: the signal of a `Request` works only while that object lives, and no code would hold it.
      response = await this.#fetch(`${this.#base}${path}`, {
        method: options.method ?? 'GET',
        headers,
        body: options.body ?? null,
        signal,
      });
    } catch (cause) {
      throw this.#connectionError('cannot be reached', cause, options.signal);
    } finally {
      clearTimeout(timer);
    }
    if (response.ok || response.status === options.alsoStatus) return response;
    throw await errorFromResponse(response, await this.text(response, options.signal));
  }

  async json<T>(path: string, options?: RequestOptions): Promise<T> {
    return this.parsed<T>(await this.request(path, options), options?.signal);
  }

  /**
   * The JSON of an answer. Throws {@link PieError}, or the signal's reason.
   *
   * @param parse throws for a text that is not JSON
   */
  async parsed<T>(response: Response, signal?: AbortSignal, parse: (text: string) => unknown = JSON.parse): Promise<T> {
    const text = await this.text(response, signal);
    try {
      return parse(text) as T;
    } catch (cause) {
      throw new PieError('bad-response', 'The answer is not JSON.', { status: response.status, cause });
    }
  }

  /** The text of an answer. Throws like {@link bytes}. */
  async text(response: Response, signal?: AbortSignal): Promise<string> {
    return new TextDecoder().decode(await this.bytes(response, signal));
  }

  /** The bytes of an answer. Throws {@link PieError} when the connection breaks or falls silent before their end, or the signal's reason. */
  async bytes(response: Response, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    if (response.body === null) return new Uint8Array(0);
    try {
      return await readAll(response.body, this.#timeoutMs);
    } catch (cause) {
      throw this.#connectionError('broke off its answer', cause, signal);
    }
  }

  /**
   * Retries transient failures (a refused connection, a restarting store), with growing pauses, until the attempt succeeds, fails
   * for good, or `reconnectMs` have passed since the first attempt.
   *
   * @param patient true for a request whose answer may come late. `reconnectMs` then count from the first failure. They count anew, once, from
   * the first failure after a wait longer than `reconnectMs`: Node's `fetch` gives up a request that has had no answer for 300 s
   * @param isTransient true for a failure to retry
   */
  async retrying<T>(
    attempt: () => Promise<T>,
    signal?: AbortSignal,
    patient = false,
    isTransient = (error: PieError) => error.retryable,
  ): Promise<T> {
    let giveUpAt = patient ? undefined : performance.now() + this.reconnectMs;
    let hasWaited = false;
    for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 1000)) {
      const beganAt = performance.now();
      try {
        return await attempt();
      } catch (error) {
        // During a long wait for an answer there was a gateway, so the time since earlier failures does not count.
        const wasLongWait = patient && performance.now() - beganAt > this.reconnectMs;
        if (giveUpAt === undefined || (wasLongWait && !hasWaited)) giveUpAt = performance.now() + this.reconnectMs;
        hasWaited ||= wasLongWait;
        if (!(error instanceof PieError) || !isTransient(error) || performance.now() + pauseMs > giveUpAt) throw error;
      }
      await pause(pauseMs, signal);
    }
  }

  /** The error of a request whose connection failed: the signal's reason when the caller aborted it. */
  #connectionError(what: string, cause: unknown, signal: AbortSignal | undefined): unknown {
    if (signal?.aborted === true) return signal.reason;
    return new PieError('connection-failed', `${this.#base} ${what}: ${reasonOf(cause)}.`, {
      hint: 'Check the address, and that the platform runs (`pie doctor`).',
      cause,
    });
  }
}

/** Checks the headers before the request. For a bad header, `fetch` throws the same TypeError as for a broken connection, which is worth a retry. */
function headersOf(values: Readonly<Record<string, string>>): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(values)) {
    try {
      // `Headers` accepts most control characters. Then `fetch` fails as if the gateway could not be reached.
      if (CONTROL_EXCEPT_TAB.test(value)) throw new TypeError('a control character');
      headers.set(name, value);
    } catch {
      // The new error has no cause: the cause's message can quote the value, which may be a key.
      throw new PieError('invalid-input', `The value for the header ${name} has characters that no header can carry.`, {
        hint: name === 'authorization' ? 'Check the API key: it has visible ASCII characters only.' : HEADER_RULE,
        field: name,
      });
    }
  }
  return headers;
}

/** Reads a body to its end. Rejects with `TimeoutError` (DOMException) when no byte comes for `silentMs`. */
async function readAll(body: ReadableStream<Uint8Array>, silentMs: number): Promise<Uint8Array<ArrayBuffer>> {
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for (let chunk = await nextIn(silentMs, reader); chunk !== null; chunk = await nextIn(silentMs, reader)) {
      chunks.push(chunk);
      length += chunk.byteLength;
    }
  } catch (error) {
    // Frees the connection. A failed body cannot be cancelled: ignore the error.
    reader.cancel(error).catch(() => undefined);
    throw error;
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}

/** The next chunk of a body, if it comes within `ms`; null at the end of the body. */
function nextIn(ms: number, reader: ReadableStreamDefaultReader<Uint8Array>): Promise<Uint8Array | null> {
  return new Promise((resolve, reject) => {
    const giveUp = () => reject(new DOMException(`no byte came for ${ms} ms`, 'TimeoutError'));
    const timer = setTimeout(giveUp, ms);
    reader
      .read()
      .then(({ done, value }) => resolve(done ? null : value), reject)
      .finally(() => clearTimeout(timer));
  });
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error ? cause.cause.message || cause.message : cause.message;
}

/** Waits `ms`. Rejects with the signal's reason when it aborts. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** Options of every client request. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly requestId?: string | undefined;
  readonly traceparent?: string | undefined;
}

/** The HTTP options that the call options set. */
export function common({ signal, requestId, traceparent }: CallOptions) {
  const headers: Record<string, string> = {};
  if (requestId !== undefined) headers['x-request-id'] = requestId;
  if (traceparent !== undefined) headers.traceparent = traceparent;
  return { signal, headers };
}

/** The members of a query without the call options, which callers pass in the same object. */
export function queryOf<T extends CallOptions>({ signal, requestId, traceparent, ...query }: T) {
  return query;
}

/** The path with a query string of the values that are set. */
export function withQuery(path: string, values: Readonly<Record<string, string | number | undefined>>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) search.set(name, String(value));
  return search.size === 0 ? path : `${path}?${search}`;
}

/** The HTTP options of a call with a JSON body. */
export function withBody(options: CallOptions, method: 'POST' | 'PUT' | 'PATCH', body: unknown) {
  const { signal, headers } = common(options);
  return { signal, method, body: JSON.stringify(body), headers: { ...headers, 'content-type': 'application/json' } };
}
