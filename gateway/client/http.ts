import { errorFromResponse, PieError } from './errors.ts';

/** The part of the global `fetch` that the client needs. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface ClientOptions {
  /** Address of the gateway, such as `http://127.0.0.1:8787`. */
  readonly url: string;
  readonly apiKey: string;
  /** `globalThis.fetch` by default; pass a service binding's `fetch` in workerd. */
  readonly fetch?: Fetch;
  /** Limit on requests that answer at once; 60,000 by default. Streams and deployments have no such limit. */
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
    const late = new AbortController();
    const signal = options.signal === undefined ? late.signal : AbortSignal.any([options.signal, late.signal]);
    const timer =
      options.patient === true
        ? undefined
        : setTimeout(
            () => late.abort(new DOMException(`no answer within ${this.#timeoutMs} ms`, 'TimeoutError')),
            this.#timeoutMs,
          );
    let response: Response;
    try {
      // Do not wrap it in a Request: its signal works only while the Request object lives, and nothing would hold on to it.
      response = await this.#fetch(`${this.#base}${path}`, {
        method: options.method ?? 'GET',
        headers: { accept: 'application/json', ...options.headers, authorization: `Bearer ${this.#apiKey}` },
        body: options.body ?? null,
        signal,
      });
    } catch (cause) {
      throw this.#broken('cannot be reached', cause, options.signal);
    } finally {
      clearTimeout(timer);
    }
    if (response.ok || response.status === options.alsoStatus) return response;
    throw await errorFromResponse(response, await this.body(response.text(), options.signal));
  }

  async json<T>(path: string, options?: RequestOptions): Promise<T> {
    return this.parsed<T>(await this.request(path, options), options?.signal);
  }

  /** The JSON of an answer. Throws {@link PieError}, or the signal's reason. */
  async parsed<T>(response: Response, signal?: AbortSignal): Promise<T> {
    const text = await this.body(response.text(), signal);
    try {
      return JSON.parse(text) as T;
    } catch (cause) {
      throw new PieError('bad-response', 'The answer is not JSON.', { status: response.status, cause });
    }
  }

  /** Waits for the body of an answer. Throws {@link PieError} when the connection breaks before its end, or the signal's reason. */
  async body<T>(read: Promise<T>, signal?: AbortSignal): Promise<T> {
    try {
      return await read;
    } catch (cause) {
      throw this.#broken('broke off its answer', cause, signal);
    }
  }

  /**
   * Retries transient failures (a refused connection, a restarting store), with growing pauses, until the attempt succeeds, fails
   * for good, or `reconnectMs` have passed.
   *
   * @param patient when true, `reconnectMs` count from the first failure, and once more from a failure after a long wait for an answer: `fetch`
   * of Node gives up a request that has had no answer for 300 s
   */
  async retrying<T>(attempt: () => Promise<T>, signal?: AbortSignal, patient = false): Promise<T> {
    let giveUpAt = patient ? undefined : performance.now() + this.reconnectMs;
    let hasWaited = false;
    for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 1000)) {
      const beganAt = performance.now();
      try {
        return await attempt();
      } catch (error) {
        // A gateway was there while the client waited for its answer, so an earlier refusal does not count against this failure.
        const isLate = patient && performance.now() - beganAt > this.reconnectMs;
        if (giveUpAt === undefined || (isLate && !hasWaited)) giveUpAt = performance.now() + this.reconnectMs;
        hasWaited ||= isLate;
        if (!(error instanceof PieError) || !error.retryable || performance.now() + pauseMs > giveUpAt) throw error;
      }
      await pause(pauseMs, signal);
    }
  }

  /** The error of a request whose connection failed: the signal's reason when the caller aborted it. */
  #broken(what: string, cause: unknown, signal: AbortSignal | undefined): unknown {
    if (signal?.aborted === true) return signal.reason;
    return new PieError('connection-failed', `${this.#base} ${what}: ${reasonOf(cause)}.`, {
      hint: 'Check the address, and that the platform runs (`pie doctor`).',
      cause,
    });
  }
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
