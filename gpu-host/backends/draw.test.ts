import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Draw } from './backend.ts';
import { allowedCount, drawFromAll, drawPlace, drawPlaceOfFirst, uniform } from './draw.ts';

const PLAIN: Draw = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 0, position: 0 };

/**
 * Chooses by the plain definition: it applies one filter after another and normalises the probabilities after each. `u` is the random number.
 * `margin` is the smallest distance of a compared value from its boundary: a cut, or `u`.
 */
function oracle(
  sampler: Draw,
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

test('a draw agrees with the plain definition on random distributions', () => {
  const draws = fc.record({
    temperature: fc.double({ min: 0.05, max: 4, noNaN: true }),
    topK: fc.nat({ max: 50 }),
    topP: fc.oneof(fc.constant(1), fc.double({ min: 0.01, max: 1, noNaN: true })),
    minP: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 1, noNaN: true })),
    seed: fc.integer({ min: 0, max: 0xffffffff }),
    position: fc.nat({ max: 100_000 }),
  });
  const logits = fc.array(fc.double({ min: -8, max: 8, noNaN: true }), { minLength: 2, maxLength: 40, size: 'max' });
  let compared = 0;
  fc.assert(
    fc.property(draws, logits, (draw, values) => {
      const logProbabilities = logSoftmaxSorted(values);
      // Candidates may sit anywhere in a batch's output.
      const padded = new Float32Array(logProbabilities.length + 7);
      padded.set(logProbabilities, 7);
      const expected = oracle(draw, [...logProbabilities], uniform(draw.seed, draw.position));
      // If a cut or the draw falls on a boundary within rounding, both neighbours are right.
      if (expected.margin < 1e-9) return;
      compared++;
      assert.equal(drawPlace(draw, padded, 7, logProbabilities.length), expected.choice);
    }),
    { seed: 42, numRuns: 5000 },
  );
  assert.ok(compared > 4000);
});

test('each cut keeps at least the most probable token', () => {
  const logProbabilities = logSoftmaxSorted([0, 0, 0, 0]);
  for (const cut of [{ topK: 1 }, { topP: 1e-9 }, { minP: 1 }]) {
    const chosen = new Set(
      Array.from({ length: 200 }, (_, position) => drawPlace({ ...PLAIN, ...cut, position }, logProbabilities, 0, 4)),
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
    counts[drawPlace({ ...PLAIN, seed: 3, position }, logProbabilities, 0, 3)]!++;
  }
  for (const [i, expected] of [0.5, 0.3, 0.2].entries()) assert.ok(Math.abs(counts[i]! / 30_000 - expected) < 0.01);
});

test('candidates that are not allowed are never picked', () => {
  const excluded = Number.NEGATIVE_INFINITY;
  const logProbabilities = Float32Array.of(-1, -0.2, -1.7, excluded, excluded);
  assert.equal(allowedCount(logProbabilities, 1, 4), 2);
  assert.equal(allowedCount(logProbabilities, 0, 3), 3);
  assert.equal(allowedCount(Float32Array.of(excluded, excluded), 0, 2), 1, 'one is always left');
  for (let seed = 0; seed < 200; seed++) {
    assert.ok(drawPlace({ ...PLAIN, temperature: 1e5, seed }, logProbabilities, 1, 4) < 2);
  }
});

test('a draw from the whole vocabulary is the same from the first tokens, where they decide it, and from all logits', () => {
  const logit = fc.oneof(
    fc.double({ min: -8, max: 8, noNaN: true }),
    // Equal logits, whose order is that of their ids, and tokens that are not allowed.
    fc.integer({ min: -2, max: 2 }),
    fc.constant(Number.NEGATIVE_INFINITY),
  );
  const rows = fc.array(logit, { minLength: 2, maxLength: 120, size: 'max' });
  const draws = fc.record({
    temperature: fc.oneof(fc.double({ min: 0.05, max: 4, noNaN: true }), fc.constant(1e6)),
    topK: fc.oneof(fc.constant(0), fc.nat({ max: 130 })),
    topP: fc.oneof(fc.constant(1), fc.double({ min: 0.01, max: 1, noNaN: true })),
    // Not `fc.double`, of which most values are tiny.
    minP: fc.oneof(
      fc.constant(0),
      fc.integer({ min: 1, max: 1000 }).map((n) => (n / 1000) ** 2),
    ),
    seed: fc.integer({ min: 0, max: 0xffffffff }),
    position: fc.nat({ max: 100_000 }),
  });
  const seen = { compared: 0, decided: 0, open: 0, behind: 0 };
  fc.assert(
    fc.property(draws, rows, fc.integer({ min: 1, max: 40 }), (draw, values, listed) => {
      const logits = Float32Array.from(values);
      const order = [...logits.keys()]
        .filter((token) => logits[token] !== Number.NEGATIVE_INFINITY)
        .toSorted((a, b) => logits[b]! - logits[a]! || a - b);
      if (order.length === 0) return;
      const sorted = order.map((token) => logits[token]!);
      const { choice, margin } = oracle(
        draw,
        sorted.map((each) => each - sorted[0]!),
        uniform(draw.seed, draw.position),
      );
      // The weights of whole rows have 32 bits.
      if (margin < 1e-5) return;
      seen.compared++;
      const weights = logits.map((each) => Math.exp((each - sorted[0]!) / draw.temperature));
      assert.equal(drawFromAll(draw, { logits, largest: sorted[0]!, weights }), order[choice]);
      if (listed >= order.length) return;
      const total = sorted.reduce((sum, each) => sum + Math.exp((each - sorted[0]!) / draw.temperature), 0);
      const place = drawPlaceOfFirst(draw, Float32Array.from(sorted.slice(0, listed)), 0, listed, total);
      if (place === undefined) seen.open++;
      else {
        assert.equal(place, choice);
        seen.decided++;
      }
      if (choice >= listed) {
        assert.equal(place, undefined);
        seen.behind++;
      } else if (draw.topK + draw.minP === 0 && draw.topP === 1)
        assert.equal(place, choice, 'no need for the other logits');
    }),
    { seed: 7, numRuns: 6000 },
  );
  assert.ok(
    seen.compared > 4000 && seen.decided > 1000 && seen.behind > 100 && seen.open > seen.behind,
    `${JSON.stringify(seen)}`,
  );
});
