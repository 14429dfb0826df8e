import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { InferletError } from '../errors.ts';
import {
  custom,
  type Distribution,
  draw,
  greedy,
  minP,
  penalizeRepetition,
  sampler,
  temperature,
  topK,
  topP,
  uniform,
} from './samplers.ts';

/** A distribution of these probabilities over tokens 10, 11, … */
function distribution(...probabilities: number[]): Distribution {
  return { tokens: probabilities.map((_, i) => 10 + i), logProbabilities: probabilities.map(Math.log) };
}

/** The share of each token when the random numbers are spread evenly. Exact up to their spacing. */
function frequencies(from: Distribution, options: Parameters<typeof draw>[1], draws = 1000): Record<number, number> {
  const counts: Record<number, number> = {};
  for (let i = 0; i < draws; i++) {
    const token = draw(from, options, (i + 0.5) / draws);
    counts[token] = (counts[token] ?? 0) + 1 / draws;
  }
  return counts;
}

function near(actual: Record<number, number>, expected: Record<number, number>): void {
  assert.deepEqual(Object.keys(actual).sort(), Object.keys(expected).sort());
  for (const [token, share] of Object.entries(expected)) {
    assert.ok(
      Math.abs((actual[Number(token)] ?? 0) - share) < 0.003,
      `token ${token} has ${actual[Number(token)]} instead of ${share}`,
    );
  }
}

describe('draw', () => {
  const three = distribution(0.5, 0.3, 0.2);

  it('follows the probabilities', () => near(frequencies(three, {}), { 10: 0.5, 11: 0.3, 12: 0.2 }));

  it('takes the most probable at temperature 0', () => near(frequencies(three, { temperature: 0 }), { 10: 1 }));

  it('sharpens the distribution at a temperature below 1', () => {
    // The temperature T turns p into p^(1/T), here p², which is then normalised.
    const squares = 0.25 + 0.09 + 0.04;
    near(frequencies(three, { temperature: 0.5 }), { 10: 0.25 / squares, 11: 0.09 / squares, 12: 0.04 / squares });
  });

  // Two kept tokens with probabilities 0.5 and 0.3 have shares of 0.5 / 0.8 and 0.3 / 0.8.
  it('keeps the k most probable tokens', () => near(frequencies(three, { topK: 2 }), { 10: 0.625, 11: 0.375 }));

  it('keeps the smallest set that reaches p', () => {
    near(frequencies(three, { topP: 0.5 }), { 10: 1 });
    near(frequencies(three, { topP: 0.51 }), { 10: 0.625, 11: 0.375 });
    near(frequencies(three, { topP: 1e-9 }), { 10: 1 });
  });

  it('removes tokens below a fraction of the best one', () => {
    near(frequencies(three, { minP: 0.5 }), { 10: 0.625, 11: 0.375 });
    near(frequencies(three, { minP: 1 }), { 10: 1 });
  });

  // After top-k, token 10 alone has a share of 0.625.
  it('applies top-p after top-k', () => near(frequencies(three, { topK: 2, topP: 0.62 }), { 10: 1 }));

  it('draws only tokens that top-k and min-p keep, for random numbers', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 1e-6, max: 1, noNaN: true }), { minLength: 1, maxLength: 40, size: 'max' }),
        fc.record({
          temperature: fc.double({ min: 0.05, max: 5, noNaN: true }),
          topK: fc.nat({ max: 50 }),
          topP: fc.double({ min: 0.01, max: 1, noNaN: true }),
          minP: fc.double({ min: 0, max: 1, noNaN: true }),
        }),
        fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
        (weights, options, random) => {
          const sum = weights.reduce((a, b) => a + b, 0);
          const probabilities = weights.map((weight) => weight / sum).sort((a, b) => b - a);
          const token = draw(distribution(...probabilities), options, random);
          const rank = token - 10;
          assert.ok(rank >= 0 && rank < probabilities.length);
          if (options.topK > 0) assert.ok(rank < options.topK);
          const relative = (probabilities[rank]! / probabilities[0]!) ** (1 / options.temperature);
          assert.ok(rank === 0 || relative >= options.minP - 1e-9);
        },
      ),
      { seed: 11, numRuns: 500 },
    );
  });

  it('refuses an empty distribution', () => {
    assert.throws(() => draw({ tokens: [], logProbabilities: [] }, {}, 0), { code: 'invalid-argument' });
  });
});

describe('samplers', () => {
  it('are data with a value for every option', () => {
    assert.deepEqual(greedy(), { kind: 'device', temperature: 0, topK: 0, topP: 1, minP: 0, seed: undefined });
    assert.equal(temperature(0.7, { seed: 3 }).seed, 3);
    assert.equal(topK(5).topK, 5);
    assert.equal(topP(0.9, { temperature: 2 }).temperature, 2);
    assert.equal(minP(0.1).minP, 0.1);
  });

  it('refuse values out of range, with the name of the value', () => {
    const calls: readonly (readonly [name: string, call: () => unknown])[] = [
      ['temperature', () => sampler({ temperature: -1 })],
      ['temperature', () => sampler({ temperature: Number.NaN })],
      ['topK', () => sampler({ topK: 1.5 })],
      ['topP', () => sampler({ topP: 0 })],
      ['minP', () => sampler({ minP: 2 })],
      ['seed', () => sampler({ seed: 2 ** 32 })],
      ['candidates', () => custom(() => 0, { candidates: 257 })],
      ['penalty', () => penalizeRepetition(distribution(1), [10], 0)],
    ];
    for (const [name, call] of calls) {
      assert.throws(
        call,
        (error: unknown) =>
          error instanceof InferletError && error.code === 'invalid-argument' && error.message.startsWith(name),
      );
    }
  });
});

describe('penalizeRepetition', () => {
  it('divides the scores of earlier tokens and sorts again', () => {
    const penalized = penalizeRepetition(distribution(0.5, 0.3, 0.2), [10], 4);
    assert.deepEqual(penalized.tokens, [11, 12, 10]);
    assert.ok(Math.abs(Math.exp(penalized.logProbabilities[2]!) - 0.5 / 4) < 1e-12);
  });
});

describe('uniform', () => {
  it('gives the same number for the same seed and position', () => assert.equal(uniform(5, 17), uniform(5, 17)));

  it('spreads evenly over positions and over seeds', () => {
    for (const at of [(i: number) => uniform(42, i), (i: number) => uniform(i, 7)]) {
      const buckets = new Array<number>(10).fill(0);
      for (let i = 0; i < 10_000; i++) {
        const value = at(i);
        assert.ok(value >= 0 && value < 1);
        buckets[Math.floor(value * 10)]! += 1;
      }
      // The count of a bucket is binomial (10,000 draws at 0.1) with a standard deviation of 30. The bound is six of these.
      for (const count of buckets) assert.ok(Math.abs(count - 1000) < 180, String(buckets));
    }
  });
});
