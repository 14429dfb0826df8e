import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { tracedAsInterpreted } from '#test/harness/functions.ts';

const question = 'Tom wants to reach the apple on the tall tree. What can he do?';

describe('tree-search', () => {
  it('finds the same answer traced and interpreted, and decodes the branches together when traced', async () => {
    // Two plans, four solutions and an answer of eight tokens take about 56 device steps one after another. Plans decoded together, then solutions
    // decoded together, then the answer take about 24. A busy machine separates some calls, so the test demands only that a few steps are shared.
    const output = await tracedAsInterpreted('tree-search', { question, maxTokens: 8 }, 0.95);
    assert.deepEqual([output.plans.length, output.solutions.length], [2, 4]);
    assert.ok(output.solutions.includes(output.best));
    assert.equal(typeof output.answer, 'string');
  });

  it('searches with numbers of branches for which the component has no prepared graph', async () => {
    for (const branches of [1, 3]) {
      const output = await tracedAsInterpreted('tree-search', { question, branches, maxTokens: 3 });
      assert.equal(output.solutions.length, branches ** 2);
    }
  });
});
