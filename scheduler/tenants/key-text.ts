import { createHash, randomBytes } from 'node:crypto';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const PREFIX = 'pie_';
const LENGTH = 32;
const KEY = /^pie_[0-9A-Za-z]{32}$/;

/** A new key: 190 random bits, so that a plain sha256 of it is enough to keep. */
export function newApiKey(): string {
  return PREFIX + randomText(LENGTH);
}

export function isApiKey(text: string): boolean {
  return KEY.test(text);
}

/** What is stored of a key. */
export function hashKey(apiKey: string): string {
  return createHash('sha256').update(apiKey).digest('hex');
}

/** Enough of the hash to tell keys apart, and nothing of the key. */
export function keyIdOf(hash: string): string {
  return `key_${hash.slice(0, 12)}`;
}

/** Uniform: bytes past the last multiple of the alphabet's length are thrown away. */
function randomText(length: number): string {
  const usable = 256 - (256 % ALPHABET.length);
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      if (byte < usable && text.length < length) text += ALPHABET[byte % ALPHABET.length];
    }
  }
  return text;
}
