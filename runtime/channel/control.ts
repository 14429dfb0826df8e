import { ChannelFault } from './fault.ts';

/** Maximum bytes of a control message from a sandbox to its runtime. */
export const MAX_CONTROL_BYTES = 1 << 20;

/** Encodes a control message, which belongs to no invocation: a JSON description and a body of bytes. */
export function encodeControl(description: unknown, body: Uint8Array = new Uint8Array(0)): Buffer {
  const json = Buffer.from(JSON.stringify(description));
  const payload = Buffer.allocUnsafe(4 + json.length + body.length);
  payload.writeUInt32LE(json.length, 0);
  json.copy(payload, 4);
  payload.set(body, 4 + json.length);
  return payload;
}

/** @throws ChannelFault for bytes that {@link encodeControl} does not write */
export function decodeControl(
  payload: Buffer,
  maxBytes = Number.POSITIVE_INFINITY,
): { description: unknown; body: Buffer } {
  if (payload.length > maxBytes) throw new ChannelFault('too-large', `a control message has ${payload.length} bytes`);
  const length = payload.length >= 4 ? payload.readUInt32LE(0) : Number.NaN;
  if (!(length <= payload.length - 4)) throw new ChannelFault('bad-frame', 'a control message is cut');
  try {
    const description: unknown = JSON.parse(payload.toString('utf8', 4, 4 + length));
    return { description, body: payload.subarray(4 + length) };
  } catch (cause) {
    throw new ChannelFault('bad-value', 'a control message is not JSON', { cause });
  }
}
