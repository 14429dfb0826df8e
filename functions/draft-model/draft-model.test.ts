import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHAT, callFunction, failingFunction, STORIES, STORIES_8BIT } from '#test/harness/functions.ts';

const PROMPT = 'Once upon a time';

describe('draft-model', () => {
  it('gives the same tokens as the model alone, greedy and sampled, in under 0.4 passes a token', async () => {
    for (const sampling of [{ temperature: 0 }, { temperature: 1, seed: 3 }]) {
      const input = { prompt: PROMPT, maxTokens: 48, model: STORIES, ...sampling };
      const plain = (await callFunction('text-completion', input)).output;
      const { output } = await callFunction('draft-model', { ...input, draft: STORIES_8BIT });
      assert.deepEqual(output.tokens, plain.tokens);
      console.log(
        `${output.tokens.length} tokens in ${output.forwardCalls} passes, ${output.tokensPerCall.toFixed(2)} each`,
      );
      assert.ok(output.forwardCalls < 0.4 * output.tokens.length, String(output.forwardCalls));
      // A pass adds at most one token that the draft model did not guess, and each guess takes a pass of the draft model.
      assert.ok(output.draftCalls >= output.tokens.length - output.forwardCalls);
    }
  });

  it('refuses a draft model with another vocabulary', async () => {
    assert.match(
      (await failingFunction('draft-model', { prompt: PROMPT, draft: CHAT })).message,
      /invalid-argument.*vocabulary/,
    );
  });
});
