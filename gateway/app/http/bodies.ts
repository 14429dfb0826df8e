import { z } from '@hono/zod-openapi';
import type { MiddlewareHandler } from 'hono';
import { pointerOf } from '#scheduler/functions/schema/compiled.ts';
import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import { type Pace, Paces } from '#scheduler/policies/paces.ts';
import { Shares } from '#scheduler/policies/shares.ts';
import type { AppEnv } from '../context.ts';
import type { Memory } from '../control.ts';
import { GatewayError, wordedIssue } from '../errors/gateway-error.ts';
import { pause } from '../pause.ts';
import { AnswerMemory } from './answer.ts';
import { assertShape } from './json.ts';
import type { OpenStreams } from './open-streams.ts';

/** Bounds on the bodies and answers of all requests together. */
export interface BodyLimits {
  /**
   * Maximum bytes of request bodies and large answers that the gateway holds at once. One tenant may hold a quarter of them, and more as long as
   * all tenants together hold at most half.
   */
  readonly heldBodyBytes: number;
  /** A body may arrive at any speed for this long; from then on it must average 16 KiB a second. */
  readonly bodyGraceMs: number;
  /** Bytes of one tenant's bodies that are read per second while other tenants have requests, and for 10 s afterwards. */
  readonly bodyBytesPerSecond: number;
}

/** Minimum average speed of a body after its grace period. */
const BYTES_PER_SECOND = 16 * 1024;
/** Unit in which a body takes memory from its tenant's share. */
const BLOCK_BYTES = 16 * 1024;
/** Maximum bytes of a refused body that the gateway reads and drops. A body with more bytes is abuse: the gateway closes its connection. */
const MAX_DISCARDED_BYTES = 80 * 1024 * 1024;
const RETRY_AFTER_S = 1;
/** Longest pause of a paced body. Then it checks the pace again, which may have changed because other tenants came or went. */
const LONGEST_PAUSE_MS = 250;

/** Memory that a caller takes step by step and frees as a whole. */
export interface Room {
  /** Takes this many more bytes. Returns false and takes nothing when the pool has no room for them. */
  take(bytes: number): boolean;
  free(): void;
}

/** A room that the caller may also shrink. `hold` and `resize` throw where `take` returns false. */
export interface CountedRoom extends Room, Memory {
  /** Changes the number of bytes taken to `bytes`. @throws like `hold`, and then changes nothing */
  resize(bytes: number): void;
}

/** Accounts for the bodies and answers that a gateway holds, by tenant. */
export class Bodies {
  readonly limits: BodyLimits;
  readonly #shares: Shares;
  /** Paces the reading of bodies, because each megabyte of input costs gateway, Redis, runtime and sandbox some 20 ms together. */
  readonly paces: Paces;

  constructor(limits: BodyLimits) {
    this.limits = limits;
    this.paces = new Paces(limits.bodyBytesPerSecond);
    this.#shares = new Shares(limits.heldBodyBytes);
  }

  get heldBytes(): number {
    return this.#shares.total;
  }

  /** @throws GatewayError `gateway-busy` when the gateway holds too much, `too-many-requests` when the tenant does */
  take(tenant: string, bytes: number): void {
    if (this.#shares.enter(tenant, bytes)) return;
    const headers = { 'retry-after': String(RETRY_AFTER_S) };
    if (this.heldBytes + bytes > this.limits.heldBodyBytes) {
      throw new GatewayError('gateway-busy', 'The gateway’s memory for requests and responses is full.', { headers });
    }
    throw new GatewayError('too-many-requests', 'The tenant sends or reads too many bytes at once.', {
      hint: 'Wait as long as `Retry-After` says, and send or read fewer large bodies at a time.',
      headers,
    });
  }

  /** Memory that a tenant holds beside its bodies. It counts towards the same total, and the same share of the tenant, as the bodies. */
  roomFor(tenant: string): CountedRoom {
    let takenBytes = 0;
    const hold = (bytes: number): void => {
      this.take(tenant, bytes);
      takenBytes += bytes;
    };
    const give = (bytes: number): void => {
      this.give(tenant, bytes);
      takenBytes -= bytes;
    };
    return {
      hold,
      give,
      take: (bytes) => {
        const hasRoom = this.#shares.enter(tenant, bytes);
        if (hasRoom) takenBytes += bytes;
        return hasRoom;
      },
      resize: (bytes) => {
        if (bytes > takenBytes) hold(bytes - takenBytes);
        else give(takenBytes - bytes);
      },
      free: () => give(takenBytes),
    };
  }

  /** Maximum bytes of one body: half of `heldBodyBytes`. A body can grow that large only while the gateway holds no other body or answer. */
  get mostBytes(): number {
    return this.limits.heldBodyBytes / 2;
  }

  give(tenant: string, bytes: number): void {
    this.#shares.leave(tenant, bytes);
  }
}

/** The next piece of a body; undefined at its end. */
export type NextPiece = () => Promise<Uint8Array | undefined>;

/**
 * The body of one request, decoded as its `Content-Encoding` says. The bytes that `read` and `pieces` return count as held, in whole blocks, until
 * `release`. The caller must drop all references to the bytes before it releases the body. A body that arrives too slowly is refused.
 */
export class Body {
  readonly #request: Request;
  readonly #bodies: Bodies;
  readonly #tenant: () => string;
  readonly #decoders: Decoders;
  #decoding: Decoding | undefined;
  #startedAt = performance.now();
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #arrivedBytes = 0;
  /** Bytes that the caller has got: those that arrived, or those that were made of them. */
  #readBytes = 0;
  /** Bytes that the decoder may take, until its end. */
  #decoderBytes = 0;
  #takenBytes = 0;
  #chargedTenant = '';
  #pace: Pace | undefined;
  #isReleased = false;
  #isDiscarded = false;

  /**
   * @param tenant returns the tenant whose share and pace the body uses, '' while the request's key is not known. The body calls this function only
   *   when it counts bytes, because the request gets its body before its key is checked
   * @param decoders without one, a compressed body is refused
   */
  constructor(request: Request, bodies: Bodies, tenant: () => string = () => '', decoders: Decoders = new Map()) {
    this.#request = request;
    this.#bodies = bodies;
    this.#tenant = tenant;
    this.#decoders = decoders;
  }

  /** The request's `Content-Type`; empty when absent. */
  get contentType(): string {
    return this.#request.headers.get('content-type') ?? '';
  }

  /**
   * Reads all bytes. Refuses the body with `body-too-large` as soon as its declared size, or its size after decoding, passes the limit.
   *
   * @throws GatewayError `unsupported-media-type` for a content coding without a decoder
   */
  async read(limitBytes: number): Promise<Uint8Array> {
    const { headers, body } = this.#request;
    const declaredBytes = declaredLength(headers);
    if (declaredBytes !== null && declaredBytes > limitBytes) throw tooLarge(limitBytes);
    if (body === null) return new Uint8Array(0);
    // The HTTP server enforces a declared length, so a small body can be counted before it arrives, and read in one step.
    if (declaredBytes !== null && declaredBytes <= BLOCK_BYTES && codingOf(headers, this.#decoders) === null) {
      this.#hold(declaredBytes);
      return new Uint8Array(await this.#inTime(this.#request.arrayBuffer()));
    }
    const bodyBuffer = new ByteBuffer();
    const next = this.pieces();
    for (let piece = await next(); piece !== undefined; piece = await next()) {
      if (bodyBuffer.length + piece.byteLength > limitBytes) throw tooLarge(limitBytes);
      bodyBuffer.append(piece);
    }
    return bodyBuffer.bytes();
  }

  /** The body's pieces as they arrive, for a caller that limits their size itself. @throws GatewayError like `read` */
  pieces(): NextPiece {
    const coding = codingOf(this.#request.headers, this.#decoders);
    if (coding !== null && this.#decoding === undefined) {
      // A gateway with little memory decodes one such body at a time.
      this.#decoderBytes = Math.min(decoderBytes(coding), this.#bodies.mostBytes / 2);
      this.#hold(0);
      this.#decoding = decode(() => this.#arrival(), coding, this.#decoders);
    }
    const next = this.#decoding?.next ?? (() => this.#arrival());
    return async () => {
      await this.#awaitTurn();
      const piece = await next();
      if (piece === undefined) {
        this.#freeDecoder();
        return undefined;
      }
      this.#readBytes += piece.byteLength;
      this.#spend(piece.byteLength);
      this.#hold(this.#readBytes);
      return piece;
    };
  }

  /**
   * Reads the rest of a refused body and drops it. If the connection closed while the client was sending, the client might never see the
   * refusal, or send its next request into the closing connection.
   */
  async discard(maxBytes = MAX_DISCARDED_BYTES): Promise<void> {
    const { body, bodyUsed } = this.#request;
    // `read` takes a small body in one step, without this reader: no rest remains here.
    if (this.#isDiscarded || body === null || (this.#reader === undefined && (bodyUsed || body.locked))) return;
    this.#isDiscarded = true;
    try {
      await this.#decoding?.cancel();
      const maxArrivedBytes = this.#arrivedBytes + maxBytes;
      while (this.#arrivedBytes <= maxArrivedBytes) {
        const piece = await this.#arrival();
        if (piece === undefined) return;
        this.#spend(piece.byteLength);
      }
      await this.#reader?.cancel();
    } catch {
      // The client left or sends too slowly: the gateway closes the connection.
    }
  }

  release(): void {
    this.#isReleased = true;
    void this.#decoding?.cancel();
    this.#pace?.[Symbol.dispose]();
    this.#pace = undefined;
    if (this.#takenBytes > 0) this.#bodies.give(this.#chargedTenant, this.#takenBytes);
    this.#takenBytes = 0;
  }

  /** The next piece from the connection. */
  async #arrival(): Promise<Uint8Array | undefined> {
    this.#reader ??= this.#request.body?.getReader();
    if (this.#reader === undefined) return undefined;
    const { done, value } = await this.#inTime(this.#reader.read());
    if (done) return undefined;
    this.#arrivedBytes += value.byteLength;
    return value;
  }

  /** Counts bytes towards the pace of the tenant. */
  #spend(bytes: number): void {
    // A body of up to one block costs too little for a pace (see `Bodies.paces`). After `release`, nothing would end a new pace. A request without a
    // key has no tenant, so its body has no pace either.
    const isPaced = Math.max(this.#arrivedBytes, this.#readBytes) > BLOCK_BYTES && !this.#isReleased;
    const tenant = isPaced ? this.#tenant() : '';
    if (tenant === '') return;
    this.#pace ??= this.#bodies.paces.enter(tenant);
    this.#pace.spend(bytes);
  }

  /** Waits while the tenant is ahead of its pace. The wait does not count against the client's speed. */
  async #awaitTurn(): Promise<void> {
    const { signal } = this.#request;
    const pauseMs = () => this.#pace?.pauseMs() ?? 0;
    for (let ms = pauseMs(); ms > 0 && !signal.aborted; ms = pauseMs()) {
      const begunAt = performance.now();
      await pause(Math.min(ms, LONGEST_PAUSE_MS), signal);
      this.#startedAt += performance.now() - begunAt;
    }
  }

  /** Counts the body's first `bytes` bytes as held, and the decoder, in whole blocks. */
  #hold(bytes: number): void {
    // Nothing would give back bytes that arrive after `release`.
    if (this.#isReleased) return;
    const wantedBytes = Math.ceil((bytes + this.#decoderBytes) / BLOCK_BYTES) * BLOCK_BYTES;
    if (wantedBytes <= this.#takenBytes) return;
    if (wantedBytes > this.#bodies.mostBytes) throw tooLarge(this.#bodies.mostBytes, 'this gateway');
    if (this.#takenBytes === 0) this.#chargedTenant = this.#tenant();
    this.#bodies.take(this.#chargedTenant, wantedBytes - this.#takenBytes);
    this.#takenBytes = wantedBytes;
  }

  /** Gives back what counted for the decoder: it has reached its end. */
  #freeDecoder(): void {
    if (this.#decoderBytes === 0) return;
    this.#decoderBytes = 0;
    const heldBytes = Math.ceil(this.#readBytes / BLOCK_BYTES) * BLOCK_BYTES;
    if (heldBytes >= this.#takenBytes) return;
    this.#bodies.give(this.#chargedTenant, this.#takenBytes - heldBytes);
    this.#takenBytes = heldBytes;
  }

  /** Waits for the arrival of bytes. Rejects when the body falls behind its minimum speed, or its connection breaks. */
  #inTime<T>(arrival: Promise<T>): Promise<T> {
    const { bodyGraceMs } = this.#bodies.limits;
    const dueAt = this.#startedAt + bodyGraceMs + (this.#arrivedBytes / BYTES_PER_SECOND) * 1000;
    const remainingMs = dueAt - performance.now();
    return new Promise<T>((resolve, reject) => {
      const onLate = () => {
        // `discard` must not wait for the rest, which may never come.
        this.#isDiscarded = true;
        reject(tooSlow(this.#arrivedBytes));
      };
      const timer = setTimeout(onLate, Math.max(0, remainingMs));
      const onBroken = (cause: unknown) => reject(cutOff(cause));
      arrival.then(resolve, onBroken).finally(() => clearTimeout(timer));
    });
  }
}

function declaredLength(headers: Headers): number | null {
  const header = headers.get('content-length');
  if (header === null || !/^\d{1,15}$/.test(header)) return null;
  return Number(header);
}

function tooLarge(limitBytes: number, limitOwner = 'this route'): GatewayError {
  return new GatewayError('body-too-large', `The body is larger than ${limitBytes} bytes, the limit of ${limitOwner}.`);
}

function cutOff(cause: unknown): GatewayError {
  return new GatewayError('malformed-request', 'The connection broke before the end of the body.', {
    hint: 'Send the request again.',
    cause,
  });
}

/** The rest may never come, so the gateway closes the connection after the answer. */
function tooSlow(arrivedBytes: number): GatewayError {
  return new GatewayError('body-timeout', `The body came too slowly: ${arrivedBytes} bytes until now.`, {
    headers: { connection: 'close' },
  });
}

/**
 * Reads a JSON body as text and value. An empty body counts as `{}`.
 *
 * @throws GatewayError `unsupported-media-type`, and the errors of `Body.read` and `parseJson`
 */
export async function readJson(body: Body, limitBytes: number): Promise<{ text: string; value: unknown }> {
  const bytes = await body.read(limitBytes);
  if (bytes.byteLength === 0) return { text: '{}', value: {} };
  const type = mediaType(body);
  if (type !== 'application/json' && !/^application\/[\w.-]+\+json$/.test(type)) {
    throw new GatewayError(
      'unsupported-media-type',
      type === '' ? 'The body has no Content-Type.' : `The body is declared as ${type}.`,
      { hint: 'Send `Content-Type: application/json`.', headers: { 'accept-post': 'application/json' } },
    );
  }
  return parseJson(bytes, 'The body');
}

/** Parses JSON in UTF-8. `subject` begins the error messages. Throws `malformed-json`, and `invalid-input` (see `assertShape`). */
export function parseJson(bytes: Uint8Array, subject: string): { text: string; value: unknown } {
  assertShape(bytes, subject);
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return { text, value: jsonValue(text) };
  } catch (cause) {
    throw new GatewayError(
      'malformed-json',
      `${subject} is not JSON: ${cause instanceof Error ? cause.message : 'it does not parse'}.`,
    );
  }
}

/** The media type of a request's body, without its parameters and in lower case. Empty when the request has no `Content-Type`. */
function mediaType({ contentType }: Body): string {
  return contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
}

/** Gives each request its body and the memory of its answer. The body counts as held at most until the handler has answered. */
export function boundedBodies(bodies: Bodies, decoders: Decoders): MiddlewareHandler<AppEnv> {
  return async function boundedBodies(c, next) {
    const tenant = () => c.get('principal')?.tenant ?? '';
    const body = new Body(c.req.raw, bodies, tenant, decoders);
    const answer = new AnswerMemory(bodies, tenant);
    c.set('body', body);
    c.set('answer', answer);
    try {
      await next();
    } finally {
      body.release();
      answer.release();
    }
  };
}

/**
 * Counts an answer that may stay open: until the handler has answered or, if the handler has called `keepOpen`, until the stream ends. Meanwhile the
 * tenant counts as one with requests for the pacing of large bodies (`Bodies.paces`).
 */
export function boundedStreams(streams: OpenStreams, bodies: Bodies): MiddlewareHandler<AppEnv> {
  return async function boundedStreams(c, next) {
    const principal = c.get('principal');
    if (principal === undefined) return next();
    const leaveStreams = streams.enter(principal);
    const pace = bodies.paces.enter(principal.tenant);
    let hasLeft = false;
    const leave = () => {
      if (hasLeft) return;
      hasLeft = true;
      leaveStreams();
      pace[Symbol.dispose]();
    };
    let isKeptOpen = false;
    c.set('keepOpen', () => {
      isKeptOpen = true;
      return leave;
    });
    try {
      await next();
    } finally {
      if (!isKeptOpen) leave();
    }
  };
}

/** Joins arriving pieces in one block of memory. A list of the pieces of a body that arrives byte by byte would take many times the body's size. */
export class ByteBuffer {
  #bytes: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  append(piece: Uint8Array): void {
    const length = this.#length + piece.byteLength;
    if (length > this.#bytes.byteLength) {
      const grown = new Uint8Array(Math.max(length, 2 * this.#bytes.byteLength));
      grown.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = grown;
    }
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** All bytes, without a copy. */
  bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }
}

/** Maximum bytes of a body on an administrative route. */
const MAX_SETTINGS_BYTES = 64 * 1024;

/** The documentation of a route's JSON body. {@link readChecked}, not the router, reads and bounds the body. */
export function jsonBody(schema: z.ZodType) {
  const { $schema: _, ...documented } = z.toJSONSchema(schema, {
    io: 'input',
    // zod's `readonly()` says that the app does not change a member. OpenAPI's `readOnly` would say that clients must not send the member.
    override: ({ jsonSchema }) => void delete jsonSchema.readOnly,
  });
  return { required: true, content: { 'application/json': { schema: documented as object } } };
}

/**
 * Reads and checks the JSON body of a request. Throws `body-too-large`, `malformed-json`, `unsupported-media-type`, and `invalid-input`
 * with the first invalid field.
 */
export async function readChecked<T>(body: Body, schema: z.ZodType<T>, limitBytes = MAX_SETTINGS_BYTES): Promise<T> {
  return checked((await readJson(body, limitBytes)).value, schema);
}

/** Checks the value of a JSON body. Throws `invalid-input` with the first invalid field. */
export function checked<T>(value: unknown, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const path = issue?.path ?? [];
  const keys = issue?.code === 'unrecognized_keys' ? issue.keys.slice(0, 1) : [];
  const location = path.length === 0 ? '' : ` at ${pointerOf(path)}`;
  throw new GatewayError('invalid-input', `The body is not valid${location}: it ${wordedIssue(issue)}.`, {
    field: pointerOf([...path, ...keys]),
    hint: '/docs shows the body of every route.',
  });
}

/** Decoders of compressed bodies, by the content coding (RFC 9110, section 8.4.1). Each decoder bounds what it produces ahead of its reader. */
export type Decoders = ReadonlyMap<string, () => ReadableWritablePair<Uint8Array, Uint8Array>>;

/** The decoded pieces of a body, as the caller asks for them. */
interface Decoding {
  /** @throws GatewayError `malformed-request` when the compressed data is damaged or incomplete, and the errors of the body's own pieces */
  readonly next: NextPiece;
  /** Ends the decoding and frees its memory. */
  cancel(): Promise<void>;
}

type Format = ConstructorParameters<typeof DecompressionStream>[0];

/** Content codings and their names for `DecompressionStream`. */
const FORMATS: Readonly<Record<string, Format>> = { gzip: 'gzip', deflate: 'deflate', br: 'brotli' };
/**
 * Compressed bytes that a decoder gets at once. A decoder of workerd decodes all of them before its reader takes anything, and deflate makes at most
 * 1,032 bytes of one.
 */
const SLICE_BYTES = 4096;
/**
 * Bytes that a decoder may take, whatever the body: the largest window of its coding (RFC 7932, section 9.1; RFC 9659), or somewhat more than what
 * zlib takes.
 */
const DECODER_BYTES: Readonly<Record<string, number>> = { br: 17 * 2 ** 20, zstd: 9 * 2 ** 20 };
const ZLIB_BYTES = 2 ** 18;
/** Maximum characters of a header that an error quotes. */
const MAX_QUOTED = 40;

/** The decoders that this process has as `DecompressionStream`: Node also decodes brotli, workerd does not. */
export function webDecoders(): Decoders {
  const decoders = new Map<string, () => ReadableWritablePair<Uint8Array, Uint8Array>>();
  for (const [coding, format] of Object.entries(FORMATS)) {
    const make = () => new DecompressionStream(format) as ReadableWritablePair<Uint8Array, Uint8Array>;
    try {
      make();
    } catch {
      // This process does not know the format.
      continue;
    }
    decoders.set(coding, make);
  }
  return decoders;
}

/**
 * The content coding of a body; null for none.
 *
 * @throws GatewayError `unsupported-media-type` for a coding without a decoder, and for several codings
 */
export function codingOf(headers: Headers, decoders: Decoders): string | null {
  const header = headers.get('content-encoding') ?? '';
  const codings = header
    .toLowerCase()
    .split(',')
    .map((coding) => coding.trim())
    .filter((coding) => coding !== '' && coding !== 'identity')
    .map((coding) => (coding === 'x-gzip' ? 'gzip' : coding));
  const [coding] = codings;
  if (coding === undefined) return null;
  if (codings.length === 1 && decoders.has(coding)) return coding;
  const known = [...decoders.keys()].join(', ');
  throw new GatewayError(
    'unsupported-media-type',
    `The gateway does not decode a body with \`Content-Encoding: ${header.slice(0, MAX_QUOTED)}\`.`,
    {
      field: 'content-encoding',
      hint: `Send the body as it is, without \`Content-Encoding\`, or in one of these codings: ${known}.`,
      headers: { 'accept-encoding': known },
    },
  );
}

/** Bytes of memory that the decoder of a coding may take. */
const decoderBytes = (coding: string): number => DECODER_BYTES[coding] ?? ZLIB_BYTES;

/** Decodes a body. @param next the compressed pieces */
function decode(next: NextPiece, coding: string, decoders: Decoders): Decoding {
  const decoder = decoders.get(coding);
  if (decoder === undefined) throw new TypeError(`no decoder for ${coding}`);
  let fault: { readonly error: unknown } | undefined;
  let waiting: Uint8Array = new Uint8Array(0);
  const compressed = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          if (waiting.byteLength === 0) {
            const piece = await next();
            if (piece === undefined) {
              controller.close();
              return;
            }
            waiting = piece;
          }
          controller.enqueue(waiting.subarray(0, SLICE_BYTES));
          waiting = waiting.subarray(SLICE_BYTES);
        } catch (error) {
          fault = { error };
          throw error;
        }
      },
    },
    { highWaterMark: 0 },
  );
  const reader = compressed.pipeThrough(decoder()).getReader();
  return {
    async next() {
      try {
        const { done, value } = await reader.read();
        return done ? undefined : value;
      } catch (cause) {
        throw fault === undefined ? damaged(coding, cause) : fault.error;
      }
    },
    cancel: () => reader.cancel().catch(() => undefined),
  };
}

function damaged(coding: string, cause: unknown): GatewayError {
  return new GatewayError('malformed-request', `The body is not valid ${coding} data, or its end is missing.`, {
    field: 'content-encoding',
    hint: `Compress the body with ${coding}, or send it without \`Content-Encoding\`.`,
    cause,
  });
}
