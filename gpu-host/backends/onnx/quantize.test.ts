import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { dequantizeMatrix } from '../testing/dequantize.ts';
import { Random } from '../testing/scenario.ts';
import { quantizeMatrix } from './weights.ts';

const BLOCK = 32;

describe('quantizeMatrix', () => {
  const matrices = fc.record({
    seed: fc.integer(),
    rows: fc.integer({ min: 1, max: 5 }),
    columns: fc.integer({ min: 1, max: 100 }),
  });

  test('8 bits: no weight moves by more than half a step of its block', () => {
    const property = fc.property(matrices, ({ seed, rows, columns }) => {
      const weight = new Random(seed).floats(rows * columns);
      const back = dequantizeMatrix(quantizeMatrix(weight, rows, columns, 8, BLOCK), rows, columns, 8, BLOCK);
      weight.forEach((value, i) => {
        const column = i % columns;
        const blockStart = i - (column % BLOCK);
        const rowEnd = i - column + columns;
        const block = weight.subarray(blockStart, Math.min(blockStart + BLOCK, rowEnd));
        // A block's levels reach from -127 to 127, and its largest magnitude has the level 127.
        const step = Math.max(...block.map(Math.abs)) / 127;
        assert.ok(Math.abs(back[i] - value) <= step * 0.5001, `${value} became ${back[i]}, with a step of ${step}`);
      });
    });
    fc.assert(property, { seed: 1, numRuns: 100 });
  });

  test('4 bits: the error is at most that of scales that put the largest magnitude at level 8', () => {
    const property = fc.property(matrices, ({ seed, rows, columns }) => {
      const weight = new Random(seed).floats(rows * columns);
      const back = dequantizeMatrix(quantizeMatrix(weight, rows, columns, 4, BLOCK), rows, columns, 4, BLOCK);
      let plainError = 0;
      let error = 0;
      for (let row = 0; row < rows; row++) {
        for (let start = 0; start < columns; start += BLOCK) {
          const from = row * columns + start;
          const to = row * columns + Math.min(start + BLOCK, columns);
          const scale = weight.slice(from, to).reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 8;
          for (let i = from; i < to; i++) {
            plainError += (Math.max(-8, Math.min(7, Math.round(weight[i] / scale))) * scale - weight[i]) ** 2;
            error += (back[i] - weight[i]) ** 2;
          }
        }
      }
      assert.ok(error <= plainError * 1.0001 + 1e-12, `${error} against ${plainError}`);
    });
    fc.assert(property, { seed: 2, numRuns: 100 });
  });

  test('zeros stay zeros', () => {
    for (const bits of [8, 4] as const) {
      const quantized = quantizeMatrix(new Float32Array(40), 1, 40, bits, BLOCK);
      assert.ok(dequantizeMatrix(quantized, 1, 40, bits, BLOCK).every((value) => value === 0));
    }
  });
});
