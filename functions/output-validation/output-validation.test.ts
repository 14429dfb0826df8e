import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, countersOf, failingFunction, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const PROMPT =
  'In the big blue house by the river lived a kind old woman and her three small cats. The name of the first cat was';

describe('output-validation', () => {
  it('restarts from the saved prompt until the text is valid', async () => {
    const script = [' the the the.', ' of a tree.', ' Lily.', ' Tom.'];
    const count = await tokenCounter(STORIES);
    const before = await countersOf(STORIES, { reset: true });
    const { output } = await callFunction('output-validation', {
      prompt: PROMPT,
      pattern: '^ [A-Z][a-z]+\\.$',
      script,
    });
    const { tokens, prefix } = await countersOf();
    assert.deepEqual(output, { valid: true, text: ' Lily.', rejected: script.slice(0, 2) });
    const attempted = script.slice(0, 3);
    const attemptTokens = attempted.map((text) => count.continuing(text)).reduce((a, b) => a + b, 0);
    assert.equal(prefix.hitTokens, before.prefix.hitTokens);
    // The device computes the prompt without its last token once. Each attempt computes this last token and its own tokens.
    assert.equal(tokens, count.begin(PROMPT) - 1 + attempted.length + attemptTokens);
    assert.ok(tokens < attempted.length * count.begin(PROMPT));
  });

  it('returns the rejected texts when no attempt is valid, and never repeats one', async () => {
    const input = { prompt: PROMPT, pattern: '^never$', attempts: 3, maxTokens: 8, seed: 2 ** 32 - 1 };
    const { output } = await callFunction('output-validation', input);
    assert.equal(output.valid, false);
    assert.equal(new Set(output.rejected).size, 3);
    const { message } = await failingFunction('output-validation', { prompt: PROMPT, pattern: '(' });
    assert.match(message, /^invalid-argument: "pattern" is not a regular expression: /);
  });
});
