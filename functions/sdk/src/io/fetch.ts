import type { Header } from 'pie:inferlet/http@0.1.0';
import { type AbortSignalLike, abortable, throwIfAborted } from '../abort.ts';
import { toBytes } from '../bytes.ts';
import { InferletError } from '../errors.ts';
import { toJson } from '../json.ts';
import { attempt, Exchange, settle } from '../raw.ts';
import { Headers, Response } from './fetch-response.ts';

export { Headers, Response } from './fetch-response.ts';

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
