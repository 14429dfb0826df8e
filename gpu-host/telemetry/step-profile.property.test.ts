import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '#test/harness/random.ts';
import { StepCurve, StepProfile } from './step-profile.ts';

const SIZES = [1, 2, 3, 8, 20, 64, 130, 400, 512];

/** The curve of a device, from steps of each size. */
function curveOf(time: (size: number) => number, sizes: readonly number[] = SIZES, rounds = 20): StepCurve {
  const curve = new StepCurve();
  for (let round = 0; round < rounds; round++) for (const size of sizes) curve.note(size, time(size));
  return curve;
}

test('the efficient size is the size at which a step takes twice the time of an empty step', () => {
  // Llama-2-7B on an RTX 3090: 21 ms and 0.23 ms a token, close to Table 3 of Ayo (ASPLOS '25).
  assert.equal(curveOf((size) => 21 + 0.23 * size).efficient(512), Math.round(21 / 0.23));
  assert.equal(curveOf((size) => 0.5 + 0.5 * size).efficient(512), 1);
  // A device that computes while it reads weights takes the longer of both times. At 400, these are 20 ms, twice the time of an empty step.
  const roofline = curveOf((size) => Math.max(10, size * 0.05)).efficient(512) ?? 0;
  assert.ok(roofline > 350 && roofline < 450, `${roofline}`);
  // Long contexts double the time of the largest steps. The result stays near 50, the efficient size without them.
  const slowed = curveOf((size) => (10 + 0.2 * size) * (size > 200 ? 2 : 1)).efficient(512) ?? 0;
  assert.ok(slowed > 30 && slowed < 50, `${slowed}`);
});

test('the efficient size is found from steps of random sizes whose times vary by a tenth', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const below = seeded(seed);
    const [fixedMs, eachMs] = [1 + below(40), (1 + below(100)) / 200];
    const curve = new StepCurve();
    for (let step = 0; step < 600; step++) {
      const size = 1 + below(2 ** (1 + below(9)));
      curve.note(size, (fixedMs + eachMs * size) * (0.9 + below(200) / 1000));
    }
    const found = curve.efficient(512) ?? 0;
    const wanted = Math.min(512, Math.max(1, fixedMs / eachMs));
    assert.ok(found > 0.75 * wanted - 1 && found < 1.35 * wanted + 1, `seed ${seed}: ${found} of ${wanted}`);
  }
});

test('a curve gives no efficient size while the measured sizes do not show it', () => {
  const time = (size: number) => 20 + 0.2 * size;
  assert.equal(new StepCurve().efficient(512), undefined);
  assert.equal(curveOf(time, [1, 2, 4]).efficient(512), undefined);
  // These sizes are too close to each other: a disturbance would turn the line.
  assert.equal(curveOf(time, [60, 100]).efficient(512), undefined);
  // Steps of up to 8 all take about the same time, and larger ones may, too.
  assert.equal(curveOf(time, [1, 2, 4, 8]).efficient(512), undefined);
  assert.equal(curveOf(time, [1, 8, 64]).efficient(512), 100);
  // No step within the limit takes twice the time of an empty one.
  assert.equal(curveOf(time, [1, 8, 64]).efficient(64), 64);
  assert.equal(curveOf(() => 20, [1, 8, 64]).efficient(128), 128);
  // A limit that is far above the measured sizes: larger steps may take longer.
  assert.equal(curveOf(() => 20, [1, 8, 64]).efficient(512), undefined);
});

test("a size's first step stops counting once it has a second one, and the curve follows a device that becomes slower", () => {
  const curve = curveOf((size) => 10 + 0.1 * size, SIZES, 1);
  for (let round = 0; round < 40; round++) for (const size of SIZES) curve.note(size, 10 + 0.2 * size);
  assert.equal(curve.efficient(512), 50);
  const disturbed = new StepCurve();
  for (const size of [1, 8, 64]) disturbed.note(size, 1000);
  for (const size of [1, 8, 64]) disturbed.note(size, 10 + 0.2 * size);
  assert.equal(disturbed.efficient(512), 50);
});

test('a profile keeps times by the inputs of all steps, and by the sequences of steps that only decode', () => {
  const profile = new StepProfile();
  profile.note(1, 1, 10);
  profile.note(4, 4, 11);
  profile.note(3, 90, 30);
  assert.deepEqual(profile.tokens.points, [
    { size: 1, ms: 10 },
    { size: 4, ms: 11 },
    { size: 90, ms: 30 },
  ]);
  assert.deepEqual(profile.sequences.points, [
    { size: 1, ms: 10 },
    { size: 4, ms: 11 },
  ]);
});

test('steps of at most the size within a time explore a device: none takes twice that time, and the size comes near the largest possible', () => {
  const [maxMs, most] = [5000, 512];
  for (let seed = 1; seed <= 300; seed++) {
    const below = seeded(seed);
    // From a small model to one that reads its weights for 4 s in each step.
    const [fixedMs, eachMs] = [below(4000), (1 + below(4000)) / 10];
    const curve = new StepCurve();
    let size = 1;
    for (let step = 0; step < 60; step++) {
      const ms = (fixedMs + eachMs * size) * (0.95 + below(100) / 1000);
      assert.ok(ms <= 2.2 * maxMs, `seed ${seed}: ${size} inputs took ${ms} ms`);
      curve.note(size, ms);
      size = Math.max(1, Math.min(most, Math.floor(curve.sizeWithin(maxMs))));
    }
    const best = Math.max(1, Math.min(most, Math.floor((maxMs - fixedMs) / eachMs)));
    assert.ok(size >= best / 2 - 1, `seed ${seed}: ${size} of ${best}`);
  }
});

test('the size within a time is 1 when no step is short enough, and unlimited before the first step', () => {
  const curve = new StepCurve();
  assert.equal(curve.sizeWithin(1), Number.POSITIVE_INFINITY);
  curve.note(64, 9000);
  assert.equal(curve.sizeWithin(5000), 1);
  curve.note(2, 1000);
  assert.equal(curve.sizeWithin(5000), 10);
});
