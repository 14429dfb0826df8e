/** A matrix in blocks of columns: `values` is `[rows, blocks, blockSize × bits / 8]`, `scales` is `[rows × blocks]`. */
export interface QuantizedMatrix {
  readonly values: Uint8Array;
  readonly scales: Float32Array;
}

/** 8-bit and 4-bit values are unsigned around a middle zero point, which ONNX Runtime's `MatMulNBits` assumes when given no zero points. */
const ZERO_POINT = { 8: 128, 4: 8 } as const;

/**
 * Quantises a row-major matrix symmetrically in blocks of `blockSize` columns, each with a scale of its own; the last block of a row is
 * filled up with zeros. 8-bit blocks are scaled to their largest magnitude; for a 4-bit block, {@link fourBitScale} searches the scale.
 */
export function quantizeMatrix(
  weight: Float32Array,
  rows: number,
  columns: number,
  bits: 8 | 4,
  blockSize: number,
): QuantizedMatrix {
  const blocks = Math.ceil(columns / blockSize);
  const blockBytes = (blockSize * bits) / 8;
  const values = new Uint8Array(rows * blocks * blockBytes);
  const scales = new Float32Array(rows * blocks);
  const zero = ZERO_POINT[bits];
  for (let row = 0; row < rows; row++) {
    for (let block = 0; block < blocks; block++) {
      const start = row * columns + block * blockSize;
      const length = Math.min(blockSize, columns - block * blockSize);
      const scale = bits === 8 ? peak(weight, start, length).magnitude / 127 : fourBitScale(weight, start, length);
      const index = row * blocks + block;
      scales[index] = scale;
      const inverse = scale === 0 ? 0 : 1 / scale;
      for (let k = 0; k < blockSize; k++) {
        const level = k < length ? clampLevel(Math.round(weight[start + k] * inverse), zero) + zero : zero;
        if (bits === 8) values[index * blockBytes + k] = level;
        else values[index * blockBytes + (k >> 1)] |= level << ((k & 1) * 4);
      }
    }
  }
  return { values, scales };
}

function clampLevel(level: number, zero: number): number {
  return Math.max(-zero, Math.min(zero - 1, level));
}

/** The weight of the largest magnitude. */
function peak(weight: Float32Array, start: number, length: number): { magnitude: number; value: number } {
  let value = 0;
  for (let k = 0; k < length; k++) if (Math.abs(weight[start + k]) > Math.abs(value)) value = weight[start + k];
  return { magnitude: Math.abs(value), value };
}

/** Finds the scale with the least squared error. Levels reach from -8 to 7. The tried scales put the largest weight at ±6.5 to ±9; some clip it. */
function fourBitScale(weight: Float32Array, start: number, length: number): number {
  const { value } = peak(weight, start, length);
  if (value === 0) return 0;
  let best = 0;
  let leastError = Number.POSITIVE_INFINITY;
  for (let divisor = 6.5; divisor <= 9; divisor += 0.25) {
    for (const scale of [-value / divisor, value / divisor]) {
      let error = 0;
      for (let k = 0; k < length; k++) {
        const difference = weight[start + k] - clampLevel(Math.round(weight[start + k] / scale), 8) * scale;
        error += difference * difference;
      }
      if (error < leastError) {
        leastError = error;
        best = scale;
      }
    }
  }
  return best;
}
