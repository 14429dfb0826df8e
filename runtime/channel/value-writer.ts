import type { NumberList, ValueWriter } from '#wit/generate/channel-io.ts';
import { ChannelFault } from './fault.ts';
import { MAX_MESSAGE_BYTES } from './limits.ts';

/** Returns the number under which the peer knows a resource. @throws for a value that is not a resource of this kind */
export type NumberOf = (resource: number, value: unknown) => number;

const FIRST_BYTES = 4096;
/** A buffer larger than this is dropped after its message. */
const KEPT_BYTES = 64 * 1024;

const noHandles: NumberOf = () => {
  throw new TypeError('this value has no resources');
};

/** Writes values of WIT types into one growing buffer. @throws ChannelFault `too-large` past the size of a message */
export class MessageWriter implements ValueWriter {
  readonly #numberOf: NumberOf;
  #bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #length = 0;

  constructor(numberOf: NumberOf = noHandles) {
    this.#numberOf = numberOf;
  }

  /** Returns the written bytes and empties the writer, which does not touch the returned bytes again. */
  take(): Buffer {
    const contents = this.#bytes.subarray(0, this.#length);
    const isLarge = this.#bytes.length > KEPT_BYTES;
    // A large buffer that is more than half full is returned without a copy.
    const result = isLarge && this.#length * 2 > this.#bytes.length ? contents : Buffer.from(contents);
    if (isLarge) this.#bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
    this.#length = 0;
    return result;
  }

  /** Discards the written bytes. */
  reset(): void {
    if (this.#bytes.length > KEPT_BYTES) this.#bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
    this.#length = 0;
  }

  bool(value: boolean): void {
    this.u8(value ? 1 : 0);
  }

  u8(value: number): void {
    const at = this.#room(1);
    this.#bytes[at] = value;
  }

  s8(value: number): void {
    this.u8(value & 0xff);
  }

  u16(value: number): void {
    const at = this.#room(2);
    this.#bytes.writeUInt16LE(value & 0xffff, at);
  }

  s16(value: number): void {
    this.u16(value);
  }

  u32(value: number): void {
    const at = this.#room(4);
    this.#bytes.writeUInt32LE(value >>> 0, at);
  }

  s32(value: number): void {
    const at = this.#room(4);
    this.#bytes.writeInt32LE(value | 0, at);
  }

  /** Some host functions return a u64 as a number. */
  u64(value: bigint | number): void {
    const at = this.#room(8);
    this.#bytes.writeBigUInt64LE(BigInt.asUintN(64, BigInt(value)), at);
  }

  s64(value: bigint | number): void {
    const at = this.#room(8);
    this.#bytes.writeBigInt64LE(BigInt.asIntN(64, BigInt(value)), at);
  }

  f32(value: number): void {
    const at = this.#room(4);
    this.#bytes.writeFloatLE(value, at);
  }

  f64(value: number): void {
    const at = this.#room(8);
    this.#bytes.writeDoubleLE(value, at);
  }

  char(value: string): void {
    this.u32(value.codePointAt(0) ?? 0);
  }

  /** Writes UTF-8; a lone surrogate becomes U+FFFD. */
  string(value: string): void {
    // Each UTF-16 unit takes at most three bytes, so the exact length matters only when the buffer may have to grow.
    const maxBytes = value.length * 3;
    const bytes = maxBytes <= this.#bytes.length - this.#length - 4 ? maxBytes : Buffer.byteLength(value);
    const at = this.#room(4 + bytes);
    const written = this.#bytes.write(value, at + 4);
    this.#bytes.writeUInt32LE(written, at);
    this.#length = at + 4 + written;
  }

  numbers(value: NumberList): void {
    const at = this.#room(4 + value.byteLength);
    this.#bytes.writeUInt32LE(value.length, at);
    this.#bytes.set(new Uint8Array(value.buffer, value.byteOffset, value.byteLength), at + 4);
  }

  count(value: number): void {
    this.u32(value);
  }

  case(index: number): void {
    if (index < 0) throw new TypeError('a value has a case that its type does not have');
    this.u8(index);
  }

  handle(resource: number, value: unknown): void {
    this.u32(this.#numberOf(resource, value));
  }

  /** Appends room for `bytes` bytes and returns its position. */
  #room(bytes: number): number {
    const at = this.#length;
    const needed = at + bytes;
    if (needed > this.#bytes.length) this.#grow(needed);
    this.#length = needed;
    return at;
  }

  #grow(needed: number): void {
    if (needed > MAX_MESSAGE_BYTES) {
      throw new ChannelFault(
        'too-large',
        `the values of one call take more than ${MAX_MESSAGE_BYTES} bytes; send them in parts`,
      );
    }
    const grownBuffer = Buffer.allocUnsafeSlow(Math.min(MAX_MESSAGE_BYTES, Math.max(needed, this.#bytes.length * 2)));
    grownBuffer.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grownBuffer;
  }
}
