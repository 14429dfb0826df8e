import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { refusedInput, tracedAsInterpreted } from '#test/harness/functions.ts';

const QUESTIONS = ['Who lives on the farm?', 'What does the cow eat?', 'Where does the dog sleep?'];

describe('multi-turn', () => {
  it('gives the same answers traced as interpreted, for one to six turns', async () => {
    for (const [turns, maxTokens] of [
      [1, 8],
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
