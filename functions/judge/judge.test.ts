import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { tracedAsInterpreted } from '#test/harness/functions.ts';

const essay = 'Lily had a red ball. She gave it to Tom, because he was sad. Then they played all day.';

describe('judge', () => {
  it('gives the same judgment traced as interpreted, and judges the dimensions at once', async () => {
    // The traced program writes the three judgments in joint steps, which saves up to two thirds of the steps for judgments.
    const shareOfSteps = 0.8;
    const output = await tracedAsInterpreted('judge', { essay, maxTokens: 12 }, shareOfSteps);
    assert.equal(output.judgments.length, 3);
    assert.ok(output.judgments.concat(output.summary).every((text: string) => text.length > 0));
    assert.match(output.grade, /^ [ABCD]$/);
  });

  it('judges in dimensions for which there is no plan', async () => {
    const output = await tracedAsInterpreted('judge', { essay, dimensions: ['short', 'sad'], maxTokens: 4 });
    assert.equal(output.judgments.length, 2);
  });
});
