import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { tracedAsInterpreted } from '#test/harness/functions.ts';

const question = 'Tom wants to reach the apple on the tall tree. What can he do?';

describe('tree-search', () => {
  it('finds the same answer traced as interpreted, and explores the branches at once', async () => {
    // Two plans and four solutions of eight tokens, and an answer: half of the steps are shared, fewer where a busy machine keeps calls apart.
    const output = await tracedAsInterpreted('tree-search', { question, maxTokens: 8 }, 0.95);
    assert.deepEqual([output.plans.length, output.solutions.length], [2, 4]);
    assert.ok(output.solutions.includes(output.best));
    assert.equal(typeof output.answer, 'string');
  });

  it('searches with numbers of branches for which there is no plan', async () => {
    for (const branches of [1, 3]) {
      const output = await tracedAsInterpreted('tree-search', { question, branches, maxTokens: 3 });
      assert.equal(output.solutions.length, branches ** 2);
    }
  });
});
