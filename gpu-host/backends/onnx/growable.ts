/** A reused buffer that grows by doubling. Each method returns a view from the buffer's start; growth drops the content. */
export class Growable {
  readonly #elementBytes: number;
  #buffer = new ArrayBuffer(1024);

  constructor(elementBytes: number) {
    this.#elementBytes = elementBytes;
  }

  uint32(length: number): Uint32Array {
    return new Uint32Array(this.#ensure((length * 4) / this.#elementBytes), 0, length);
  }

  int32(length: number): Int32Array {
    return new Int32Array(this.#ensure(length), 0, length);
  }

  float32(length: number): Float32Array {
    return new Float32Array(this.#ensure(length), 0, length);
  }

  int64(length: number): BigInt64Array {
    return new BigInt64Array(this.#ensure(length), 0, length);
  }

  #ensure(elements: number): ArrayBuffer {
    const bytes = elements * this.#elementBytes;
    if (this.#buffer.byteLength < bytes) {
      let size = this.#buffer.byteLength;
      while (size < bytes) size *= 2;
      this.#buffer = new ArrayBuffer(size);
    }
    return this.#buffer;
  }
}
