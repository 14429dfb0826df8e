import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, refusedInput } from '#test/harness/functions.ts';

const PROMPT = 'Once upon a time';
const zScore = async (text: string, key?: number): Promise<number> =>
  (await callFunction('watermarking', { text, ...(key === undefined ? {} : { key }) })).output.zScore;

describe('watermarking', () => {
  it('writes a watermark that is detected in the text only with the right key', async () => {
    for (const seed of process.env.PIE_TEST_ALL ? [1, 2] : [1]) {
      const marked = (await callFunction('watermarking', { prompt: PROMPT, seed })).output;
      const plain = (await callFunction('watermarking', { prompt: PROMPT, seed, delta: 0 })).output;
      const scores = {
        written: marked.zScore,
        read: await zScore(marked.text),
        plain: await zScore(plain.text),
        otherKey: await zScore(marked.text, 12345),
      };
      console.log(`z-scores of seed ${seed}: ${JSON.stringify(scores)}`);
      assert.ok(scores.written > 4 && scores.read > 4, JSON.stringify(scores));
      assert.ok(scores.plain < 2 && scores.otherKey < 2, JSON.stringify(scores));
    }
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('watermarking', { gamma: 1 }), { status: 422, field: '/gamma' });
  });
});
