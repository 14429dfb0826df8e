import type { MessageInput, Message as WitMessage } from 'pie:inferlet/session@0.1.0';

/** The engine's own, which the language's library does not declare. */
declare const TextEncoder: new () => { encode(text: string): Uint8Array };
declare const TextDecoder: new () => { decode(bytes?: Uint8Array, options?: { stream?: boolean }): string };

/** What inferlets say to each other and to their clients. */
export type Message = string | Uint8Array;

/** UTF-8 of a text; bytes as they are. */
export const toBytes = (content: Message): Uint8Array =>
  typeof content === 'string' ? new TextEncoder().encode(content) : content;

/** Text of UTF-8; broken sequences become U+FFFD. */
export const toText = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** Turns UTF-8 that arrives in pieces into text, never half a character. */
export function textStream(): { push(bytes: Uint8Array): string; finish(): string } {
  const decoder = new TextDecoder();
  return { push: (bytes) => decoder.decode(bytes, { stream: true }), finish: () => decoder.decode() };
}

/** Several pieces as one. */
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

/** A message as the contract takes it. */
export const toWire = (message: Message): MessageInput =>
  typeof message === 'string' ? { tag: 'text', val: message } : { tag: 'bytes', val: message };

/** A message as the contract gives it. */
export const fromWire = (message: WitMessage): Message => message.val;
