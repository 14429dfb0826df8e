import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  assertBatched,
  callFunction,
  countersOf,
  deployFunction,
  refusedInput,
  STORIES,
} from '#test/harness/functions.ts';

const BRANCHES = 8;
const MAX_TOKENS = 40;

describe('parallel-generation', () => {
  it('computes the prompt once, and decodes its forks in the same batches', async () => {
    await deployFunction('parallel-generation');
    const prompt = 'Mia and her brother Tom built a very tall tower of red and yellow blocks';
    const input = { prompt, branches: BRANCHES, maxTokens: MAX_TOKENS, temperature: 0.9, seed: 3 };
    await countersOf(STORIES, { reset: true });
    const { output } = await callFunction('parallel-generation', input);
    const stats = await countersOf(STORIES);
    const texts = output.branches.map(({ text }: { text: string }) => text);
    assert.equal(new Set(texts).size, BRANCHES, 'different seeds give different texts');
    const lengths = output.branches.map((branch: { tokens: number[] }) => branch.tokens.length);
    // On a busy machine the calls may come too far apart to share batches. `assertBatched` then makes further invocations.
    await assertBatched(stats, () => callFunction('parallel-generation', input));
    // The prompt is computed once for all branches: this many more tokens have room for one prompt, but not for eight.
    const promptRoom = 40;
    const decoded = lengths.reduce((sum: number, length: number) => sum + length, 0);
    assert.ok(stats.tokens < decoded + promptRoom, `${stats.tokens} computed, ${decoded} decoded`);
  });

  it('begins each branch with its own text', async () => {
    const branches = [' was happy', ' was sad'];
    const { output, messages } = await callFunction('parallel-generation', {
      prompt: 'The little dog',
      branches,
      maxTokens: 8,
    });
    assert.deepEqual(
      output.branches.map(({ text }: { text: string }, i: number) => text.startsWith(branches[i] ?? '')),
      [true, true],
    );
    const sent = messages.map((message) => JSON.parse(message) as { branch: number; text: string });
    for (const [i, opening] of branches.entries()) {
      const pieces = sent.filter(({ branch }) => branch === i).map(({ text }) => text);
      assert.equal(opening + pieces.join(''), output.branches[i].text);
    }
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('parallel-generation', { maxTokens: 0 }), { status: 422, field: '/maxTokens' });
  });
});
