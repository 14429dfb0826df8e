import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  callFunction,
  failingFunction,
  longStory,
  refusedInput,
  TINY,
  TINY_REFERENCE,
} from '#test/harness/functions.ts';

const CONTEXT = 256;
const PAGE = 16;

describe('kv-eviction', () => {
  it('holds what a window of the same budget holds, and finds the text likelier', async () => {
    const text = await longStory();
    const [attention, recent] = await Promise.all(
      ['attention', 'recent'].map((policy) =>
        callFunction('kv-eviction', { text, policy, budget: 96, recent: 64, maxTokens: 20 }),
      ),
    );
    assert.ok(attention && recent);
    assert.ok(attention.output.tokens >= 4 * CONTEXT, `${attention.output.tokens} tokens`);
    for (const { output, usage } of [attention, recent]) {
      // Sixteen tokens are read at once, so the last step before an eviction may pass the bound by fifteen.
      assert.ok(output.mostHeld >= 96 + 48 && output.mostHeld < 96 + 48 + 16, `${output.mostHeld}`);
      // The cache, and its copy while it is evicted.
      assert.ok((usage.kvPagesPeak ?? 0) <= (96 + 48) / PAGE + 96 / PAGE + 2, `${usage.kvPagesPeak} pages`);
    }
    const { perplexity } = attention.output;
    assert.ok(perplexity < 12, `${perplexity}`);
    assert.ok(perplexity < recent.output.perplexity, `${perplexity} against ${recent.output.perplexity}`);
    assert.equal(attention.output.written.length, 20);
  });

  it('reads and writes what the reference reads and writes', async () => {
    const input = {
      text: 'The quick brown fox jumps over the lazy dog, '.repeat(6),
      budget: 24,
      recent: 8,
      maxTokens: 12,
    };
    const [onnx, reference] = await Promise.all(
      [TINY, TINY_REFERENCE].map((model) => callFunction('kv-eviction', { ...input, model })),
    );
    assert.ok(onnx && reference);
    assert.ok(onnx.output.tokens > 4 * 64);
    assert.deepEqual(onnx.output.written, reference.output.written);
    const difference = Math.abs(Math.log(onnx.output.perplexity) - Math.log(reference.output.perplexity));
    assert.ok(difference < 1e-4, `${difference} nats`);
  });

  it('names what is wrong with its input', async () => {
    assert.match(
      (await failingFunction('kv-eviction', { text: 'x', budget: 8, recent: 8 })).message,
      /^invalid-argument: recent/,
    );
    assert.deepEqual(await refusedInput('kv-eviction', { text: 'x', budget: 1 }), { status: 422, field: '/budget' });
  });
});
