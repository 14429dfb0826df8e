import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, countersOf, refusedInput, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const NAME = 'prefix-caching-test/forest';
const PREFIX = `Deep in the forest there was an old house. Nobody lived in it but a gray mouse and a friendly owl. \
They shared their food and told each other stories every night.`;
const MAX_TOKENS = 16;

describe('prefix-caching', () => {
  it('computes the prefix in the first run only, and writes the same as without any cache', async () => {
    const count = await tokenCounter(STORIES);
    const before = await countersOf(STORIES);
    const ask = async (question: string, keep = true) => {
      await countersOf(STORIES, { reset: true });
      const input = { name: NAME, prefix: PREFIX, question, maxTokens: MAX_TOKENS, keep };
      const { output, messages } = await callFunction('prefix-caching', input);
      assert.equal(messages.join(''), output.text);
      return { ...output, stats: await countersOf() };
    };
    const [question, another] = [' One night, the mouse', ' One day, a fox came to'];
    // The device computes the question and the answer, but not the answer's last token: no token follows it.
    const first = await ask(question);
    assert.equal(first.cached, false);
    assert.equal(first.stats.tokens, count.begin(PREFIX) + count.continuing(question) + MAX_TOKENS - 1);
    const second = await ask(question);
    assert.equal(second.cached, true);
    assert.equal(second.stats.tokens, count.continuing(question) + MAX_TOKENS - 1);
    assert.deepEqual(second.tokens, first.tokens);
    const pinned = await callFunction('prefix-caching', { name: NAME, prefix: PREFIX, question, pinMs: 60_000 });
    assert.equal(pinned.output.pinned.tier, 'device');
    assert.ok(pinned.output.pinned.leaseMs > 0);
    const other = await ask(another, false);
    assert.equal(other.stats.tokens, count.continuing(another) + MAX_TOKENS - 1);
    // No other cache supplied the prefix.
    assert.equal(other.stats.prefix.hitTokens, before.prefix.hitTokens);

    for (const [text, said] of [
      [question, second],
      [another, other],
    ] as const) {
      const plain = { prompt: PREFIX + text, maxTokens: MAX_TOKENS, temperature: 0 };
      assert.deepEqual((await callFunction('text-completion', plain)).output.tokens, said.tokens);
    }
    assert.equal((await countersOf()).exports, before.exports);
  });

  it('names the field of a bad input', async () => {
    const input = { name: 'no spaces', prefix: 'x', question: 'y' };
    assert.deepEqual(await refusedInput('prefix-caching', input), { status: 422, field: '/name' });
  });
});
