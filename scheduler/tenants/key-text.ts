import { createHash, randomBytes } from 'node:crypto';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const PREFIX = 'pie_';
const LENGTH = 32;
const KEY = /^pie_[0-9A-Za-z]{32}$/;

/** A new key with 190 random bits, so that storing a plain sha256 of it is safe. */
export function newApiKey(): string {
  return PREFIX + randomText(LENGTH);
}

export function isApiKey(text: string): boolean {
  return KEY.test(text);
}

/** The stored form of a key. */
export function hashKey(apiKey: string): string {
  return createHash('sha256').update(apiKey).digest('hex');
}

/** A part of the hash that tells keys apart and reveals nothing of the key. */
export function keyIdOf(hash: string): string {
  return `key_${hash.slice(0, 12)}`;
}

/**
 * A text in which every character of the alphabet is equally likely. Discards bytes from the largest multiple of the alphabet's length on, since
 * their remainders would favour the first characters.
 */
function randomText(length: number): string {
  const usableBytes = 256 - (256 % ALPHABET.length);
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      if (byte < usableBytes && text.length < length) text += ALPHABET[byte % ALPHABET.length];
    }
  }
  return text;
}
