import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endsOfPrompts, latenciesOfMix, STEP_MS } from './testing/workflows.ts';

const SEEDS = process.env.PIE_TEST_ALL ? 100 : 12;

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

test('16 mixed workflows end earlier on average when their calls carry depths, and the last ends hardly later', (t) => {
  for (const { maxCalls, minGain } of [
    { maxCalls: 8, minGain: 1.15 },
    { maxCalls: 256, minGain: 0.98 },
  ]) {
    const gains: number[] = [];
    const tails: number[] = [];
    for (let seed = 1; seed <= SEEDS; seed++) {
      const setup = { seed, queries: 16, apartMs: 50, maxCalls };
      const [plain, deep] = [false, true].map((isDeep) => latenciesOfMix({ ...setup, deep: isDeep }));
      gains.push(mean(plain ?? []) / mean(deep ?? []));
      tails.push(Math.max(...(deep ?? [])) / Math.max(...(plain ?? [])));
    }
    t.diagnostic(
      `${maxCalls} calls a batch: mean ${mean(gains).toFixed(2)} (${Math.min(...gains).toFixed(2)}–${Math.max(...gains).toFixed(2)}), slowest ${mean(tails).toFixed(2)} (to ${Math.max(...tails).toFixed(2)})`,
    );
    assert.ok(mean(gains) >= minGain, `${maxCalls} calls a batch: ${mean(gains)}`);
    assert.ok(mean(tails) <= 1.05, `${maxCalls} calls a batch: the slowest query takes ${mean(tails)} times as long`);
  }
});

test('with depths, many workflows with waiting prompts end earlier on average, and the last hardly later', (t) => {
  for (const prompt of [300, 600, 1200]) {
    const setup = { queries: 16, generations: 8, prompt, tokens: 16, apartMs: 10 };
    const [plain, deep] = [false, true].map((isDeep) => endsOfPrompts({ ...setup, deep: isDeep }));
    const gain = mean(plain ?? []) / mean(deep ?? []);
    t.diagnostic(`prompts of ${prompt} tokens: mean ${gain.toFixed(2)}, last after ${Math.max(...(plain ?? []))} ms`);
    assert.ok(gain >= 1.4, `prompts of ${prompt} tokens: ${gain}`);
    assert.ok(Math.max(...(deep ?? [])) <= 1.05 * Math.max(...(plain ?? [])));
  }
});

test('workflows end no earlier on average when batches are bounded near the efficient size', (t) => {
  for (const tokenMs of [0.2, 1]) {
    // A step of the efficient size takes twice the time of an empty step.
    const efficient = STEP_MS / tokenMs;
    const latency = (limits: { readonly maxCalls?: number; readonly maxTokens?: number }) => {
      const setup = { queries: 16, apartMs: 20, maxCalls: 256, tokenMs, deep: true, ...limits };
      return mean(Array.from({ length: SEEDS / 2 }, (_, seed) => mean(latenciesOfMix({ ...setup, seed: seed + 1 }))));
    };
    const unbounded = latency({});
    for (const times of [0.5, 1, 2]) {
      const size = efficient * times;
      const [calls, tokens] = [latency({ maxCalls: size }), latency({ maxTokens: size })];
      t.diagnostic(
        `${unbounded.toFixed(0)} ms; at most ${size} calls: ${calls.toFixed(0)}, inputs: ${tokens.toFixed(0)}`,
      );
      // A smaller bound on inputs makes more steps, each with its fixed time.
      const minRatio = times < 1 ? 1.2 : 0.99;
      assert.ok(
        calls > 0.99 * unbounded && tokens > minRatio * unbounded,
        `${size}: ${calls}, ${tokens}, ${unbounded}`,
      );
    }
  }
});
