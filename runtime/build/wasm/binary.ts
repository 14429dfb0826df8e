/** Thrown for bytes that are not well-formed Wasm or use refused features. The text names the fault and its offset. */
export class WasmError extends Error {
  constructor(what: string, offset?: number) {
    super(offset === undefined ? what : `${what} (at byte ${offset})`);
    this.name = 'WasmError';
  }
}

/** Reads Wasm bytes from an offset up to `end`. Every read throws WasmError instead of passing `end`. */
export class Reader {
  readonly bytes: Uint8Array;
  readonly end: number;
  at: number;

  constructor(bytes: Uint8Array, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }

  get done(): boolean {
    return this.at >= this.end;
  }

  byte(): number {
    const value = this.at < this.end ? this.bytes[this.at] : undefined;
    if (value === undefined) throw new WasmError('unexpected end', this.at);
    this.at += 1;
    return value;
  }

  skip(count: number): void {
    if (count > this.end - this.at) throw new WasmError('unexpected end', this.at);
    this.at += count;
  }

  /** Reads an unsigned LEB128 number of at most 32 bits. */
  u32(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value |= (byte & 127) << shift;
      if (byte < 128) return value >>> 0;
    }
    throw new WasmError('number too long', this.at);
  }

  /** Reads a signed LEB128 number of at most 33 bits; block types and heap types have this encoding. */
  s33(): number {
    let value = 0;
    for (let weight = 1, count = 0; count < 5; weight *= 128, count += 1) {
      const byte = this.byte();
      value += (byte & 127) * weight;
      if (byte < 128) return byte & 64 ? value - weight * 128 : value;
    }
    throw new WasmError('number too long', this.at);
  }

  /** Skips a LEB128 number of any size. */
  skipLeb(): void {
    for (let count = 0; count < 10; count += 1) if (this.byte() < 128) return;
    throw new WasmError('number too long', this.at);
  }

  name(): string {
    const length = this.u32();
    const start = this.at;
    this.skip(length);
    return new TextDecoder().decode(this.bytes.subarray(start, start + length));
  }

  /** Returns a reader of the next `length` bytes, and skips these bytes. */
  slice(length: number): Reader {
    const start = this.at;
    this.skip(length);
    return new Reader(this.bytes, start, this.at);
  }
}

/** Encodes a 32-bit integer as unsigned LEB128. */
export function leb(value: number): number[] {
  const out: number[] = [];
  let rest = value >>> 0;
  do {
    const low = rest & 127;
    rest >>>= 7;
    out.push(rest ? low | 128 : low);
  } while (rest);
  return out;
}

/** Encodes a 32-bit integer as signed LEB128. */
export function signedLeb(value: number): number[] {
  const out: number[] = [];
  for (let rest = value | 0; ; rest >>= 7) {
    const low = rest & 127;
    const isLast = rest >> 6 === 0 || rest >> 6 === -1;
    out.push(isLast ? low : low | 128);
    if (isLast) return out;
  }
}

/** Encodes a name, preceded by its length. */
export function nameBytes(text: string): number[] {
  const bytes = new TextEncoder().encode(text);
  return [...leb(bytes.length), ...bytes];
}

/** Collects bytes in one growing buffer. */
export class Writer {
  #buffer: Uint8Array;
  #length = 0;

  constructor(capacity = 1024) {
    this.#buffer = new Uint8Array(capacity);
  }

  get length(): number {
    return this.#length;
  }

  push(bytes: ArrayLike<number>): void {
    const needed = this.#length + bytes.length;
    if (needed > this.#buffer.length) {
      const grown = new Uint8Array(Math.max(needed, this.#buffer.length * 2));
      grown.set(this.#buffer.subarray(0, this.#length));
      this.#buffer = grown;
    }
    this.#buffer.set(bytes, this.#length);
    this.#length = needed;
  }

  bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }
}
