import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import type { Body } from './bodies.ts';
import { assertShape } from './json-shape.ts';

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
export function mediaType({ contentType }: Body): string {
  return contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
}
