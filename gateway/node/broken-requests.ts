import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { GatewayError } from '../app/errors/gateway-error.ts';
import { toProblem } from '../app/errors/problem.ts';
import { requestIdOf } from '../app/http/trace.ts';

/** Maximum bytes of a request's headers. Node counts the request line too. */
export const MAX_HEADER_BYTES = 16 * 1024;

const REASONS: Readonly<Record<number, string>> = { 400: 'Bad Request', 431: 'Request Header Fields Too Large' };

/**
 * Answers input that is not a valid request (oversized headers, bytes that are not HTTP) with a problem document, like any other refusal, and
 * closes the connection. The app never sees such input.
 */
export function answerBrokenRequests(server: Server): void {
  /** Number of answers in progress per connection. A refusal would land in the middle of such an answer, so the connection is destroyed instead. */
  const openAnswers = new WeakMap<Socket, number>();
  /** Connections that got a refusal here. Further errors of their input are ignored. */
  const refused = new WeakSet<Socket>();
  server.on('request', ({ socket }, response) => {
    openAnswers.set(socket, (openAnswers.get(socket) ?? 0) + 1);
    response.once('close', () => openAnswers.set(socket, (openAnswers.get(socket) ?? 1) - 1));
  });
  server.on('clientError', (error: NodeJS.ErrnoException, stream) => {
    const socket = stream as Socket;
    if (refused.has(socket)) return;
    if (!socket.writable || error.code === 'ECONNRESET' || (openAnswers.get(socket) ?? 0) > 0) {
      socket.destroy();
      return;
    }
    // Read and drop the rest of the input until the client closes the connection: after a reset, the client might lose the answer.
    refused.add(socket);
    socket.end(answerTo(error.code ?? '', originOf(socket)));
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once('close', () => clearTimeout(timer));
  });
}

/** Time from a refusal until the connection is destroyed, even if the client goes on sending. */
const LINGER_MS = 5000;

function answerTo(code: string, origin: string): string {
  const error = refusalOf(code);
  const requestId = requestIdOf(undefined);
  const body = JSON.stringify(toProblem(error, requestId, origin));
  return [
    `HTTP/1.1 ${error.status} ${REASONS[error.status] ?? 'Error'}`,
    'content-type: application/problem+json',
    `content-length: ${Buffer.byteLength(body)}`,
    'cache-control: no-store',
    'connection: close',
    'x-content-type-options: nosniff',
    `x-request-id: ${requestId}`,
    '',
    body,
  ].join('\r\n');
}

function refusalOf(code: string): GatewayError {
  if (code === 'HPE_HEADER_OVERFLOW')
    return new GatewayError(
      'headers-too-large',
      `The headers of the request have more than ${MAX_HEADER_BYTES} bytes.`,
    );
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return new GatewayError('malformed-request', 'The request was not complete in time.', {
      hint: 'Send the request again, over a faster connection or with a smaller body.',
    });
  return new GatewayError('malformed-request', `The request cannot be read as HTTP (${code || 'unknown fault'}).`, {
    hint: 'Check the client and any proxy on the way: the gateway takes HTTP/1.1.',
  });
}

function originOf({ localAddress = '127.0.0.1', localPort = 80 }: Socket): string {
  const host = localAddress.includes(':') ? `[${localAddress}]` : localAddress;
  return `http://${host}:${localPort}`;
}
