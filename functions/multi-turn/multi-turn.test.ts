import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { refusedInput, tracedAsInterpreted } from '#test/harness/functions.ts';

const QUESTIONS = ['Who lives on the farm?', 'What does the cow eat?', 'Where does the dog sleep?'];

/** The default of `maxTokens`. The build makes plans for this number only, and for at most four turns. */
const PLANNED_TOKENS = 24;

describe('multi-turn', () => {
  it('gives the same answers traced as interpreted, for one to six turns, with a plan of the build and without', async () => {
    for (const [turns, maxTokens] of [
      [1, PLANNED_TOKENS],
      [3, PLANNED_TOKENS],
      [3, 8],
      [6, 3],
    ] as const) {
      const questions = Array.from({ length: turns }, (_, i) => QUESTIONS[i % QUESTIONS.length]);
      const output = await tracedAsInterpreted('multi-turn', { questions, maxTokens });
      assert.equal(output.answers.length, turns);
      for (const answer of output.answers) assert.equal(typeof answer, 'string');
      assert.ok(output.answers[0].length > 0);
    }
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('multi-turn', { questions: [] }), { status: 422, field: '/questions' });
  });
});
