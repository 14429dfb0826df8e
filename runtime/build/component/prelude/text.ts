import { define } from './phase.ts';

const REPLACEMENT = 0xfffd;
/** Number of code units that one call turns into a string; below the engine's limit on arguments. */
const CHUNK = 4096;

class Utf8Encoder {
  readonly encoding = 'utf-8';

  encode(text = ''): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(text.length * 3);
    return bytes.slice(0, this.encodeInto(text, bytes).written);
  }

  encodeInto(text: string, into: Uint8Array): { read: number; written: number } {
    let written = 0;
    let read = 0;
    while (read < text.length) {
      let code = text.codePointAt(read) ?? 0;
      const units = code > 0xffff ? 2 : 1;
      if (code >= 0xd800 && code <= 0xdfff) code = REPLACEMENT;
      let size = 4;
      if (code < 0x80) size = 1;
      else if (code < 0x800) size = 2;
      else if (code < 0x10000) size = 3;
      if (written + size > into.length) break;
      if (size === 1) into[written] = code;
      else {
        // The leading byte: as many ones as the character has bytes, a zero, and the highest bits.
        into[written] = (0xf00 >> size) | (code >> (6 * (size - 1)));
        for (let i = 1; i < size; i += 1) into[written + i] = 0x80 | ((code >> (6 * (size - 1 - i))) & 0x3f);
      }
      written += size;
      read += units;
    }
    return { read, written };
  }
}

/** `TextDecoder` for UTF-8 only. As the Encoding standard demands, each maximal part of a broken sequence becomes one U+FFFD. */
class Utf8Decoder {
  readonly encoding = 'utf-8';
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  /** Bits of the current character so far. */
  #code = 0;
  /** Number of bytes that the current character still needs. */
  #needed = 0;
  /** Smallest and largest valid value of the next byte. They exclude overlong forms, surrogates, and code points above U+10FFFF. */
  #lower = 0x80;
  #upper = 0xbf;
  /** True when the stream has produced text: a byte order mark counts only at the beginning. */
  #started = false;

  constructor(label = 'utf-8', options: { fatal?: boolean; ignoreBOM?: boolean } = {}) {
    if (!/^(utf-?8|unicode-1-1-utf-8)$/i.test(label.trim()))
      throw new RangeError(`the encoding '${label}' is not supported`);
    this.fatal = options.fatal ?? false;
    this.ignoreBOM = options.ignoreBOM ?? false;
  }

  decode(input?: ArrayBuffer | ArrayBufferView, options: { stream?: boolean } = {}): string {
    const bytes = bytesOf(input);
    const units: number[] = [];
    let text = '';
    for (let i = 0; i < bytes.length; i += 1) {
      const byte = bytes[i] ?? 0;
      if (this.#needed === 0) this.#lead(byte, units);
      else if (byte >= this.#lower && byte <= this.#upper) this.#continue(byte, units);
      else {
        this.#reset();
        this.#broken(units);
        // The byte may begin the next character.
        i -= 1;
      }
      if (units.length >= CHUNK) text += String.fromCharCode(...units.splice(0));
    }
    if (!options.stream) {
      if (this.#needed > 0) this.#broken(units);
      this.#reset();
    }
    text += String.fromCharCode(...units);
    const strip = !this.#started && !this.ignoreBOM && text.startsWith('\ufeff');
    this.#started = options.stream === true && (this.#started || text.length > 0);
    return strip ? text.slice(1) : text;
  }

  #lead(byte: number, units: number[]): void {
    if (byte < 0x80) units.push(byte);
    else if (byte >= 0xc2 && byte <= 0xdf) this.#begin(byte & 0x1f, 1);
    else if (byte >= 0xe0 && byte <= 0xef) {
      this.#begin(byte & 0x0f, 2);
      if (byte === 0xe0) this.#lower = 0xa0;
      if (byte === 0xed) this.#upper = 0x9f;
    } else if (byte >= 0xf0 && byte <= 0xf4) {
      this.#begin(byte & 0x07, 3);
      if (byte === 0xf0) this.#lower = 0x90;
      if (byte === 0xf4) this.#upper = 0x8f;
    } else this.#broken(units);
  }

  #begin(code: number, needed: number): void {
    this.#code = code;
    this.#needed = needed;
  }

  #continue(byte: number, units: number[]): void {
    this.#lower = 0x80;
    this.#upper = 0xbf;
    this.#code = (this.#code << 6) | (byte & 0x3f);
    this.#needed -= 1;
    if (this.#needed > 0) return;
    if (this.#code < 0x10000) units.push(this.#code);
    else units.push(0xd7c0 + (this.#code >> 10), 0xdc00 + (this.#code & 0x3ff));
  }

  #broken(units: number[]): void {
    if (this.fatal) {
      this.#reset();
      throw new TypeError('the bytes are not valid UTF-8');
    }
    units.push(REPLACEMENT);
  }

  #reset(): void {
    this.#needed = 0;
    this.#lower = 0x80;
    this.#upper = 0xbf;
  }
}

function bytesOf(input: ArrayBuffer | ArrayBufferView | undefined): Uint8Array {
  if (input === undefined) return new Uint8Array(0);
  if (ArrayBuffer.isView(input)) return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
  return new Uint8Array(input);
}

define('TextEncoder', Utf8Encoder);
define('TextDecoder', Utf8Decoder);
