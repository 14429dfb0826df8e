const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** Base64 of bytes, with padding: the engine has no function for it. */
export function base64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += 3) {
    const [first, second, third] = [bytes[at] ?? 0, bytes[at + 1] ?? 0, bytes[at + 2] ?? 0];
    const bits = (first << 16) | (second << 8) | third;
    const left = bytes.length - at;
    text += DIGITS[bits >> 18] ?? '';
    text += DIGITS[(bits >> 12) & 63] ?? '';
    text += left > 1 ? DIGITS[(bits >> 6) & 63] : '=';
    text += left > 2 ? DIGITS[bits & 63] : '=';
  }
  return text;
}
