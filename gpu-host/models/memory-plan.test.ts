import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseConfig } from './config.ts';
import { expectedTensors } from './load.ts';
import { bitsFor, memoryPlan, planText, weightBytes } from './memory-plan.ts';

/** Qwen 2.5's 0.5B, with bfloat16 weights. */
const CONFIG = parseConfig({
  ...{ model_type: 'qwen2', hidden_size: 896, intermediate_size: 4864, num_hidden_layers: 24, num_attention_heads: 14 },
  ...{ num_key_value_heads: 2, vocab_size: 151_936, max_position_embeddings: 32_768, rms_norm_eps: 1e-6 },
  ...{ tie_word_embeddings: true, use_sliding_window: false },
});
const shapes = new Map(expectedTensors(CONFIG));
const MODEL = {
  config: CONFIG,
  tensors: {
    has: (name: string) => shapes.has(name),
    info: (name: string) =>
      ({ dtype: 'BF16', shape: shapes.get(name) ?? [], file: '', offset: 0, bytes: 0, version: '' }) as const,
    read: () => new Float32Array(0),
  },
};
const PARAMETERS = 494_032_768;
const GB = 1e9;

test('weights take four bytes a value, or little more than their bits', () => {
  assert.equal(weightBytes(MODEL, 32), 4 * PARAMETERS);
  assert.ok(Math.abs(weightBytes(MODEL, 8) / PARAMETERS - 1.125) < 0.001);
  assert.ok(Math.abs(weightBytes(MODEL, 4) / PARAMETERS - 0.625) < 0.001);
});

test('weights have the most bits that leave half of the memory free', () => {
  assert.deepEqual(
    [25, 3, 1, 0.1].map((gigabytes) => bitsFor(MODEL, gigabytes * GB)),
    [32, 8, 4, 4],
  );
});

test('the arithmetic is shown', () => {
  assert.equal(
    planText(memoryPlan(MODEL, 25 * GB)),
    'weights 2.0 GB + keys and values 906 MB (36,864 tokens of 25 kB; a context has 32,768) of 25 GB',
  );
  assert.match(planText(memoryPlan(MODEL, 3 * GB)), /^weights 556 MB in 8 bits, because more would take over half/);
});
