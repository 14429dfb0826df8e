import { GatewayError } from '../errors/gateway-error.ts';

/** Read of a refused body before its connection is given up: somewhat too large is common, far too large is not meant well. */
export const MAX_DISCARDED_BYTES = 80 * 1024 * 1024;

/**
 * The bytes of a request's body. Refused with `body-too-large` as soon as its declared or its actual size passes the limit, so that no
 * more than `limitBytes` is ever held.
 */
export async function readBody(request: Request, limitBytes: number): Promise<Uint8Array> {
  const declared = declaredLength(request);
  if (declared !== null && declared > limitBytes) {
    await discardBody(request);
    throw tooLarge(limitBytes);
  }
  if (request.body === null) return new Uint8Array(0);
  // A declared length is enforced by the HTTP server below us: the cheap way is safe.
  if (declared !== null) return new Uint8Array(await request.arrayBuffer());

  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = request.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > limitBytes) {
      await discard(reader, MAX_DISCARDED_BYTES);
      throw tooLarge(limitBytes);
    }
    chunks.push(value);
  }
  return concat(chunks, size);
}

/**
 * Reads the rest of a refused body and forgets it. A client that is still sending when its connection closes may never see the refusal, or
 * send its next request into a connection that is about to close.
 */
export async function discard(reader: ReadableStreamDefaultReader<Uint8Array>, maxBytes: number): Promise<void> {
  try {
    for (let size = 0; size <= maxBytes; ) {
      const { done, value } = await reader.read();
      if (done) return;
      size += value.byteLength;
    }
    await reader.cancel();
  } catch {
    // The client left: nobody needs the connection any more.
  }
}

/** The same for a body that nobody has begun to read. */
export async function discardBody(request: Request): Promise<void> {
  if (request.body !== null && !request.bodyUsed && !request.body.locked) {
    await discard(request.body.getReader(), MAX_DISCARDED_BYTES);
  }
}

/** A JSON body, as its text and its value. An empty body is the empty object. */
export async function readJson(request: Request, limitBytes: number): Promise<{ text: string; value: unknown }> {
  const bytes = await readBody(request, limitBytes);
  if (bytes.byteLength === 0) return { text: '{}', value: {} };
  const type = mediaType(request);
  if (type !== 'application/json' && !/^application\/[\w.-]+\+json$/.test(type)) {
    throw new GatewayError(
      'unsupported-media-type',
      type === '' ? 'The body has no Content-Type.' : `The body is declared as ${type}.`,
      { hint: 'Send `Content-Type: application/json`.', headers: { 'accept-post': 'application/json' } },
    );
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return { text, value: JSON.parse(text) };
  } catch (cause) {
    throw new GatewayError(
      'malformed-json',
      `The body is not JSON: ${cause instanceof Error ? cause.message : 'it does not parse'}.`,
    );
  }
}

/** The media type of a request's body without parameters, in lower case; empty when there is none. */
export function mediaType(request: Request): string {
  return (request.headers.get('content-type') ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
}

export function concat(chunks: readonly Uint8Array[], size: number): Uint8Array {
  const only = chunks[0];
  if (chunks.length === 1 && only !== undefined) return only;
  const all = new Uint8Array(size);
  let offset = 0;
  for (const chunk of chunks) {
    all.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return all;
}

function declaredLength(request: Request): number | null {
  const header = request.headers.get('content-length');
  if (header === null || !/^\d{1,15}$/.test(header)) return null;
  return Number(header);
}

function tooLarge(limitBytes: number): GatewayError {
  return new GatewayError('body-too-large', `The body is larger than ${limitBytes} bytes, the limit of this route.`);
}
