import type { Header } from 'pie:inferlet/http@0.1.0';
import { type AbortSignalLike, abortable, throwIfAborted } from '../abort.ts';
import { concatenate, textStream, toBytes, toJson, toText } from '../bytes.ts';
import { InferletError } from '../errors.ts';
import { attempt, Exchange, settle } from '../raw.ts';

/** Header names and values. A list may repeat a name. */
export type HeadersInit = Readonly<Record<string, string>> | Iterable<readonly [string, string]>;

/** Options of a request. */
export interface FetchOptions {
  /** `GET` by default, `POST` with a body. */
  readonly method?: string;
  readonly headers?: HeadersInit;
  /** At most 4 MiB. */
  readonly body?: string | Uint8Array | null;
  /** A value to send as JSON instead of `body`, with the JSON content type; `invalid-argument` for a value that JSON cannot represent. */
  readonly json?: unknown;
  /** Treatment of redirects: `follow` at most ten (default), return the redirect itself (`manual`), or throw `unavailable` (`error`). */
  readonly redirect?: 'follow' | 'manual' | 'error';
  /** Time limit until the head of the response, redirects included; 30,000 ms by default, at most the invocation's time left. */
  readonly timeoutMs?: number;
  /** When aborted, pending and later reads fail and close the connection. */
  readonly signal?: AbortSignalLike;
}

const MAX_REDIRECTS = 10;

/**
 * Sends a request to a host that the function was granted (manifest: `grants.hosts`). Works like the web's `fetch`, but throws an
 * {@link InferletError}: `unsupported` for a host that was not granted, `unavailable` for a host that cannot be reached,
 * `deadline-exceeded` after the time limit, `limit-exceeded` beyond 64 concurrent requests or 32 MiB of response body. A status of 400 or
 * more does not throw: check `ok`.
 *
 * @example
 * using response = await fetch('https://api.example.com/weather?city=Paris', { signal });
 * if (response.ok) return await response.json();
 */
export async function fetch(url: string | { readonly href: string }, options: FetchOptions = {}): Promise<Response> {
  const { redirect = 'follow', timeoutMs, signal } = options;
  throwIfAborted(signal);
  const { headers, body } = content(options);
  const exchange = attempt(
    () =>
      new Exchange({
        method: (options.method ?? (body === undefined ? 'GET' : 'POST')).toUpperCase(),
        url: typeof url === 'string' ? url : url.href,
        headers,
        body,
        timeoutMs,
        redirects: redirect === 'follow' ? MAX_REDIRECTS : 0,
      }),
  );
  try {
    const head = await abortable(settle(exchange.head()), signal);
    const response = new Response(exchange, head.status, head.url, new Headers(head.headers), signal);
    if (redirect !== 'manual' && response.isRedirect) {
      const why = redirect === 'error' ? 'which was not to be followed' : `the ${MAX_REDIRECTS + 1}th in a row`;
      throw new InferletError('unavailable', `${head.url} redirects to ${response.headers.get('location')}, ${why}.`);
    }
    return response;
  } catch (error) {
    exchange.drop();
    throw error;
  }
}

function content({ headers = {}, body, json }: FetchOptions): { headers: Header[]; body: Uint8Array | undefined } {
  const pairs = Symbol.iterator in headers ? [...headers] : Object.entries(headers);
  const list = pairs.map(([name, value]) => ({ name, value }));
  const add = (value: string) => {
    if (!list.some(({ name }) => name.toLowerCase() === 'content-type')) list.push({ name: 'content-type', value });
  };
  if (json !== undefined) {
    if (body !== undefined && body !== null) {
      throw new InferletError('invalid-argument', 'A request has one body: give `body` or `json`.');
    }
    add('application/json');
    return { headers: list, body: toBytes(toJson(json)) };
  }
  if (typeof body === 'string') add('text/plain;charset=UTF-8');
  return { headers: list, body: body === undefined || body === null ? undefined : toBytes(body) };
}

/** Headers of a response. Lookup ignores the case of names. */
export class Headers implements Iterable<readonly [string, string]> {
  readonly #list: readonly Header[];

  /** @internal Names in lower case. */
  constructor(list: readonly Header[]) {
    this.#list = list;
  }

  /** The value of a header, several values joined with a comma; null if the header is missing. */
  get(name: string): string | null {
    const all = this.getAll(name);
    return all.length === 0 ? null : all.join(', ');
  }

  /** Each value of a header that may come more than once, such as `set-cookie`. */
  getAll(name: string): string[] {
    const wanted = name.toLowerCase();
    return this.#list.filter((header) => header.name === wanted).map(({ value }) => value);
  }

  has(name: string): boolean {
    return this.getAll(name).length > 0;
  }

  *[Symbol.iterator](): Generator<readonly [string, string], void, void> {
    for (const { name, value } of this.#list) yield [name, value];
  }
}

const CLOSED_EARLY =
  'The response was closed while its body was read. Await it (`return await response.json()`) before the scope of `using` ends.';
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/**
 * A response. The body can be read once: iterate the response for pieces of bytes as they arrive, use {@link lines} for lines of text, or
 * read the whole body. The connection closes at the end of the body, or with `using` at the end of the scope.
 */
export class Response implements AsyncIterable<Uint8Array>, Disposable {
  readonly status: number;
  /** URL of the response, after redirects. */
  readonly url: string;
  readonly headers: Headers;
  readonly #exchange: Exchange;
  readonly #signal: AbortSignalLike | undefined;
  #used = false;
  #closed = false;

  /** @internal Constructed by {@link fetch}. */
  constructor(exchange: Exchange, status: number, url: string, headers: Headers, signal: AbortSignalLike | undefined) {
    this.#exchange = exchange;
    this.status = status;
    this.url = url;
    this.headers = headers;
    this.#signal = signal;
  }

  /** True when the status is from 200 to 299. */
  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** True when the response is a redirect with a location. */
  get isRedirect(): boolean {
    return REDIRECTS.has(this.status) && this.headers.has('location');
  }

  /** True when the body has been read, at least in part. */
  get bodyUsed(): boolean {
    return this.#used;
  }

  /** The body in pieces of at most 64 KiB. Leaving the loop closes the connection. */
  get body(): AsyncIterable<Uint8Array> {
    return this;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    if (this.#used || this.#closed) {
      const text = this.#used ? 'The body of this response was read already.' : 'This response was closed.';
      throw new InferletError('closed', text);
    }
    this.#used = true;
    try {
      for (;;) {
        throwIfAborted(this.#signal);
        const piece = await abortable(settle(this.#exchange.read()), this.#signal);
        if (piece === null) return;
        yield piece;
      }
    } catch (error) {
      throw this.#closed ? new InferletError('closed', CLOSED_EARLY) : error;
    } finally {
      this.close();
    }
  }

  /** Lines of text, without line ends, as they arrive. */
  async *lines(): AsyncGenerator<string, void, void> {
    const text = textStream();
    let incompleteLine = '';
    for await (const piece of this) {
      const lines = (incompleteLine + text.push(piece)).split(/\r\n|\n/);
      incompleteLine = lines.pop() ?? '';
      yield* lines;
    }
    incompleteLine += text.finish();
    if (incompleteLine !== '') yield incompleteLine;
  }

  async bytes(): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this) pieces.push(piece);
    return concatenate(pieces);
  }

  async text(): Promise<string> {
    return toText(await this.bytes());
  }

  /** Parses the body as JSON. Throws `unavailable` when it is not JSON. */
  async json<T = unknown>(): Promise<T> {
    const text = await this.text();
    try {
      return JSON.parse(text) as T;
    } catch {
      const begin = JSON.stringify(text.slice(0, 80));
      throw new InferletError(
        'unavailable',
        `${this.url} answered ${this.status} with a body that is not JSON: ${begin}.`,
      );
    }
  }

  /** Closes the connection. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#exchange.drop();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
