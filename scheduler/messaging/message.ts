/** A message between inferlets. */
export type Message = { readonly text: string } | { readonly bytes: Uint8Array };

/** A message with its sender. */
export interface Envelope {
  /** Id of the invocation that sent the message. */
  readonly sender: string;
  readonly message: Message;
}

/** Maximum bytes of one message. */
export const MAX_MESSAGE_BYTES = 2 ** 20;

const TEXT = 't'.charCodeAt(0);
const END_OF_SENDER = 0;

/** Encodes an envelope as the sender, a zero byte, `t` (text) or `b` (bytes), and the content of the message. */
export function encodeEnvelope({ sender, message }: Envelope): Buffer {
  const kind = 'text' in message ? 't' : 'b';
  return Buffer.concat([
    Buffer.from(`${sender}\0${kind}`),
    'text' in message ? Buffer.from(message.text) : message.bytes,
  ]);
}

/** Decodes the output of `encodeEnvelope`; the bytes of the message are a copy. */
export function decodeEnvelope(encoded: Buffer): Envelope {
  const end = encoded.indexOf(END_OF_SENDER);
  const kind = encoded[end + 1];
  const content = encoded.subarray(end + 2);
  return {
    sender: encoded.toString('utf8', 0, end),
    message: kind === TEXT ? { text: content.toString('utf8') } : { bytes: new Uint8Array(content) },
  };
}
