import type { LookupAddress } from 'node:dns';
import { type IncomingMessage, validateHeaderValue } from 'node:http';
import { pipeline, Readable, Transform } from 'node:stream';
import { constants, createGunzip, createInflate, createInflateRaw } from 'node:zlib';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { type Lookup, type PrivateHost, Reach } from '#scheduler/addresses/reach.ts';
import { hostMatches } from '#scheduler/functions/grants.ts';
import { Shares } from '#scheduler/policies/shares.ts';
import type { Request } from '#wit/generated/host.ts';

export interface HttpClientOptions {
  /** Hosts with private addresses that inferlets with a grant may reach (`pie.toml`: `[http] private_hosts`). */
  readonly privateHosts?: readonly PrivateHost[];
  /** Hosts of images, for inferlets with the grant `imageHosts` (`pie.toml`: `[http] image_hosts`). */
  readonly imageHosts?: readonly string[] | undefined;
  /** Version of this platform, for `user-agent`. */
  readonly version: string;
  /** Resolves names. By default, the system's resolver resolves private hosts, and DNS the others. */
  readonly lookup?: Lookup;
}

/** Maximum requests under way of all inferlets of a runtime; tenants share them. */
const MAX_EXCHANGES = 4096;

/** The state that the requests of all inferlets of a runtime share: the reachable addresses, and the count of requests. */
export class HttpClient {
  readonly userAgent: string;
  readonly imageHosts: readonly string[];
  readonly #reach: Reach;
  readonly #exchanges = new Shares(MAX_EXCHANGES);

  constructor({ privateHosts = [], imageHosts = [], version, lookup }: HttpClientOptions) {
    this.userAgent = `pie/${version}`;
    this.imageHosts = imageHosts;
    this.#reach = new Reach({ privateHosts, lookup });
  }

  /** Number of requests under way. */
  get exchanges(): number {
    return this.#exchanges.total;
  }

  /** Counts a request of a tenant; false when there are too many. The caller must end a counted request with `leave`. */
  enter(tenant: string): boolean {
    return this.#exchanges.enter(tenant);
  }

  leave(tenant: string): void {
    this.#exchanges.leave(tenant);
  }

  /**
   * The addresses of a URL's host that a tenant may connect to: public addresses, or all addresses of a host that the operator has named.
   *
   * @throws RefusedAddress when there are none, or the resolver's error
   */
  addresses(url: URL, tenant: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    return this.#reach.addresses(url, tenant, signal);
  }
}

/** One request as sent: the inferlet's, or one that a redirect leads to. */
export interface Hop {
  readonly url: URL;
  readonly method: string;
  /** Values by header name in lower case. */
  readonly headers: Readonly<Record<string, readonly string[]>>;
  readonly body: Buffer | null;
}

/** The hosts that an inferlet may send requests to. */
export interface AllowedHosts {
  readonly hosts: readonly string[];
  /** Hosts for GET requests by https; undefined for an inferlet without the grant `imageHosts`. */
  readonly imageHosts?: readonly string[] | undefined;
}

/** Header values for requests whose inferlet sets none. */
export interface HeaderDefaults {
  readonly userAgent: string;
  readonly traceparent: string | undefined;
}

/** Bound on the body of a request. */
const MAX_BODY_BYTES = 4 * 2 ** 20;
const MAX_URL_CHARACTERS = 16_384;
const MAX_HEADERS = 256;
const MAX_HEADER_CHARACTERS = 64 * 1024;
const MAX_REDIRECTS = 10;
/** A `token` of RFC 9110, section 5.6.2, with at most 128 characters. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
/** Refused because they would turn the connection into a tunnel, or show the inferlet headers that proxies added. */
const REFUSED_METHODS: readonly string[] = ['CONNECT', 'TRACE', 'TRACK'];
/** Refused because they concern the connection (RFC 9110, section 7.6.1), or because the runtime sets them. */
const REFUSED_HEADERS: readonly string[] = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
  'host',
  'content-length',
];
const CREDENTIALS: readonly string[] = ['authorization', 'cookie', 'x-api-key'];
const ENCODINGS = 'gzip, deflate';

/** Checks a request. Its lists may be views of the guest's memory; the result has copies. */
export function parseRequest(request: Request, allowed: AllowedHosts, defaults: HeaderDefaults): Outcome<Hop> {
  const { redirects, body, headers } = request;
  const method = request.method.toUpperCase();
  if (!TOKEN.test(method)) return invalid('the method is not a token of RFC 9110, such as GET or POST');
  if (REFUSED_METHODS.includes(method)) return invalid(`${method} cannot be sent from an inferlet`);
  if (redirects > MAX_REDIRECTS) return invalid(`redirects is ${redirects}; it may be 0 to ${MAX_REDIRECTS}`);
  if (body && body.length > MAX_BODY_BYTES) {
    return err(handlerError('limit-exceeded', `the body has ${body.length} bytes; ${MAX_BODY_BYTES} is the limit`));
  }
  const url = parseUrl(request.url, undefined, method, allowed);
  if (url.tag === 'err') return url;
  const ownHeaders = parseHeaders(headers);
  if (ownHeaders.tag === 'err') return ownHeaders;
  const { userAgent, traceparent } = defaults;
  const allHeaders = {
    'user-agent': [userAgent],
    accept: ['*/*'],
    'accept-encoding': [ENCODINGS],
    ...(traceparent !== undefined && { traceparent: [traceparent] }),
    ...ownHeaders.val,
  };
  return ok({ url: url.val, method, headers: allHeaders, body: body ? Buffer.from(body) : null });
}

/**
 * The request that a redirect asks for, by the Fetch standard (HTTP-redirect fetch); null when the response is no redirect or names no location.
 * Method and body stay, with two exceptions that become a GET without body: a POST after a 301 or 302, and any method but GET and HEAD after a
 * 303. Credentials go only to the original origin.
 */
export function redirected(
  hop: Hop,
  status: number,
  location: string | undefined,
  allowed: AllowedHosts,
): Outcome<Hop> | null {
  if (![301, 302, 303, 307, 308].includes(status) || location === undefined) return null;
  const dropsBody =
    status === 303 ? hop.method !== 'GET' && hop.method !== 'HEAD' : status < 303 && hop.method === 'POST';
  const method = dropsBody ? 'GET' : hop.method;
  const url = parseUrl(location, hop.url, method, allowed);
  if (url.tag === 'err') return url;
  const isForeign = url.val.origin !== hop.url.origin;
  const keptHeaders = Object.entries(hop.headers).filter(
    ([name]) => !(isForeign && CREDENTIALS.includes(name)) && !(dropsBody && name.startsWith('content-')),
  );
  return ok({
    url: url.val,
    method,
    headers: Object.fromEntries(keptHeaders),
    body: dropsBody ? null : hop.body,
  });
}

function parseUrl(text: string, base: URL | undefined, method: string, allowed: AllowedHosts): Outcome<URL> {
  const url = text.length <= MAX_URL_CHARACTERS && URL.canParse(text, base?.href) ? new URL(text, base) : null;
  if (!url)
    return invalid(
      base ? 'the redirect has no valid URL' : 'the URL cannot be read; it begins with http:// or https://',
    );
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    return invalid(`a request to ${url.protocol} is not supported; use http: or https:`);
  }
  if (url.username !== '' || url.password !== '') {
    return invalid('the URL contains a user or password; send an authorization header instead');
  }
  const { hosts, imageHosts } = allowed;
  if (hosts.some((pattern) => hostMatches(pattern, url))) return ok(url);
  const asksForImage = imageHosts !== undefined && method === 'GET';
  if (asksForImage && url.protocol === 'https:' && imageHosts.some((pattern) => hostMatches(pattern, url)))
    return ok(url);
  const problem = base
    ? `a redirect leads to ${url.origin}, a host that the function was not granted`
    : `the function was not granted requests to ${url.origin}`;
  const remedy = asksForImage
    ? "the platform's operator allows hosts of images, by https (pie.toml: [http] image_hosts)"
    : `the manifest must list it ("grants": {"hosts": ["${url.host}"]})`;
  return err(handlerError('unsupported', `${problem}: ${remedy}`));
}

function parseHeaders(headers: Request['headers']): Outcome<Record<string, string[]>> {
  const characters = headers.reduce((sum, { name, value }) => sum + name.length + value.length, 0);
  if (headers.length > MAX_HEADERS || characters > MAX_HEADER_CHARACTERS) {
    return invalid(
      `the request has more than ${MAX_HEADERS} headers, or more than ${MAX_HEADER_CHARACTERS} characters in them`,
    );
  }
  const parsed: Record<string, string[]> = Object.create(null);
  for (const { name, value } of headers) {
    const key = name.toLowerCase();
    if (!TOKEN.test(key)) return invalid('the name of a header is not a token of RFC 9110');
    if (REFUSED_HEADERS.includes(key)) return invalid(`the header ${key} is set by the platform; leave it out`);
    try {
      validateHeaderValue(key, value);
    } catch {
      return invalid(`the value of the header ${key} has characters that no header may have`);
    }
    parsed[key] = [...(parsed[key] ?? []), value];
  }
  return ok(parsed);
}

const invalid = (text: string): Outcome<never> => err(handlerError('invalid-argument', text));

/** Maximum decoders for one body: each needs memory for a window. */
const MAX_ENCODINGS = 2;
/** Maximum decoded bytes that are read ahead. */
const READ_AHEAD_BYTES = 64 * 1024;

/** Like browsers, accept a stream that ends without its trailer; a connection that breaks still fails the read. */
const ZLIB = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH };

/**
 * A map and not an object, since servers choose the names: `__proto__` must be as unknown as any other name. Brotli is left out: its streams
 * choose their window, so a few bytes from a server could take 16 MiB here (RFC 7932, section 9.1).
 */
const DECODERS = new Map<string, (source: Readable) => Readable>([
  ['gzip', (source) => through(source, createGunzip(ZLIB))],
  ['x-gzip', (source) => through(source, createGunzip(ZLIB))],
  ['deflate', (source) => Readable.from(inflate(source), { objectMode: false, highWaterMark: READ_AHEAD_BYTES })],
]);

/** The error when a body has more encoded bytes than a decoder may take. */
export class EncodedTooLong extends Error {}

/**
 * The decoded body of a response; the response itself when it has no encoding or an unknown one. Errors surface at the next read.
 * Destroying the response or the decoded body ends both.
 *
 * @param maxEncodedBytes bound on the bytes that each decoder takes; without it, a body whose bytes decode to nothing could go on forever
 */
export function decoded(response: IncomingMessage, maxEncodedBytes: number): Readable {
  const names = (response.headers['content-encoding'] ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '' && name !== 'identity');
  const decoders = names.map((name) => DECODERS.get(name)).filter((decoder) => decoder !== undefined);
  if (decoders.length !== names.length || decoders.length > MAX_ENCODINGS) return response;
  return decoders.reduceRight<Readable>((source, decoder) => decoder(through(source, upTo(maxEncodedBytes))), response);
}

/** Passes bytes on, one piece at a time, and fails past the bound. */
function upTo(maxBytes: number): Transform {
  let bytes = 0;
  return new Transform({
    highWaterMark: 1,
    transform(piece: Buffer, _encoding, done) {
      bytes += piece.length;
      if (bytes > maxBytes) done(new EncodedTooLong());
      else done(null, piece);
    },
  });
}

const through = (source: Readable, decoder: Transform): Readable => pipeline(source, decoder, () => undefined);

/** Method of the zlib format, in the low bits of its first byte (RFC 1950). */
const ZLIB_DEFLATE = 8;

/** Decodes `deflate`. The standard means the zlib format, but many servers send bare deflate; the first byte tells them apart. */
async function* inflate(source: Readable): AsyncGenerator<Buffer> {
  const pieces = source[Symbol.asyncIterator]() as AsyncIterableIterator<Buffer>;
  const first = await pieces.next();
  if (first.done) return;
  const method = (first.value[0] ?? 0) & 0x0f;
  async function* whole(): AsyncGenerator<Buffer> {
    yield first.value;
    yield* pieces;
  }
  yield* pipeline(whole, method === ZLIB_DEFLATE ? createInflate(ZLIB) : createInflateRaw(ZLIB), () => undefined);
}
