import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { assertBatched, callFunction, countersOf, refusedInput, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const QUESTION = 'How can Tom help his mother at home? Name some ways, and then say more about each.';
const POINTS = ['Wash the cups', 'Feed the cat', 'Water the flowers', 'Clean the room'];
const MORE = [
  'He can stand on a chair and wash all the cups after lunch.',
  'The cat wants milk in the morning and fish at night.',
  'They need a little water every day, or they will die.',
  'His toys are on the floor. He can put them in the big box.',
];

describe('skeleton-of-thought', () => {
  it('expands all points of one skeleton at the same time', async () => {
    const count = await tokenCounter(STORIES);
    const input = { question: QUESTION, points: POINTS.length, script: [...POINTS, ...MORE] };
    const before = await countersOf(STORIES, { reset: true });
    const { output, messages } = await callFunction('skeleton-of-thought', input);
    const stats = await countersOf();
    const answer = POINTS.map((point, i) => `${i + 1}. ${point}: ${MORE[i]}`).join('\n');
    assert.deepEqual(output, { skeleton: POINTS, answer });
    // Points arrive interleaved.
    const order = messages.map((message) => JSON.parse(message).point);
    assert.ok(order.lastIndexOf(1) > order.indexOf(4), `${order}`);

    const skeleton =
      count.begin(`${QUESTION}\n`) +
      POINTS.map((point, i) => count.continuing(`${i + 1}.`, ` ${point}\n`)).reduce((a, b) => a + b, 0);
    const expansions = POINTS.map((point, i) => count.continuing(`${i + 1}. ${point}:`, ` ${MORE[i]}\n`)).reduce(
      (a, b) => a + b,
      0,
    );
    // The skeleton and each fork leave out their own last token. Each fork computes the last token of the skeleton instead.
    assert.equal(stats.tokens, skeleton - 1 + expansions);
    assert.equal(stats.prefix.hitTokens, before.prefix.hitTokens);
    const withoutSharing = POINTS.length * skeleton + expansions;
    assert.ok(withoutSharing > 2 * stats.tokens);
    await assertBatched(stats, () => callFunction('skeleton-of-thought', input));
  });

  it("works with the model's own replies, and names the field of a bad input", async () => {
    const { output } = await callFunction('skeleton-of-thought', {
      question: 'What did Lily do?',
      points: 3,
      maxTokens: 16,
      seed: 1,
    });
    assert.ok(output.skeleton.length > 0);
    assert.equal(output.answer.split('\n').length, output.skeleton.length);
    assert.deepEqual(await refusedInput('skeleton-of-thought', { points: 3 }), { status: 422, field: '/question' });
  });
});
