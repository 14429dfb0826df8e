import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { allowedCount, uniform } from '../backends/draw.ts';
import type { CallFault } from '../memory/fault.ts';
import type { Sampler } from '../protocol/calls.ts';
import { candidatesWanted, checkSampler, pick } from './sampler.ts';

const GREEDY: Sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };

/**
 * Chooses by the plain definition: it applies one filter after another and normalises the probabilities after each. `u` is the random number.
 * `margin` is the smallest distance of a compared value from its boundary: a cut, or `u`.
 */
function oracle(
  sampler: Sampler,
  logProbabilities: readonly number[],
  u: number,
): { choice: number; margin: number; survivors: number } {
  let candidates = logProbabilities.map((logProbability, index) => ({
    index,
    weight: Math.exp(logProbability / sampler.temperature),
  }));
  const normalised = (): typeof candidates => {
    const sum = candidates.reduce((total, { weight }) => total + weight, 0);
    return candidates.map(({ index, weight }) => ({ index, weight: weight / sum }));
  };
  if (sampler.topK > 0) candidates = candidates.slice(0, sampler.topK);
  candidates = normalised();
  let margin = Number.POSITIVE_INFINITY;
  if (sampler.topP < 1) {
    let reached = 0;
    let kept = 0;
    while (kept < candidates.length && reached < sampler.topP) {
      reached += candidates[kept++]!.weight;
      margin = Math.min(margin, Math.abs(reached - sampler.topP));
    }
    candidates = candidates.slice(0, Math.max(1, kept));
    candidates = normalised();
  }
  if (sampler.minP > 0) {
    const floor = sampler.minP * candidates[0]!.weight;
    for (const { weight } of candidates)
      if (weight !== candidates[0]!.weight) margin = Math.min(margin, Math.abs(weight - floor));
    candidates = candidates.filter(({ weight }, i) => i === 0 || weight >= floor);
    candidates = normalised();
  }
  let reached = 0;
  let choice = candidates.at(-1)!.index;
  for (const { index, weight } of candidates) {
    reached += weight;
    margin = Math.min(margin, Math.abs(reached - u));
    if (u < reached) {
      choice = index;
      break;
    }
  }
  return { choice, margin, survivors: candidates.length };
}

function logSoftmaxSorted(logits: readonly number[]): Float32Array {
  const sorted = logits.toSorted((a, b) => b - a);
  const sum = sorted.reduce((total, logit) => total + Math.exp(logit), 0);
  return Float32Array.from(sorted, (logit) => logit - Math.log(sum));
}

test('temperature 0 picks the most probable token and ignores the other settings', () => {
  const logProbabilities = logSoftmaxSorted([1, 2, 3]);
  assert.equal(pick({ ...GREEDY, topP: 0.1, minP: 2, seed: 9 }, logProbabilities, 0, 3, 4), 0);
  assert.equal(candidatesWanted(GREEDY, 256), 1);
});

test('`pick` agrees with the plain definition on random distributions and samplers', () => {
  const sampler = fc.record({
    temperature: fc.double({ min: 0.05, max: 4, noNaN: true }),
    topK: fc.nat({ max: 50 }),
    topP: fc.oneof(fc.constant(1), fc.double({ min: 0.01, max: 1, noNaN: true })),
    minP: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 1, noNaN: true })),
    seed: fc.integer({ min: 0, max: 0xffffffff }),
  });
  const logits = fc.array(fc.double({ min: -8, max: 8, noNaN: true }), { minLength: 2, maxLength: 40, size: 'max' });
  let compared = 0;
  fc.assert(
    fc.property(sampler, logits, fc.nat({ max: 100_000 }), (settings, values, position) => {
      const logProbabilities = logSoftmaxSorted(values);
      // Candidates may sit anywhere in a batch's output.
      const padded = new Float32Array(logProbabilities.length + 7);
      padded.set(logProbabilities, 7);
      const expected = oracle(settings, [...logProbabilities], uniform(settings.seed, position));
      // If a cut or the draw falls on a boundary within rounding, both neighbours are right.
      if (expected.margin < 1e-9) return;
      compared++;
      assert.equal(pick(settings, padded, 7, logProbabilities.length, position), expected.choice);
    }),
    { seed: 42, numRuns: 5000 },
  );
  assert.ok(compared > 4000);
});

test('each cut keeps at least the most probable token', () => {
  const logProbabilities = logSoftmaxSorted([0, 0, 0, 0]);
  for (const cut of [{ topK: 1 }, { topP: 1e-9 }, { minP: 1 }]) {
    const settings = { ...GREEDY, temperature: 1, ...cut };
    const chosen = new Set(
      Array.from({ length: 200 }, (_, position) => pick(settings, logProbabilities, 0, 4, position)),
    );
    assert.ok(chosen.has(0));
    if ('minP' in cut) assert.equal(chosen.size, 4, 'equal probabilities all pass a min-p of 1');
    else assert.deepEqual([...chosen], [0]);
  }
});

test('draws are uniform, and depend on the seed and the position only', () => {
  const bins = new Array(16).fill(0);
  const draws = 64_000;
  for (let i = 0; i < draws; i++) bins[Math.floor(uniform(i % 250, Math.floor(i / 250)) * 16)]++;
  // 16 bins have 15 degrees of freedom: uniform draws exceed a chi square of 37.7 once in a thousand.
  const chiSquare = bins.reduce((sum, count) => sum + (count - draws / 16) ** 2 / (draws / 16), 0);
  assert.ok(chiSquare < 37.7, `chi square ${chiSquare}`);
  assert.equal(uniform(7, 9), uniform(7, 9));
  assert.notEqual(uniform(7, 9), uniform(9, 7));
  for (let i = 0; i < 1000; i++) assert.ok(uniform(i, 0xffffffff - i) < 1);
});

test('frequencies follow the distribution', () => {
  const logProbabilities = Float32Array.from([0.5, 0.3, 0.2], Math.log);
  const counts = [0, 0, 0];
  for (let position = 0; position < 30_000; position++) {
    counts[pick({ ...GREEDY, temperature: 1, seed: 3 }, logProbabilities, 0, 3, position)]!++;
  }
  for (const [i, expected] of [0.5, 0.3, 0.2].entries()) assert.ok(Math.abs(counts[i]! / 30_000 - expected) < 0.01);
});

test('invalid samplers are refused with the name and value of the invalid field', () => {
  const bad: [Partial<Sampler>, RegExp][] = [
    [{ temperature: Number.NaN }, /temperature NaN/],
    [{ temperature: -1 }, /temperature -1/],
    [{ temperature: Number.POSITIVE_INFINITY }, /temperature Infinity/],
    [{ topP: 0 }, /top-p 0/],
    [{ topP: Number.NaN }, /top-p NaN/],
    [{ topP: 1.5 }, /top-p 1.5/],
    [{ minP: -0.5 }, /min-p -0.5/],
    [{ minP: Number.NaN }, /min-p NaN/],
  ];
  for (const [change, message] of bad) {
    assert.throws(
      () => checkSampler({ ...GREEDY, temperature: 1, ...change }),
      (error: CallFault) => {
        assert.equal(error.error.tag, 'invalid-argument');
        assert.match(error.message, message);
        return true;
      },
    );
  }
  checkSampler({ ...GREEDY, topP: Number.NaN });
  assert.equal(candidatesWanted({ ...GREEDY, temperature: 1 }, 256), 256);
  assert.equal(candidatesWanted({ ...GREEDY, temperature: 1, topK: 40 }, 256), 40);
  assert.equal(candidatesWanted({ ...GREEDY, temperature: 1, topK: 5000 }, 256), 256);
});

test('candidates that are not allowed are never picked', () => {
  const excluded = Number.NEGATIVE_INFINITY;
  const logProbabilities = Float32Array.of(-1, -0.2, -1.7, excluded, excluded);
  assert.equal(allowedCount(logProbabilities, 1, 4), 2);
  assert.equal(allowedCount(logProbabilities, 0, 3), 3);
  assert.equal(allowedCount(Float32Array.of(excluded, excluded), 0, 2), 1, 'one is always left');
  for (let seed = 0; seed < 200; seed++) {
    const sampler = { temperature: 1e5, topK: 0, topP: 1, minP: 0, seed };
    assert.ok(pick(sampler, logProbabilities, 1, 4, 0) < 2);
  }
});
