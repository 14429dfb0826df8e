import type { LookupAddress } from 'node:dns';
import { type ClientRequest, type IncomingMessage, type OutgoingHttpHeaders, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';

/** A request to send, and the checked addresses of its URL's host. */
export interface CheckedRequest {
  readonly url: URL;
  readonly addresses: readonly LookupAddress[];
  readonly method: string;
  readonly headers: OutgoingHttpHeaders;
  readonly body: string | Uint8Array | null;
  /** Maximum length of the response's head. */
  readonly maxHeadBytes: number;
}

/** Connects, sends, and waits for the head of the response. The connection serves only this request; the signal ends it at any time. */
export function respond(
  { url, addresses, method, headers, body, maxHeadBytes }: CheckedRequest,
  signal: AbortSignal,
): Promise<{ readonly request: ClientRequest; readonly response: IncomingMessage }> {
  const send = url.protocol === 'https:' ? requestHttps : requestHttp;
  return new Promise((resolve, reject) => {
    const request = send(url, {
      method,
      headers,
      signal,
      agent: false,
      maxHeaderSize: maxHeadBytes,
      // Connect to the checked addresses: a second lookup could return others.
      lookup: (_hostname, options, done) => {
        const [first] = addresses;
        if (options.all) done(null, [...addresses]);
        else done(null, first?.address ?? '', first?.family);
      },
    });
    request.once('response', (response) => resolve({ request, response }));
    request.on('error', reject);
    // A server that switches protocols or closes the connection causes neither a response nor an error.
    request.once('close', () => reject(new Error('the connection was closed before there was an answer')));
    request.end(body ?? undefined);
  });
}

/** Settles like `work`, or rejects with the signal's reason if it aborts first: resolvers and remote servers may take arbitrarily long. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let abort: () => void = () => undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
