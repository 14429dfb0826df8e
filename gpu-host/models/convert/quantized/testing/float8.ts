import { floats, type QuantizedMatrix, type Raw, type Scheme } from './write.ts';

/** Ways to store 8-bit floats. */
interface Float8Options {
  readonly quantization: (plain: readonly string[]) => Readonly<Record<string, unknown>>;
  /** End of the scales' name. */
  readonly end: string;
  readonly type: 'F32' | 'F16' | 'BF16';
  /** Rows and columns that share a scale; Infinity for all. */
  readonly tile: readonly [rows: number, columns: number];
  /** The scales' shape, given the counts of tiles. */
  readonly shape: (rows: number, columns: number) => readonly number[];
  /** Further tensors of each matrix. */
  readonly extra?: Readonly<Record<string, Raw>>;
}

/** A scheme that scales each tile so that its largest magnitude becomes 448, the largest e4m3 value. */
export function float8Scheme({ quantization, end, type, tile, shape, extra = {} }: Float8Options): Scheme {
  const quantize = (weights: Float32Array, rows: number, columns: number): QuantizedMatrix => {
    const [tileRows, tileColumns] = tile.map((size, i) => Math.min(size, i === 0 ? rows : columns)) as [number, number];
    const tilesAcross = Math.ceil(columns / tileColumns);
    const tilesDown = Math.ceil(rows / tileRows);
    const tileOf = (i: number) =>
      Math.trunc(Math.trunc(i / columns) / tileRows) * tilesAcross + Math.trunc((i % columns) / tileColumns);
    const largest = new Float64Array(tilesDown * tilesAcross);
    weights.forEach((value, i) => {
      largest[tileOf(i)] = Math.max(largest[tileOf(i)] as number, Math.abs(value));
    });
    const scales = floats(
      largest.map((value) => value / 448),
      type,
      shape(tilesDown, tilesAcross),
    );
    const bytes = new Uint8Array(weights.length);
    const values = new Float64Array(weights.length);
    weights.forEach((value, i) => {
      const scale = scales.values[tileOf(i)] as number;
      bytes[i] = nearestByte(value / scale);
      values[i] = decoded(bytes[i]) * scale;
    });
    return {
      parts: { weight: { dtype: 'F8_E4M3', shape: [rows, columns], bytes }, [end]: scales.raw, ...extra },
      values,
    };
  };
  return { quantization, quantize };
}

/**
 * The value of an e4m3 byte, by way of float16. Float16 has 7 more bits of fraction, so the bits move up by 7. Its exponent's bias is 8 larger, so
 * the result is multiplied by 2⁸ = 256.
 */
function decoded(byte: number): number {
  const word = Uint16Array.of(((byte & 128) << 8) | ((byte & 127) << 7));
  return (new Float16Array(word.buffer)[0] as number) * 256;
}

const MAGNITUDES = Array.from({ length: 127 }, (_, byte) => decoded(byte));

/** The byte whose value is nearest: a binary search finds the first magnitude that is not below the value's. */
function nearestByte(value: number): number {
  let [lower, upper] = [0, MAGNITUDES.length - 1];
  while (lower < upper) {
    const middle = (lower + upper) >> 1;
    if ((MAGNITUDES[middle] as number) < Math.abs(value)) lower = middle + 1;
    else upper = middle;
  }
  const distance = (byte: number) => Math.abs((MAGNITUDES[byte] as number) - Math.abs(value));
  const best = upper > 0 && distance(upper - 1) < distance(upper) ? upper - 1 : upper;
  return value < 0 ? best | 128 : best;
}
