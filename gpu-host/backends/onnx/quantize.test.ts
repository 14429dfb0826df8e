import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Random } from '../testing/scenario.ts';
import { type QuantizedMatrix, quantizeMatrix } from './quantize.ts';

const BLOCK = 32;

/** The weights that `MatMulNBits` multiplies by. */
function dequantize({ values, scales }: QuantizedMatrix, rows: number, columns: number, bits: 8 | 4): Float64Array {
  const blocks = Math.ceil(columns / BLOCK);
  const result = new Float64Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const index = row * blocks * BLOCK + column;
      const level = bits === 8 ? values[index] - 128 : ((values[index >> 1] >> ((index & 1) * 4)) & 15) - 8;
      result[row * columns + column] = level * scales[row * blocks + Math.floor(column / BLOCK)];
    }
  }
  return result;
}

describe('quantizeMatrix', () => {
  const matrices = fc.record({
    seed: fc.integer(),
    rows: fc.integer({ min: 1, max: 5 }),
    columns: fc.integer({ min: 1, max: 100 }),
  });

  test('8 bits: no weight moves by more than half a step of its block', () => {
    const property = fc.property(matrices, ({ seed, rows, columns }) => {
      const weight = new Random(seed).floats(rows * columns);
      const quantized = quantizeMatrix(weight, rows, columns, 8, BLOCK);
      const back = dequantize(quantized, rows, columns, 8);
      const blocks = Math.ceil(columns / BLOCK);
      weight.forEach((value, i) => {
        const block = Math.floor(i / columns) * blocks + Math.floor((i % columns) / BLOCK);
        assert.ok(Math.abs(back[i] - value) <= quantized.scales[block] * 0.5001);
      });
    });
    fc.assert(property, { seed: 1, numRuns: 100 });
  });

  test('4 bits: never worse than scaling to the largest magnitude', () => {
    const property = fc.property(matrices, ({ seed, rows, columns }) => {
      const weight = new Random(seed).floats(rows * columns);
      const back = dequantize(quantizeMatrix(weight, rows, columns, 4, BLOCK), rows, columns, 4);
      let plain = 0;
      let ours = 0;
      for (let row = 0; row < rows; row++) {
        for (let start = 0; start < columns; start += BLOCK) {
          const from = row * columns + start;
          const to = row * columns + Math.min(start + BLOCK, columns);
          const scale = weight.slice(from, to).reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 8;
          for (let i = from; i < to; i++) {
            plain += (Math.max(-8, Math.min(7, Math.round(weight[i] / scale))) * scale - weight[i]) ** 2;
            ours += (back[i] - weight[i]) ** 2;
          }
        }
      }
      assert.ok(ours <= plain * 1.0001 + 1e-12, `${ours} against ${plain}`);
    });
    fc.assert(property, { seed: 2, numRuns: 100 });
  });

  test('zeros stay zeros', () => {
    for (const bits of [8, 4] as const) {
      const quantized = quantizeMatrix(new Float32Array(40), 1, 40, bits, BLOCK);
      assert.ok(dequantize(quantized, 1, 40, bits).every((value) => value === 0));
    }
  });
});
