import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { assertBatched, callFunction, countersOf, failingFunction, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const PROMPT = 'Ben has 3 red balls and buys 2 boxes with 4 balls in each of them. How many does he have? Think.';
const CHAINS = [
  ' 2 boxes of 4 are 8. The answer is 11.',
  ' 3 and 2 and 4 make 9. The answer is 9.',
  ' He had 3 and got 8 more. The answer is 11.',
  ' That is too hard.',
  ' 3 + 2 * 4 = 11. The answer is 11.',
  ' 5 times 4. The answer is 20.',
];

describe('self-consistency', () => {
  it('returns the majority answer over chains that share the question and their batches', async () => {
    const count = await tokenCounter(STORIES);
    const input = { prompt: PROMPT, answer: 'The answer is ([0-9]+)', samples: CHAINS.length, script: CHAINS };
    const before = await countersOf(STORIES, { reset: true });
    const { output, messages } = await callFunction('self-consistency', input);
    const stats = await countersOf();
    assert.deepEqual(output, { answer: '11', votes: { 9: 1, 11: 3, 20: 1 } });
    const chains = messages.map((message) => JSON.parse(message)).sort((a, b) => a.chain - b.chain);
    assert.deepEqual(
      chains.map(({ answer }) => answer),
      ['11', '9', '11', null, '11', '20'],
    );

    const prompt = count.begin(PROMPT);
    const chainTokens = CHAINS.map((text) => count.continuing(text)).reduce((a, b) => a + b, 0);
    // The chains share all tokens of the prompt but the last, which each chain computes itself.
    assert.equal(stats.tokens, prompt - 1 + CHAINS.length + chainTokens);
    assert.equal(stats.prefix.hitTokens, before.prefix.hitTokens);
    const withoutSharing = CHAINS.length * prompt + chainTokens;
    assert.ok(withoutSharing > 1.7 * stats.tokens);
    await assertBatched(stats, () => callFunction('self-consistency', input));
  });

  it('samples different chains, repeats them for a seed, and reports a broken pattern', async () => {
    const input = {
      prompt: 'Lily had a pet. It was a',
      answer: '^ ?[a-z]+',
      samples: 6,
      maxTokens: 8,
      temperature: 1.5,
      seed: 7,
    };
    const [first, second] = [
      await callFunction('self-consistency', input),
      await callFunction('self-consistency', input),
    ];
    assert.deepEqual(second.output, first.output);
    assert.ok(Object.keys(first.output.votes).length > 1);
    const failure = await failingFunction('self-consistency', { prompt: 'x', answer: '(' });
    assert.match(failure.message, /"answer" is not a regular expression/);
  });
});
