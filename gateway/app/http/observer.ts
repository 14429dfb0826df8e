export interface ArrivedRequest {
  readonly method: string;
  readonly path: string;
  /** The client's W3C trace context, unchecked. */
  readonly traceparent: string | undefined;
  /** The server's objects for this request, from which the observer learns when the response has been sent. */
  readonly environment: unknown;
}

/** The answer to a request. Its body may still be on its way. */
export interface AnsweredRequest {
  /** Pattern of the route, such as `/v1/functions/:name`; the number of patterns is bounded. */
  readonly route: string;
  readonly status: number;
  readonly tenant: string | undefined;
  /** Code of the answer's error. */
  readonly code: string | undefined;
}

export interface ObservedRequest {
  /** Trace context of the request's own span, under which all work for the request is traced. */
  readonly traceparent: string;
  answered(answer: AnsweredRequest): void;
}

/** Measures and traces requests. `gateway/node` implements it; a worker has none. */
export interface RequestObserver {
  begin(request: ArrivedRequest): ObservedRequest;
}

/** A request id that the gateway accepts from a client. The gateway replaces any other id, since ids end up in logs and headers. */
const REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** The client's own request id when it is usable, else a new one. */
export function requestIdOf(header: string | undefined): string {
  return header !== undefined && REQUEST_ID.test(header) ? header : `req_${randomHex(12)}`;
}

/**
 * The W3C trace context of this request's own span: a child of the client's span if it sent one, else the root of a new, sampled trace.
 */
export function childTraceparent(header: string | undefined): string {
  const match = header === undefined ? null : TRACEPARENT.exec(header);
  const traceId = match?.[1];
  const isValid = traceId !== undefined && !/^0+$/.test(traceId) && !/^0+$/.test(match?.[2] ?? '');
  return isValid ? `00-${traceId}-${randomHex(8)}-${match?.[3] ?? '01'}` : `00-${randomHex(16)}-${randomHex(8)}-01`;
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** Random bytes are fetched in bulk: a system call for each id would be a notable part of a request's cost. */
const pool = new Uint8Array(4096);
let usedBytes = pool.length;

/** Not for secrets: used bytes stay in the pool. */
function randomHex(bytes: number): string {
  if (usedBytes + bytes > pool.length) {
    crypto.getRandomValues(pool);
    usedBytes = 0;
  }
  let text = '';
  for (const end = usedBytes + bytes; usedBytes < end; usedBytes++) text += HEX[pool[usedBytes] ?? 0];
  return text;
}
