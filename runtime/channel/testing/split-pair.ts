import { Duplex } from 'node:stream';

/** Seeded random numbers from 0 to 1 (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b_79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}

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
