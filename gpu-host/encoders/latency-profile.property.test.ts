import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '#test/harness/random.ts';
import { LatencyProfile } from './latency-profile.ts';

/** A device that takes a fixed time for a batch, and a time for each token, give or take a tenth. */
function simulateDevice(seed: number) {
  const below = seeded(seed);
  const fixedMs = below(10);
  const tokenMs = 10 ** -(1 + below(3));
  const time = (tokens: number) => (fixedMs + tokens * tokenMs) * (0.9 + below(200) / 1000);
  // The profile's target: 25 ms, or four times a short batch, which takes little more than the fixed time.
  const targetMs = Math.max(25, 4 * fixedMs);
  return { below, time, fittingTokens: Math.min(2 ** 14, Math.max(1, (targetMs - fixedMs) / tokenMs)) };
}

test('batches grow to the target time, whatever small batches come between', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const { below, time, fittingTokens } = simulateDevice(seed);
    const profile = new LatencyProfile();
    assert.equal(profile.maxTokens, 128);
    for (let round = 0; round < 40; round++) {
      const { maxTokens } = profile;
      profile.note(maxTokens, time(maxTokens));
      for (let i = below(30); i > 0; i--) {
        const tokens = 1 + below(20);
        profile.note(tokens, time(tokens));
      }
    }
    const { maxTokens } = profile;
    const isNear = maxTokens > 0.4 * fittingTokens && maxTokens < 1.4 * fittingTokens;
    assert.ok(isNear, `seed ${seed}: ${maxTokens} of ${fittingTokens}`);
  }
});

/** The maximum size of a batch after many batches. Between these come single short texts, whose time per token is like that of a slow device. */
function settledMaxTokens(time: (tokens: number) => number): number {
  const profile = new LatencyProfile();
  for (let i = 0; i < 40; i++) for (const tokens of [8, 16, profile.maxTokens]) profile.note(tokens, time(tokens));
  return profile.maxTokens;
}

test('a batch takes many texts even where one text alone takes longer than the target', () => {
  for (const fixedMs of [25, 30]) {
    const maxTokens = settledMaxTokens((tokens) => fixedMs + 0.1 * tokens);
    assert.ok(maxTokens > 400 && fixedMs + 0.1 * maxTokens < 120, `${fixedMs} ms: ${maxTokens}`);
  }
});

test('where even a short batch takes very long, no batch takes much longer', () => {
  const maxTokens = settledMaxTokens((tokens) => 200 + 0.5 * tokens);
  assert.ok(maxTokens >= 8 && 200 + 0.5 * maxTokens < 240, `${maxTokens}`);
});

test('one disturbed measurement at the start is forgotten', () => {
  const profile = new LatencyProfile();
  profile.note(16, 200);
  const time = (tokens: number) => 2 + 0.02 * tokens;
  for (let i = 0; i < 100; i++) for (const tokens of [16, profile.maxTokens]) profile.note(tokens, time(tokens));
  assert.ok(time(profile.maxTokens) < 36, `${profile.maxTokens}`);
});

test('batches shrink when the device becomes slower, and grow again', () => {
  const profile = new LatencyProfile();
  const settle = (tokenMs: number) => {
    for (let i = 0; i < 60; i++) profile.note(profile.maxTokens, 2 + tokenMs * profile.maxTokens);
    return profile.maxTokens;
  };
  const fast = settle(0.01);
  const slow = settle(0.2);
  // Of the target of 25 ms, 23 ms remain for tokens: 2,300 fast ones, or 115 slow ones.
  assert.ok(fast > 1500 && fast < 2600 && slow > 64 && slow < 160, `${fast}, ${slow}`);
  assert.ok(settle(0.01) > 1500);
});

test('the curve has the sizes that were measured', () => {
  const profile = new LatencyProfile();
  for (const [tokens, ms] of [
    [1, 2],
    [5, 4],
    [8, 4],
    [1 << 20, 2 ** 14],
  ] as const)
    profile.note(tokens, ms);
  assert.deepEqual(
    profile.curve.map(({ tokens }) => tokens),
    [1, 8, 2 ** 14],
  );
});
