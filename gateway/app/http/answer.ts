import type { Context } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import type { AppEnv } from '../context.ts';
import type { Memory } from '../control.ts';
import type { Bodies, CountedRoom } from './bodies.ts';

/** An answer counts towards its tenant's share of memory only if it has more bytes than this. */
export const LARGE_BYTES = 64 * 1024;
/** A character of JavaScript has at most this many bytes in UTF-8. */
const MAX_BYTES_PER_CHARACTER = 3;

/**
 * Counts the memory of the answer to one request towards the share of its tenant. The handler counts the data that it gathers with `hold`,
 * whatever the size. Once the answer is made, `keepOnly` counts its bytes in place of that data, until the client has taken them. The
 * functions below call `keepOnly` only for an answer larger than `LARGE_BYTES`.
 */
export class AnswerMemory implements Memory {
  readonly #bodies: Bodies;
  readonly #tenant: () => string;
  #room: CountedRoom | undefined;
  /** True once the answer is made or the handler has ended: from then on, `hold` and `give` do nothing. */
  #isGatheringOver = false;

  /** @param tenant owner of the share; empty for a request without a key */
  constructor(bodies: Bodies, tenant: () => string) {
    this.#bodies = bodies;
    this.#tenant = tenant;
  }

  hold(bytes: number): void {
    // Ignore late calls: nothing would free their bytes. They come from the source of a stream, which still runs after its handler has ended. The
    // stream counts its large chunks in a room of its own (`EventStreamOptions.room`).
    if (!this.#isGatheringOver) this.#openRoom().hold(bytes);
  }

  give(bytes: number): void {
    if (!this.#isGatheringOver) this.#room?.give(bytes);
  }

  /**
   * Ends the gathering: replaces the count of the gathered data by the size of the finished answer, which stays counted after the end of the
   * handler. Call the returned function once the client has taken the answer, or will not take it any more.
   *
   * @param bytes size of the answer
   * @throws GatewayError `gateway-busy`, `too-many-requests`
   */
  keepOnly(bytes: number): () => void {
    const room = this.#openRoom();
    room.resize(bytes);
    // `release` must not free these bytes.
    this.#room = undefined;
    this.#isGatheringOver = true;
    return () => room.free();
  }

  /** Stops counting the gathered data, but not an answer that `keepOnly` counts. Call it when the handler has ended. */
  release(): void {
    this.#room?.free();
    this.#room = undefined;
    this.#isGatheringOver = true;
  }

  #openRoom(): CountedRoom {
    this.#room ??= this.#bodies.roomFor(this.#tenant());
    return this.#room;
  }
}

/**
 * Answers with text. A large text counts towards the tenant's share until the client has taken it, is gone, or has taken nothing for 30 s.
 *
 * @throws GatewayError `gateway-busy`, `too-many-requests` when a large text does not fit
 */
export function textAnswer(
  c: Context<AppEnv>,
  text: string,
  status: ContentfulStatusCode,
  headers: Readonly<Record<string, string>>,
): Response {
  if (MAX_BYTES_PER_CHARACTER * text.length <= LARGE_BYTES) return c.body(text, status, headers);
  return bytesAnswer(c, new TextEncoder().encode(text), status, headers);
}

/** Answers with bytes, as `textAnswer` does with text. */
export function bytesAnswer(
  c: Context<AppEnv>,
  bytes: Uint8Array<ArrayBuffer>,
  status: ContentfulStatusCode,
  headers: Readonly<Record<string, string>>,
): Response {
  const { byteLength } = bytes;
  const sizedHeaders = { ...headers, 'content-length': String(byteLength) };
  if (c.req.method === 'HEAD') return c.body(null, status, sizedHeaders);
  if (byteLength <= LARGE_BYTES) return c.body(bytes, status, sizedHeaders);
  return c.body(download(bytes, c.get('answer').keepOnly(byteLength)), status, sizedHeaders);
}

/** Answers with JSON, as `textAnswer` does. For answers whose size depends on the data that tenants have stored. */
export function jsonAnswer(
  c: Context<AppEnv>,
  value: unknown,
  status: ContentfulStatusCode = 200,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return textAnswer(c, JSON.stringify(value), status, { 'content-type': 'application/json', ...headers });
}

/** Answers with a page, as `textAnswer` does. */
export function htmlAnswer(
  c: Context<AppEnv>,
  page: string,
  status: ContentfulStatusCode = 200,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return textAnswer(c, page, status, { 'content-type': 'text/html; charset=UTF-8', ...headers });
}

const PIECE_BYTES = 256 * 1024;
/** Time without a read by the client after which the stream fails. */
const STALLED_MS = 30_000;

/**
 * Streams bytes that are in memory, piece by piece as the client takes them.
 *
 * @param free called once, when the client has all bytes, is gone, or has taken nothing for 30 s
 */
export function download(content: Uint8Array, free: () => void): ReadableStream<Uint8Array> {
  let offset = 0;
  let stallTimer: ReturnType<typeof setTimeout> | undefined;
  let isFreed = false;
  const end = (): void => {
    clearTimeout(stallTimer);
    if (isFreed) return;
    isFreed = true;
    free();
  };
  const limitWait = (controller: ReadableStreamDefaultController<Uint8Array>): void => {
    clearTimeout(stallTimer);
    stallTimer = setTimeout(() => {
      end();
      controller.error(new Error('the client took nothing for too long'));
    }, STALLED_MS);
  };
  return new ReadableStream(
    {
      // Limit the wait from the start: a server may drop a body without ever reading or cancelling it.
      start: limitWait,
      pull(controller) {
        if (offset >= content.length) {
          end();
          controller.close();
          return;
        }
        controller.enqueue(content.slice(offset, offset + PIECE_BYTES));
        offset += PIECE_BYTES;
        limitWait(controller);
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
}
