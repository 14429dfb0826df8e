import { closeSync, openSync, writeSync } from 'node:fs';

/** Bytes gathered before each write. */
const CHUNK_BYTES = 1 << 20;

/**
 * Writes the format that `native/harness/fixture.cu` reads: little-endian values in units of four bytes. The length of a string or
 * an array precedes it. Strings and arrays of bytes are padded to a multiple of four.
 */
export class FixtureWriter {
  readonly #fd: number;
  #parts: Uint8Array[] = [];
  #pending = 0;
  bytes = 0;

  constructor(file: string) {
    this.#fd = openSync(file, 'w');
  }

  unsigned(...values: readonly number[]): void {
    this.#raw(Uint32Array.from(values));
  }

  float(value: number): void {
    this.#raw(Float32Array.of(value));
  }

  string(text: string): void {
    this.byteArray(new TextEncoder().encode(text));
  }

  byteArray(bytes: Uint8Array): void {
    this.unsigned(bytes.length);
    const padded = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
    padded.set(bytes);
    this.#raw(padded);
  }

  /** Writes the number of values, then the values: of 32 bits each, or 64-bit floats. */
  array(values: Uint32Array | Int32Array | Float32Array | Float64Array): void {
    this.unsigned(values.length);
    this.#raw(values);
  }

  close(): void {
    this.#flush();
    closeSync(this.#fd);
  }

  #raw(values: Uint8Array | Uint32Array | Int32Array | Float32Array | Float64Array): void {
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength).slice();
    this.#parts.push(bytes);
    this.#pending += bytes.length;
    this.bytes += bytes.length;
    if (this.#pending >= CHUNK_BYTES) this.#flush();
  }

  #flush(): void {
    const bytes = Buffer.concat(this.#parts);
    for (let done = 0; done < bytes.length; ) done += writeSync(this.#fd, bytes, done);
    this.#parts = [];
    this.#pending = 0;
  }
}
