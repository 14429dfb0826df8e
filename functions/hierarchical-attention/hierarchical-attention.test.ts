import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, longStory, refusedInput, TINY, TINY_REFERENCE } from '#test/harness/functions.ts';

const CONTEXT = 256;
const PAGE = 16;

describe('hierarchical-attention', () => {
  it('reads four times the context with bounded memory, and landmarks lower the perplexity', async () => {
    const text = await longStory();
    const [landmarks, blocks] = await Promise.all([
      callFunction('hierarchical-attention', { text, block: 48, landmarks: 8, maxTokens: 20 }),
      callFunction('hierarchical-attention', { text, block: 48, landmarks: 0, maxTokens: 20 }),
    ]);
    assert.ok(landmarks.output.tokens >= 4 * CONTEXT, `${landmarks.output.tokens} tokens`);
    // The sink, the landmarks, a block, and the tokens of the next step.
    const bound = 4 + 96 + 48 + 20;
    assert.ok(landmarks.output.mostHeld <= bound, `${landmarks.output.mostHeld}`);
    // The held tokens, and the copy of the kept part.
    assert.ok(
      (landmarks.usage.kvPagesPeak ?? 0) <= 2 * Math.ceil(bound / PAGE),
      `${landmarks.usage.kvPagesPeak} pages`,
    );
    assert.ok(landmarks.output.perplexity < 12, `${landmarks.output.perplexity}`);
    assert.ok(
      landmarks.output.perplexity < blocks.output.perplexity,
      `${landmarks.output.perplexity} with landmarks, ${blocks.output.perplexity} without`,
    );
  });

  it('gives the same tokens and perplexity on the device and the reference', async () => {
    const text = 'The quick brown fox jumps over the lazy dog, '.repeat(6);
    const [onnx, reference] = await Promise.all(
      [TINY, TINY_REFERENCE].map((model) =>
        callFunction('hierarchical-attention', { text, block: 16, maxKept: 8, maxTokens: 12, model }),
      ),
    );
    assert.ok(onnx && reference);
    assert.ok(onnx.output.tokens > 4 * 64);
    assert.deepEqual(onnx.output.written, reference.output.written);
    const difference = Math.abs(Math.log(onnx.output.perplexity) - Math.log(reference.output.perplexity));
    assert.ok(difference < 1e-4, `${difference} nats`);
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('hierarchical-attention', { text: 'x', block: 0 }), {
      status: 422,
      field: '/block',
    });
  });
});
