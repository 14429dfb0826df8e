/** A global of the JavaScript engine that TypeScript's ES library does not declare. */
declare const TextDecoder: new () => { decode(bytes: Uint8Array): string };

const DIGITS = Uint8Array.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/', (digit) =>
  digit.charCodeAt(0),
);
const PADDING = '='.charCodeAt(0);

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
