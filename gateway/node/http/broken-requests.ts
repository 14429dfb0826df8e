import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { GatewayError, problemHeaders, toProblem } from '../../app/errors/gateway-error.ts';
import { crossOriginHeaders } from '../../app/http/common-headers.ts';
import { requestIdOf } from '../../app/http/observer.ts';

/** Maximum bytes of a request's headers. Node counts the request line too. */
export const MAX_HEADER_BYTES = 16 * 1024;
/** Time from a refusal until the connection is destroyed, even if the client goes on sending. */
const LINGER_MS = 5000;

/**
 * Answers input that is not a valid request (oversized or late headers, bytes that are not HTTP, a broken body) with a problem document, like any
 * other refusal, and closes the connection. The app never sees such input, except for a body that breaks while the app reads it.
 *
 * @param corsOrigins see `AppSettings.corsOrigins`
 */
export function answerBrokenRequests(server: Server, corsOrigins: readonly string[]): void {
  /** Answers in progress per connection. */
  const openAnswers = new WeakMap<Socket, Set<ServerResponse>>();
  /** Connections that got a refusal here. Further errors of their input are ignored. */
  const refused = new WeakSet<Socket>();
  const refuse = (socket: Socket, error: GatewayError, pageOrigin?: string) => {
    // Read and drop the rest of the input until the client closes the connection: after a reset, the client might lose the answer.
    refused.add(socket);
    socket.end(answerTo(error, originOf(socket), crossOriginHeaders(corsOrigins, pageOrigin)));
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once('close', () => clearTimeout(timer));
  };
  server.on('request', ({ socket }, response) => {
    const answers = openAnswers.get(socket) ?? new Set();
    openAnswers.set(socket, answers.add(response));
    response.once('close', () => answers.delete(response));
  });
  server.on('clientError', (error: NodeJS.ErrnoException & { readonly rawPacket?: Buffer }, stream) => {
    const socket = stream as Socket;
    if (refused.has(socket)) return;
    const [first, ...others] = openAnswers.get(socket) ?? [];
    // The refusal would land before or within an answer that a request before this one gets.
    const isAnswering = others.length > 0 || (first !== undefined && (first.headersSent || first.req.complete));
    // A client may open a connection before it has a request. An answer without a question could be taken for that of its first request.
    const isSilent = socket.bytesRead === 0;
    if (!socket.writable || error.code === 'ECONNRESET' || isAnswering || isSilent) socket.destroy();
    else {
      const pageOrigin = first ? first.req.headers.origin : pageOriginIn(error.rawPacket);
      refuse(socket, refusalOf(error.code ?? '', first !== undefined, error.rawPacket), pageOrigin);
    }
  });
  server.on('connect', ({ method }, stream) => {
    // Node has taken its own listener from the connection. Without another one, a reset by the client would end this process.
    stream.on('error', () => stream.destroy());
    // An answer would land before those of the requests before this one.
    if (openAnswers.get(stream as Socket)?.size) {
      stream.destroy();
      return;
    }
    const hint = 'Send requests to the gateway itself; it is no proxy.';
    refuse(stream as Socket, new GatewayError('method-not-allowed', `The gateway does not take ${method}.`, { hint }));
  });
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    const hint = 'Send the request without the header `Expect`, or with `Expect: 100-continue`.';
    const text = 'The gateway cannot meet the expectation that the header `Expect` names.';
    answerWith(new GatewayError('malformed-request', text, { hint, field: 'expect' }), request, response, corsOrigins);
  });
}

/**
 * Returns true for a request that names the host that it asks for as RFC 9112 (section 3.2) demands. Answers any other one with a problem: of
 * HTTP/1.1 without `Host`, or with several. A request of HTTP/1.0 may lack the header; it then asks for the address of its connection.
 */
export function hasHost(request: IncomingMessage, response: ServerResponse, corsOrigins: readonly string[]): boolean {
  const { headers, httpVersionMajor, httpVersionMinor, socket } = request;
  const count = request.headersDistinct.host?.length ?? 0;
  if (count === 1 && headers.host !== '') return true;
  if (count === 0 && httpVersionMajor === 1 && httpVersionMinor === 0) {
    headers.host = addressOf(socket);
    return true;
  }
  const what = count > 1 ? `${count} headers \`Host\`` : count === 1 ? 'an empty header `Host`' : 'no header `Host`';
  const hint = 'Send one header `Host` with the name or the address of the gateway.';
  const error = new GatewayError('malformed-request', `The request has ${what}.`, { hint, field: 'host' });
  answerWith(error, request, response, corsOrigins);
  return false;
}

/** The refusal of a request for which no address can be made of its target and its header `Host`. */
export function unusableTarget(cause: unknown): GatewayError {
  return new GatewayError('malformed-request', 'The header `Host` or the path of the request is not valid.', {
    hint: 'Send the name or the address of the gateway as `Host`, and a path that begins with `/`.',
    cause,
  });
}

/** The answer to a request that the app did not answer. */
export function problemResponse(
  error: GatewayError,
  request: IncomingMessage,
  corsOrigins: readonly string[],
): Response {
  const { body, headers } = documentOf(error, originOf(request.socket));
  const crossHeaders = crossOriginHeaders(corsOrigins, request.headers.origin);
  return new Response(body, { status: error.status, headers: { ...headers, ...crossHeaders } });
}

/** Answers a request that the app does not see, and closes the connection. */
function answerWith(
  error: GatewayError,
  request: IncomingMessage,
  response: ServerResponse,
  corsOrigins: readonly string[],
): void {
  const { body, headers } = documentOf(error, originOf(request.socket));
  const crossHeaders = crossOriginHeaders(corsOrigins, request.headers.origin);
  response.writeHead(error.status, { ...headers, ...crossHeaders, connection: 'close' });
  response.end(body);
  // The body is dropped: a client that still sends it would otherwise lose the answer.
  request.resume();
}

/** An answer as bytes of HTTP, for a connection whose parser has given up. */
function answerTo(error: GatewayError, origin: string, crossHeaders: Readonly<Record<string, string>>): string {
  const { body, headers } = documentOf(error, origin);
  const lines = Object.entries({ ...headers, ...crossHeaders, connection: 'close' }).map(
    ([name, value]) => `${name}: ${value}`,
  );
  return [`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? 'Error'}`, ...lines, '', body].join('\r\n');
}

function documentOf(error: GatewayError, origin: string): { body: string; headers: Record<string, string> } {
  const requestId = requestIdOf(undefined);
  const body = JSON.stringify(toProblem(error, requestId, origin));
  return {
    body,
    headers: {
      ...problemHeaders(error),
      'content-length': String(Buffer.byteLength(body)),
      'x-content-type-options': 'nosniff',
      'x-request-id': requestId,
    },
  };
}

/** The header `Origin` in the bytes of a head, if they have it. */
function pageOriginIn(packet: Buffer = Buffer.alloc(0)): string | undefined {
  return /^origin:[ \t]*([^\s]+)[ \t]*\r?$/im.exec(packet.toString('latin1'))?.[1];
}

/** The beginning of a request line whose address does not end. */
const ENDLESS_ADDRESS = /^[A-Z]+ [^\s]+$/;

/**
 * @param hasHead true when the fault is in the body of a request
 * @param packet the bytes in which Node found the fault: with a short rest of the address, the beginning of the request came before them
 */
function refusalOf(code: string, hasHead: boolean, packet: Buffer = Buffer.alloc(0)): GatewayError {
  if (code === 'HPE_HEADER_OVERFLOW' && ENDLESS_ADDRESS.test(packet.toString('latin1', 0, MAX_HEADER_BYTES)))
    return new GatewayError('address-too-long', `The address of the request has more than ${MAX_HEADER_BYTES} bytes.`);
  if (code === 'HPE_HEADER_OVERFLOW')
    return new GatewayError(
      'headers-too-large',
      `The request line and the headers of the request have more than ${MAX_HEADER_BYTES} bytes.`,
    );
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return hasHead
      ? new GatewayError('body-timeout', 'The body of the request was not complete in time.')
      : new GatewayError('head-timeout', 'The headers of the request were not complete in time.');
  const what = hasHead ? 'The body of the request' : 'The request';
  return new GatewayError('malformed-request', `${what} cannot be read as HTTP (${code || 'unknown fault'}).`, {
    hint: 'Check the client and any proxy on the way: the gateway takes HTTP/1.1.',
  });
}

function originOf(socket: Socket): string {
  return `http://${addressOf(socket)}`;
}

/** Address and port of this end of a connection. */
function addressOf({ localAddress = '127.0.0.1', localPort = 80 }: Socket): string {
  const host = localAddress.includes(':') ? `[${localAddress}]` : localAddress;
  return `${host}:${localPort}`;
}
