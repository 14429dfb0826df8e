/** Globals of the JavaScript engine that TypeScript's ES library does not declare. */
declare const TextEncoder: new () => { encode(text: string): Uint8Array };
declare const TextDecoder: new () => { decode(bytes: Uint8Array): string };

const DIGITS = Uint8Array.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/', (digit) =>
  digit.charCodeAt(0),
);
const PADDING = '='.charCodeAt(0);
/** Value of each byte as a digit; negative for a byte that is none. */
const VALUES = new Int8Array(256).fill(-1);
for (const [value, digit] of DIGITS.entries()) VALUES[digit] = value;

/** Base64 of bytes, with padding: the engine has no function for it. */
export function base64(bytes: Uint8Array): string {
  const text = new Uint8Array(4 * Math.ceil(bytes.length / 3)).fill(PADDING);
  for (let at = 0, to = 0; at < bytes.length; at += 3, to += 4) {
    const remaining = bytes.length - at;
    const bits = (bytes[at] << 16) | (remaining > 1 ? bytes[at + 1] << 8 : 0) | (remaining > 2 ? bytes[at + 2] : 0);
    text[to] = DIGITS[bits >> 18];
    text[to + 1] = DIGITS[(bits >> 12) & 63];
    if (remaining > 1) text[to + 2] = DIGITS[(bits >> 6) & 63];
    if (remaining > 2) text[to + 3] = DIGITS[bits & 63];
  }
  return new TextDecoder().decode(text);
}

/** The bytes of base64, with or without padding; white space is passed over. Undefined for any other text. */
export const bytesOfBase64 = (text: string): Uint8Array | undefined =>
  decoded(text) ?? decoded(text.replaceAll(/[\t\n\f\r ]+/g, ''));

function decoded(text: string): Uint8Array | undefined {
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const digits = text.slice(0, text.length - padding);
  const missing = (4 - (digits.length % 4)) % 4;
  const codes = new TextEncoder().encode(digits + 'A'.repeat(missing));
  // Characters that are not ASCII take more than one byte. No number of bytes leaves three digits missing.
  if (missing === 3 || codes.length !== digits.length + missing) return undefined;
  const bytes = new Uint8Array((codes.length / 4) * 3);
  let faults = 0;
  // Millions of digits go through this loop, so it calls no function.
  for (let at = 0, to = 0; at < codes.length; at += 4, to += 3) {
    const bits =
      (VALUES[codes[at]] << 18) | (VALUES[codes[at + 1]] << 12) | (VALUES[codes[at + 2]] << 6) | VALUES[codes[at + 3]];
    // Negative if a byte is no digit.
    faults |= bits;
    bytes[to] = bits >> 16;
    bytes[to + 1] = bits >> 8;
    bytes[to + 2] = bits;
  }
  return faults < 0 ? undefined : bytes.subarray(0, bytes.length - missing);
}
