import type { IncomingMessage } from 'node:http';
import type { Reach } from '../addresses/reach.ts';
import { respond, untilAborted } from '../addresses/respond.ts';
import type { Answer } from './attempts.ts';

/** Maximum bytes read of a response's body. The content is ignored, but reading lets a normal server finish its response. */
const MAX_DRAINED_BYTES = 64 * 1024;
const MAX_HEAD_BYTES = 16 * 1024;

/**
 * Sends a body and returns the response's status and `Retry-After`. Connects only to the addresses that `reach` has checked, follows no redirect, and gives up when
 * the signal aborts, whatever the server does. Never throws.
 */
export async function post(
  url: URL,
  headers: Readonly<Record<string, string>>,
  body: string,
  { reach, tenant }: { readonly reach: Reach; readonly tenant: string },
  signal: AbortSignal,
): Promise<Answer> {
  try {
    const addresses = await untilAborted(reach.addresses(url, tenant, signal), signal);
    const sentHeaders = { ...headers, 'content-length': String(Buffer.byteLength(body)) };
    const request = { url, addresses, method: 'POST', headers: sentHeaders, body, maxHeadBytes: MAX_HEAD_BYTES };
    const { response } = await untilAborted(respond(request, signal), signal);
    // The status is the result, even when reading the body fails.
    await untilAborted(drainBody(response), signal).catch(() => undefined);
    const retryAfter = response.headers['retry-after'];
    return { status: response.statusCode ?? 0, ...(retryAfter !== undefined && { retryAfter }) };
  } catch (error) {
    return { error: signal.aborted ? 'no answer in time' : reasonOf(error) };
  }
}

async function drainBody(response: IncomingMessage): Promise<void> {
  let bytes = 0;
  for await (const chunk of response) {
    bytes += (chunk as Buffer).length;
    if (bytes > MAX_DRAINED_BYTES) break;
  }
  response.destroy();
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as NodeJS.ErrnoException;
  return (code ?? error.message).slice(0, 200);
}
