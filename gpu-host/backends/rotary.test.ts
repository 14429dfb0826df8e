import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { rotaryFrequencies } from './rotary.ts';

const BASE = { headDim: 8, ropeTheta: 10_000, ropeScaling: null } as unknown as ModelConfig;

test('frequencies fall geometrically from one', () => {
  const frequencies = rotaryFrequencies(BASE);
  assert.deepEqual(
    Array.from(frequencies, (frequency) => Number(frequency.toPrecision(12))),
    [1, 0.1, 0.01, 0.001],
  );
});

test("Llama 3's scaling keeps high frequencies, divides low ones and blends between", () => {
  // Llama 3.1: the values of transformers' `_compute_llama3_parameters` at the same indices.
  const frequencies = rotaryFrequencies({
    ...BASE,
    headDim: 128,
    ropeTheta: 500_000,
    ropeScaling: { factor: 8, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalContextLength: 8192 },
  });
  const plain = (i: number) => 500_000 ** (-i / 64);
  const near = (actual: number, expected: number) => assert.ok(Math.abs(actual / expected - 1) < 1e-12, `${actual}`);
  near(frequencies[0], 1);
  near(frequencies[28], plain(28));
  near(frequencies[40], plain(40) / 8);
  near(frequencies[63], plain(63) / 8);
  // Index 30: a wavelength of 2949 tokens lies between 8192 / 4 and 8192 / 1.
  const wavelength = (2 * Math.PI) / plain(30);
  assert.ok(wavelength > 2048 && wavelength < 8192);
  const smooth = (8192 / wavelength - 1) / 3;
  near(frequencies[30], (1 - smooth) * (plain(30) / 8) + smooth * plain(30));
});
