import type { Context } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import type { AppEnv } from '../context.ts';
import type { Bodies, CountedRoom, Memory } from './bodies.ts';
import { download } from './download.ts';

/** Larger answers count towards their tenant's share of the bodies in flight. */
export const LARGE_BYTES = 64 * 1024;
/** A character of JavaScript has at most this many bytes in UTF-8. */
const MAX_BYTES_PER_CHARACTER = 3;

/**
 * Counts the memory of the answer to one request towards the share of its tenant: first the data that the handler gathers, then the answer's
 * bytes until the client has taken them. Small answers are not counted.
 */
export class AnswerMemory implements Memory {
  readonly #bodies: Bodies;
  readonly #tenant: () => string;
  #room: CountedRoom | undefined;
  #isOver = false;

  /** @param tenant owner of the share; empty for a request without a key */
  constructor(bodies: Bodies, tenant: () => string) {
    this.#bodies = bodies;
    this.#tenant = tenant;
  }

  hold(bytes: number): void {
    // The source of a stream continues after the handler, and counts its own memory.
    if (!this.#isOver) this.#openRoom().hold(bytes);
  }

  give(bytes: number): void {
    if (!this.#isOver) this.#room?.give(bytes);
  }

  /**
   * Holds only this many bytes, also after the end of the handler. Call the returned function once the client has the bytes.
   *
   * @throws GatewayError `gateway-busy`, `too-many-requests`
   */
  keepOnly(bytes: number): () => void {
    const room = this.#openRoom();
    room.resize(bytes);
    this.#room = undefined;
    this.#isOver = true;
    return () => room.free();
  }

  /** Stops counting the gathered data; call it when the handler has ended. */
  release(): void {
    this.#room?.free();
    this.#room = undefined;
    this.#isOver = true;
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

/** Answers with JSON, as `textAnswer` does. For answers whose size depends on what tenants have stored. */
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
