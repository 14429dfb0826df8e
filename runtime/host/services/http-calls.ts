import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { RefusedAddress } from '#scheduler/addresses/reach.ts';
import { respond, untilAborted } from '#scheduler/addresses/respond.ts';
import type { Header, Request, ResponseHead } from '#wit/generated/host.ts';
import { type Droppable, SourceReader } from '../session/holdings.ts';
import type { Inferlet } from '../session/inferlet.ts';
import {
  type AllowedHosts,
  decoded,
  EncodedTooLong,
  type Hop,
  type HttpClient,
  parseRequest,
  redirected,
} from './http-client.ts';

/** Implements `wit/http.wit`. */
export const http = {
  '[constructor]exchange': (inferlet: Inferlet, request: Request): Exchange => new Exchange(inferlet, request),
  '[method]exchange.head': (inferlet: Inferlet, self: Exchange): Promise<Outcome<ResponseHead>> =>
    inferlet.hooks.waits.during(self.head()),
  '[method]exchange.read': (_inferlet: Inferlet, self: Exchange): Promise<Outcome<Uint8Array | undefined>> =>
    self.read(),
  '[resource-drop]exchange': (_inferlet: Inferlet, self: Exchange): void => self.drop(),
};

const DEFAULT_TIMEOUT_MS = 30_000;
/** Bound on the decoded body of a response. */
const MAX_RESPONSE_BYTES = 32 * 2 ** 20;
/** Bound on the bytes that a decoder takes. It refuses no real body: encoders add far less to bytes that they cannot compress. */
const MAX_ENCODED_BYTES = 2 * MAX_RESPONSE_BYTES;
const MAX_PIECE_BYTES = 64 * 1024;
const MAX_HEAD_BYTES = 64 * 1024;
/** Longest delay that a timer of Node takes. */
const MAX_TIMER_MS = 2 ** 31 - 1;
/** Response headers that are always hidden from the inferlet: they concern the connection. */
const CONNECTION_HEADERS: readonly string[] = ['connection', 'keep-alive', 'transfer-encoding'];
/** Response headers that are hidden from the inferlet when the body was decoded: they describe the encoded body. */
const ENCODING_HEADERS: readonly string[] = ['content-encoding', 'content-length'];

/** The host's side of an `exchange` resource: a request, its redirects, and the body of its response. */
export class Exchange implements Droppable {
  readonly #inferlet: Inferlet;
  readonly #head: Promise<Outcome<ResponseHead>>;
  readonly #connection = new AbortController();
  readonly #onStop = () => this.#end(this.#inferlet.stopped ?? DROPPED);
  #body: AsyncIterator<Buffer> | null = null;
  #unreadPiece: Buffer = EMPTY;
  #bodyBytes = 0;
  readonly #pieces: SourceReader<Uint8Array | undefined>;
  /** The reason why the exchange has ended; `complete` after the whole body, and null before the end. */
  #endReason: HandlerError | 'complete' | null = null;
  /** True once the client counts the exchange among its tenant's. */
  #isCounted = false;
  /** Bytes of the request's body, which `outgoing` counts until the body is sent; -1 when it counts none. */
  #countedBytes = -1;

  /** Lists of `request` may be views of the guest's memory. */
  constructor(inferlet: Inferlet, request: Request) {
    this.#inferlet = inferlet;
    this.#pieces = new SourceReader(
      inferlet,
      () => this.#read(),
      (piece) => piece?.length ?? 0,
    );
    const hop = this.#begin(request);
    if (hop.tag === 'err') {
      this.#end(hop.val);
      this.#head = Promise.resolve(hop);
      return;
    }
    inferlet.stopping.addEventListener('abort', this.#onStop, { once: true });
    this.#head = this.#send(hop.val, request);
  }

  head(): Promise<Outcome<ResponseHead>> {
    return this.#head;
  }

  /** The next piece of the body; undefined after the last. */
  read(): Promise<Outcome<Uint8Array | undefined>> {
    return this.#pieces.next();
  }

  drop(): void {
    this.#end(DROPPED);
    this.#pieces.close();
  }

  get #allowed(): AllowedHosts {
    const { services, description } = this.#inferlet;
    const { hosts, imageHosts } = description.grants;
    return { hosts, imageHosts: imageHosts ? services.http.imageHosts : undefined };
  }

  #begin(request: Request): Outcome<Hop> {
    const { services, description, exchanges, outgoing, stopped } = this.#inferlet;
    const bytes = request.body?.length ?? 0;
    const refused = stopped ?? outgoing.refusal(bytes) ?? exchanges.take(this);
    if (refused) return err(refused);
    const { userAgent } = services.http;
    const hop = parseRequest(request, this.#allowed, { userAgent, traceparent: description.traceparent });
    if (hop.tag === 'err') return hop;
    this.#isCounted = services.http.enter(description.tenant);
    if (!this.#isCounted) return err(BUSY);
    outgoing.begin(bytes);
    this.#countedBytes = bytes;
    return hop;
  }

  /** Stops counting the request's body. */
  #stopCounting(): void {
    if (this.#countedBytes >= 0) this.#inferlet.outgoing.end(this.#countedBytes);
    this.#countedBytes = -1;
  }

  async #send(first: Hop, { timeoutMs = DEFAULT_TIMEOUT_MS, redirects }: Request): Promise<Outcome<ResponseHead>> {
    const { services, description } = this.#inferlet;
    const waitMs = Math.max(0, Math.min(timeoutMs, description.deadline.leftMs, MAX_TIMER_MS));
    const timer = setTimeout(() => this.#end(tooSlow(first.url, waitMs)), waitMs);
    let hop = first;
    try {
      for (let redirectsLeft = redirects; ; redirectsLeft--) {
        const { request, response } = await respondTo(services.http, description.tenant, hop, this.#connection.signal);
        const { statusCode = 0, headers } = response;
        const nextHop = redirectsLeft > 0 ? redirected(hop, statusCode, headers.location, this.#allowed) : null;
        if (nextHop === null) return ok(this.#accept(hop, request, response));
        response.destroy();
        if (nextHop.tag === 'err') return this.#fail(nextHop.val);
        hop = nextHop.val;
      }
    } catch (error) {
      return this.#fail(failureOf(error, hop.url));
    } finally {
      clearTimeout(timer);
    }
  }

  #accept(hop: Hop, request: ClientRequest, response: IncomingMessage): ResponseHead {
    const { statusCode: status = 0, rawHeaders } = response;
    // A server may answer before it has read the whole body of the request.
    if (request.writableFinished) this.#stopCounting();
    else request.once('finish', () => this.#stopCounting());
    const bodiless = hop.method === 'HEAD' || status === 204 || status === 304;
    const body: Readable = bodiless ? response : decoded(response, MAX_ENCODED_BYTES);
    // Ignore stream errors here: the next read reports them.
    for (const stream of [response, body]) stream.on('error', () => undefined);
    this.#body = body[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    const hidden = body === response ? CONNECTION_HEADERS : [...CONNECTION_HEADERS, ...ENCODING_HEADERS];
    return { status, headers: headersOf(rawHeaders).filter(({ name }) => !hidden.includes(name)), url: hop.url.href };
  }

  async #read(): Promise<Outcome<Uint8Array | undefined>> {
    const head = await this.#head;
    if (head.tag === 'err') return head;
    if (this.#endReason === 'complete') return END;
    if (this.#endReason) return err(this.#endReason);
    try {
      // A server may send empty pieces.
      while (this.#unreadPiece.length === 0) {
        const chunk = await this.#body?.next();
        if (!chunk || chunk.done) {
          this.#end('complete');
          return END;
        }
        this.#unreadPiece = chunk.value;
        this.#bodyBytes += chunk.value.length;
      }
    } catch (error) {
      return this.#fail(failureOf(error, new URL(head.val.url)));
    }
    if (this.#bodyBytes > MAX_RESPONSE_BYTES) return this.#fail(TOO_LONG);
    const piece = this.#unreadPiece.subarray(0, MAX_PIECE_BYTES);
    this.#unreadPiece = this.#unreadPiece.subarray(piece.length);
    return ok(piece);
  }

  /** Ends the exchange, and returns the first reason to end: later failures are consequences of the first. */
  #fail(reason: HandlerError): { readonly tag: 'err'; readonly val: HandlerError } {
    this.#end(reason);
    return err(this.#endReason === null || this.#endReason === 'complete' ? reason : this.#endReason);
  }

  #end(reason: HandlerError | 'complete'): void {
    if (this.#endReason) return;
    this.#endReason = reason;
    const { exchanges, services, stopping, description } = this.#inferlet;
    stopping.removeEventListener('abort', this.#onStop);
    exchanges.give(this);
    if (this.#isCounted) services.http.leave(description.tenant);
    this.#stopCounting();
    this.#unreadPiece = EMPTY;
    this.#connection.abort();
  }
}

/** Sends to the checked addresses of a hop, and waits for the head of the response. */
async function respondTo(client: HttpClient, tenant: string, { url, method, headers, body }: Hop, signal: AbortSignal) {
  const addresses = await untilAborted(client.addresses(url, tenant, signal), signal);
  const sentHeaders = {
    ...Object.fromEntries(Object.entries(headers).map(([name, values]) => [name, [...values]])),
    ...((body || BODY_METHODS.includes(method)) && { 'content-length': String(body?.length ?? 0) }),
  };
  return respond({ url, addresses, method, headers: sentHeaders, body, maxHeadBytes: MAX_HEAD_BYTES }, signal);
}

/** Methods that give a body a meaning: a request without one states the length 0 (RFC 9110, section 8.6). */
const BODY_METHODS: readonly string[] = ['POST', 'PUT', 'PATCH'];

function headersOf(raw: readonly string[]): Header[] {
  return Array.from({ length: raw.length / 2 }, (_, i) => ({
    name: (raw[2 * i] ?? '').toLowerCase(),
    value: raw[2 * i + 1] ?? '',
  }));
}

function failureOf(error: unknown, url: URL): HandlerError {
  if (error instanceof RefusedAddress) return handlerError('unsupported', error.message);
  if (error instanceof EncodedTooLong) return TOO_LONG;
  const { code, message } =
    error instanceof Error ? (error as NodeJS.ErrnoException) : { code: undefined, message: String(error) };
  return handlerError('unavailable', `${url.host} cannot be reached, or broke off: ${code ?? message}`);
}

const tooSlow = (url: URL, waitMs: number): HandlerError =>
  handlerError(
    'deadline-exceeded',
    `${url.host} sent no response within ${Math.round(waitMs)} ms (timeout-ms, or what the invocation had left)`,
  );

const EMPTY = Buffer.alloc(0);
const END: Outcome<undefined> = ok(undefined);
const DROPPED = handlerError('closed', 'the exchange was dropped');
const BUSY = handlerError('unavailable', 'too many requests of all inferlets are under way; try again');
const TOO_LONG = handlerError('limit-exceeded', `the body has more than ${MAX_RESPONSE_BYTES} bytes`);
