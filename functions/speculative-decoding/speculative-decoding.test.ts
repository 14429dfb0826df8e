import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, countersOf, STORIES } from '#test/harness/functions.ts';

const PROMPT = 'Tim likes the red ball. Tim likes the blue ball. Tim likes the red ball. Tim likes';

describe('speculative-decoding', () => {
  it('gives the tokens of text-completion in fewer passes', async () => {
    const input = { prompt: PROMPT, temperature: 0, maxTokens: 48 };
    const plain = (await callFunction('text-completion', input)).output;
    await countersOf(STORIES, { reset: true });
    const { output, messages } = await callFunction('speculative-decoding', input);
    const { batchSizes } = await countersOf();
    assert.deepEqual(output.tokens, plain.tokens);
    assert.equal(messages.join(''), plain.text);
    // The device counts as many passes as the function reports.
    assert.equal(
      batchSizes.reduce((sum, count) => sum + count, 0),
      output.forwardCalls,
    );
    console.log(
      `${output.tokens.length} tokens in ${output.forwardCalls} passes, ${output.tokensPerCall.toFixed(2)} each`,
    );
    assert.ok(output.forwardCalls < 0.7 * output.tokens.length, String(output.forwardCalls));
  });

  it('samples the same tokens as text-completion', async () => {
    const input = { prompt: PROMPT, temperature: 0.7, seed: 11, maxTokens: 48 };
    const plain = (await callFunction('text-completion', input)).output;
    const { output } = await callFunction('speculative-decoding', input);
    assert.deepEqual(output.tokens, plain.tokens);
    assert.ok(output.forwardCalls < output.tokens.length);
  });
});
