import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ModelConfig, plainTraits } from '#gpu-host/models/config.ts';
import { rotaryFrequencies } from './rotary.ts';

const BASE = { ...plainTraits(8), headDim: 8, ropeTheta: 10_000, ropeScaling: null } as unknown as ModelConfig;

test('frequencies fall geometrically from one', () => {
  const frequencies = rotaryFrequencies(BASE);
  assert.deepEqual(
    Array.from(frequencies, (frequency) => Number(frequency.toPrecision(12))),
    [1, 0.1, 0.01, 0.001],
  );
});

test("Llama 3's scaling keeps high frequencies, divides low ones and blends between", () => {
  const frequencies = rotaryFrequencies({
    ...BASE,
    rotaryDim: 128,
    ropeTheta: 500_000,
    ropeScaling: {
      type: 'llama3',
      factor: 8,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
      originalContextLength: 8192,
    },
  });
  // Llama 3.1 values from transformers' `_compute_llama3_parameters`, which blends wavelengths of 2,048 to 8,192 tokens.
  const expected: Readonly<Record<number, number>> = {
    0: 1,
    28: 0.0032114459947525913,
    30: 0.0013718935677611381,
    34: 0.00017850781276799638,
    35: 9.556212353964683e-5,
    63: 3.068925988914511e-7,
  };
  for (const [index, value] of Object.entries(expected)) {
    const actual = frequencies[Number(index)];
    assert.ok(Math.abs(actual / value - 1) < 1e-9, `${index}: ${actual}`);
  }
});

test('linear scaling divides all frequencies, as `_compute_linear_scaling_rope_parameters` of transformers does', () => {
  const frequencies = rotaryFrequencies({ ...BASE, ropeScaling: { type: 'linear', factor: 4 } });
  assert.deepEqual(
    Array.from(frequencies, (frequency) => Number(frequency.toPrecision(12))),
    [0.25, 0.025, 0.0025, 0.00025],
  );
});
