import { Duplex } from 'node:stream';

/** One end of a pair of streams. The bytes that it writes reach the other end in pieces of random sizes, in different turns of the event loop. */
class SplitEnd extends Duplex {
  peer: SplitEnd | null = null;
  /** Number of writes since the pair was made. */
  writes = 0;
  readonly #random: () => number;

  constructor(random: () => number) {
    super({ readableHighWaterMark: 1 << 20 });
    this.#random = random;
  }

  override _read(): void {
    // `_write` pushes the pieces.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.writes++;
    const deliver = (rest: Buffer): void => {
      const size = Math.min(rest.length, 1 + Math.floor(this.#random() ** 3 * 200_000));
      this.peer?.push(rest.subarray(0, size));
      if (size < rest.length && !this.destroyed) setImmediate(deliver, rest.subarray(size));
      else done();
    };
    setImmediate(deliver, chunk);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const { peer } = this;
    this.peer = null;
    if (peer && !peer.destroyed) setImmediate(() => peer.destroy());
    done(error);
  }
}

/** @param random determines the sizes of the pieces; the constant 0.99 makes pieces of 194 KB */
export function splitPair(random: () => number): readonly [SplitEnd, SplitEnd] {
  const [a, b] = [new SplitEnd(random), new SplitEnd(random)];
  a.peer = b;
  b.peer = a;
  return [a, b];
}
