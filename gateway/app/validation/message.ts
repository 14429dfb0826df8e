import { z } from 'zod';
import type { SessionMessage } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { type Body, readJson } from '../http/bodies.ts';

export const SessionMessageSchema = z.union([
  z.strictObject({ text: z.string() }),
  z.strictObject({ base64: z.base64() }),
  z.strictObject({ close: z.literal(true) }),
]);

/** Room for the JSON around a message. */
const ENVELOPE_BYTES = 64;

/** The message in a request's body, at most `limitBytes` long once decoded. Throws `invalid-input` or `body-too-large`. */
export async function sessionMessageOf(body: Body, limitBytes: number): Promise<SessionMessage> {
  // JSON may escape every byte of a text as \u00XX.
  const { value } = await readJson(body, limitBytes * 6 + ENVELOPE_BYTES);
  const parsed = SessionMessageSchema.safeParse(value);
  if (!parsed.success) {
    throw new GatewayError('invalid-input', 'A message is {"text": "…"}, {"base64": "…"} or {"close": true}.', {
      field: '',
    });
  }
  const message = toMessage(parsed.data);
  const size = sizeOf(message);
  if (size > limitBytes)
    throw new GatewayError('body-too-large', `The message has ${size} bytes; ${limitBytes} are allowed.`);
  return message;
}

function sizeOf(message: SessionMessage): number {
  if ('text' in message) return new TextEncoder().encode(message.text).byteLength;
  return 'bytes' in message ? message.bytes.byteLength : 0;
}

function toMessage(data: z.output<typeof SessionMessageSchema>): SessionMessage {
  if ('text' in data) return { text: data.text };
  if ('base64' in data) return { bytes: Uint8Array.fromBase64(data.base64) };
  return { close: true };
}
