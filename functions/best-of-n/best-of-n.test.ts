import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, countersOf, refusedInput, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const PROMPT = 'In a small house near the forest there lived an old man with a brown dog. The dog liked to';
const CANDIDATES = [
  ' tax zebras and lawyers',
  ' play in the forest',
  ' engine over under',
  ' run and play with the ball',
];

describe('best-of-n', () => {
  it('computes the prompt once, decodes in joint batches and returns the most probable candidate', async () => {
    const count = await tokenCounter(STORIES);
    const before = await countersOf(STORIES, { reset: true });
    const { output } = await callFunction('best-of-n', { prompt: PROMPT, n: 4, script: CANDIDATES });
    const stats = await countersOf();
    const order = output.candidates.map(({ text }: { text: string }) => text);
    assert.deepEqual(new Set(order.slice(0, 2)), new Set([CANDIDATES[1], CANDIDATES[3]]));
    assert.equal(output.best, order[0]);

    const own = CANDIDATES.map((text) => count.more(text)).reduce((a, b) => a + b, 0);
    // Each candidate computes the last token of the prompt. Scores come with the tokens.
    assert.equal(stats.tokens, count.begin(PROMPT) - 1 + CANDIDATES.length + own);
    assert.equal(stats.prefix.hitTokens, before.prefix.hitTokens);
    assert.ok(CANDIDATES.length * count.begin(PROMPT) + own > 2 * stats.tokens);
    // The candidates compute in the sandbox between two steps, so the number of joint steps depends on the machine.
    assert.ok(
      stats.batchSizes.some((batches, size) => size > 1 && batches > 0),
      `${stats.batchSizes}`,
    );
  });

  it("ranks the candidates by the model's judgement, and names the field of a bad input", async () => {
    const { output } = await callFunction('best-of-n', { prompt: PROMPT, n: 3, rank: 'judge', seed: 4, maxTokens: 12 });
    const scores = output.candidates.map(({ score }: { score: number }) => score);
    assert.deepEqual(
      scores,
      scores.toSorted((a: number, b: number) => b - a),
    );
    assert.equal(new Set(scores).size, 3);
    assert.deepEqual(await refusedInput('best-of-n', { prompt: '', n: 1 }), { status: 422, field: '/n' });
  });
});
