import type { MessageInput, Message as WitMessage } from 'pie:inferlet/session@0.1.0';
import { InferletError } from './errors.ts';

/** Globals of the JavaScript engine that TypeScript's ES library does not declare. */
declare const TextEncoder: new () => { encode(text: string): Uint8Array };
declare const TextDecoder: new () => { decode(bytes?: Uint8Array, options?: { stream?: boolean }): string };

/** A message between inferlets, or between an inferlet and its client. */
export type Message = string | Uint8Array;

/** Encodes text as UTF-8; returns bytes unchanged. */
export const toBytes = (content: Message): Uint8Array =>
  typeof content === 'string' ? new TextEncoder().encode(content) : content;

/** Decodes UTF-8; invalid sequences become U+FFFD. */
export const toText = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** Decodes UTF-8 that arrives in pieces, without splitting characters. */
export function textStream(): { push(bytes: Uint8Array): string; finish(): string } {
  const decoder = new TextDecoder();
  return { push: (bytes) => decoder.decode(bytes, { stream: true }), finish: () => decoder.decode() };
}

/** Concatenates pieces. A single piece is returned without a copy. */
export function concatenate(pieces: readonly Uint8Array[]): Uint8Array {
  if (pieces.length === 1 && pieces[0]) return pieces[0];
  const whole = new Uint8Array(pieces.reduce((size, { length }) => size + length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

export const toWire = (message: Message): MessageInput =>
  typeof message === 'string' ? { tag: 'text', val: message } : { tag: 'bytes', val: message };

export const fromWire = (message: WitMessage): Message => message.val;

/** A value as JSON text. Throws `invalid-argument` for a value that JSON cannot represent: `undefined`, a function, a symbol. */
export function toJson(value: unknown): string {
  const text = JSON.stringify(value);
  if (text !== undefined) return text;
  throw new InferletError(
    'invalid-argument',
    `JSON cannot represent a ${typeof value}: use null or a JSON value instead.`,
  );
}

/** The beginning of a text, at most `most` UTF-16 units, without splitting a surrogate pair. */
export function excerpt(text: string, most: number): string {
  if (text.length <= most) return text;
  const last = text.charCodeAt(most - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? most - 1 : most);
}
