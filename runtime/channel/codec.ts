/**
 * Reads and writes values of WIT types, for the code that is generated from the contract. The links between Pie's own processes share a codec of
 * theirs. This one stays separate on purpose: its peer is a sandbox that a guest may have taken over, so it checks every length, count, case and
 * text against its own bounds before it builds anything, and it shares no state with another link.
 */

import { isUtf8 } from 'node:buffer';
import type { NumberList, ValueReader, ValueWriter } from '#wit/generate/channel-io.ts';
import { ChannelFault, MAX_ITEMS, MAX_MESSAGE_BYTES } from './limits.ts';

/** Finds the resources that a message names by number. @throws ChannelFault `bad-number` */
export interface Handles {
  get(resource: number, number: number): unknown;
  take(resource: number, number: number): unknown;
}

type NumberArray<T> = new (buffer: ArrayBuffer) => T;

/** Up to this size, V8 keeps the numbers of a typed array inside the array's object; a separate buffer costs many times as much. */
const SMALL_BYTES = 64;

const NO_HANDLES: Handles = {
  get: () => bad('a resource where none can be'),
  take: () => bad('a resource where none can be'),
};

/**
 * Reads values of WIT types from one message. Checks lengths, counts, cases and texts before it uses them, since the peer may be hostile.
 * Lists of bytes are views of the message; other lists are copies.
 */
export class MessageReader implements ValueReader {
  readonly #bytes: Buffer;
  readonly #handles: Handles;
  #at = 0;
  #remainingItems: number;

  /**
   * @param bytes a message that no other code writes to
   * @param items maximum number of lists, elements and texts in it
   */
  constructor(bytes: Buffer, handles: Handles = NO_HANDLES, items = MAX_ITEMS) {
    this.#bytes = bytes;
    this.#remainingItems = items;
    this.#handles = handles;
  }

  /** Checks that the message ends here. */
  end(): void {
    const left = this.#bytes.length - this.#at;
    if (left > 0) bad(`${left} bytes behind the last value`);
  }

  bool(): boolean {
    return this.case(2) === 1;
  }

  u8(): number {
    return this.#bytes[this.#take(1)] as number;
  }

  s8(): number {
    return this.#bytes.readInt8(this.#take(1));
  }

  u16(): number {
    return this.#bytes.readUInt16LE(this.#take(2));
  }

  s16(): number {
    return this.#bytes.readInt16LE(this.#take(2));
  }

  u32(): number {
    return this.#bytes.readUInt32LE(this.#take(4));
  }

  s32(): number {
    return this.#bytes.readInt32LE(this.#take(4));
  }

  u64(): bigint {
    return this.#bytes.readBigUInt64LE(this.#take(8));
  }

  s64(): bigint {
    return this.#bytes.readBigInt64LE(this.#take(8));
  }

  f32(): number {
    return this.#bytes.readFloatLE(this.#take(4));
  }

  f64(): number {
    return this.#bytes.readDoubleLE(this.#take(8));
  }

  char(): string {
    const point = this.u32();
    if (point > 0x10_ffff || (point >= 0xd800 && point <= 0xdfff)) bad(`${point} is not a Unicode scalar value`);
    return String.fromCodePoint(point);
  }

  string(): string {
    const length = this.u32();
    this.#countItem();
    const from = this.#take(length);
    if (length === 0) return '';
    const text = this.#bytes.subarray(from, from + length);
    if (!isUtf8(text)) bad('a text that is not UTF-8');
    return text.toString();
  }

  u8List(): Uint8Array {
    const from = this.#numbers(1);
    return new Uint8Array(this.#bytes.buffer, this.#bytes.byteOffset + from, this.#at - from);
  }

  s8List(): Int8Array {
    return this.#copy(Int8Array, 1);
  }

  u16List(): Uint16Array {
    return this.#copy(Uint16Array, 2);
  }

  s16List(): Int16Array {
    return this.#copy(Int16Array, 2);
  }

  u32List(): Uint32Array {
    // Reads the count ahead; `#numbers` and `#copy` read it again, and report a message that ends before it.
    const count = this.#bytes.length - this.#at < 4 ? 0 : this.#bytes.readUInt32LE(this.#at);
    if (count * 4 > SMALL_BYTES) return this.#copy(Uint32Array, 4);
    const from = this.#numbers(4);
    const values = new Uint32Array(count);
    for (let i = 0; i < count; i++) values[i] = this.#bytes.readUInt32LE(from + 4 * i);
    return values;
  }

  s32List(): Int32Array {
    return this.#copy(Int32Array, 4);
  }

  u64List(): BigUint64Array {
    return this.#copy(BigUint64Array, 8);
  }

  s64List(): BigInt64Array {
    return this.#copy(BigInt64Array, 8);
  }

  f32List(): Float32Array {
    return this.#copy(Float32Array, 4);
  }

  f64List(): Float64Array {
    return this.#copy(Float64Array, 8);
  }

  list<T>(minElementBytes: number, element: () => T): T[] {
    const count = this.u32();
    const left = this.#bytes.length - this.#at;
    if (count * minElementBytes > left) bad(`a list of ${count} elements in ${left} bytes`);
    if (count > this.#remainingItems) tooMany();
    const values: T[] = [];
    for (let i = 0; i < count; i++) {
      this.#countItem();
      values.push(element());
    }
    return values;
  }

  case(cases: number): number {
    const index = this.u8();
    if (index >= cases) bad(`case ${index} of a type with ${cases}`);
    return index;
  }

  pick<T>(values: readonly T[]): T {
    return values[this.case(values.length)] as T;
  }

  handle(resource: number): unknown {
    return this.#handles.get(resource, this.u32());
  }

  take(resource: number): unknown {
    return this.#handles.take(resource, this.u32());
  }

  #take(bytes: number): number {
    const from = this.#at;
    if (bytes > this.#bytes.length - from) {
      bad(`${bytes} bytes are announced at ${from} of a message of ${this.#bytes.length}`);
    }
    this.#at = from + bytes;
    return from;
  }

  /** Starts a list of numbers and skips its content; returns the content's position. */
  #numbers(size: number): number {
    const count = this.u32();
    this.#countItem();
    return this.#take(count * size);
  }

  #copy<T>(array: NumberArray<T>, size: number): T {
    const from = this.#numbers(size);
    const start = this.#bytes.byteOffset + from;
    return new array(this.#bytes.buffer.slice(start, start + this.#at - from) as ArrayBuffer);
  }

  #countItem(): void {
    if (this.#remainingItems-- === 0) tooMany();
  }
}

function bad(what: string): never {
  throw new ChannelFault('bad-value', `the peer sent ${what}`);
}

function tooMany(): never {
  throw new ChannelFault('too-large', 'the peer sent too many lists, elements and texts in one message');
}

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
