import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, countersOf, refusedInput, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const RULES = 'There is a zoo in our town. All the children love it, for it has many animals and a big playground.';
const LIONS = ' The lions are the best.';
const MAX_TOKENS = 8;

describe('prefix-tree', () => {
  it('computes only the part of each prompt that no other prompt shares, with the same output', async () => {
    const count = await tokenCounter(STORIES);
    const before = await countersOf();
    const ask = async (prompts: readonly string[], capacity = 4096) => {
      await countersOf(STORIES, { reset: true });
      const input = { name: 'test', prompts, maxTokens: MAX_TOKENS, capacity };
      const { output } = await callFunction('prefix-tree', input);
      const texts = output.completions.map(({ text }: { text: string }) => text);
      return { texts, evicted: output.evicted, stats: await countersOf() };
    };
    const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);
    // A save computes the last token of its text. A completion computes this token, too, and all tokens of its answer but the last.
    const save = 1;
    const generate = 1 + MAX_TOKENS - 1;

    const first = [`${RULES}${LIONS} They sleep`, `${RULES}${LIONS} They eat`, `${RULES} One day`, RULES];
    const cold = await ask(first);
    const edges = count.begin(RULES) + count.continuing(LIONS, ' They', ' sleep', ' eat', ' One day');
    // The last token of an edge is computed with what follows it, so the edges alone compute one token less.
    assert.equal(cold.stats.tokens, edges - 1 + first.length * (save + generate));
    const alone = sum(first.map((prompt) => count.begin(prompt) + MAX_TOKENS - 1));
    assert.ok(alone > 1.8 * cold.stats.tokens, `${alone} tokens without the tree, ${cold.stats.tokens} with it`);

    const warm = await ask(first);
    assert.equal(warm.stats.tokens, first.length * generate);
    assert.deepEqual(warm.texts, cold.texts);

    // The first prompt leaves an edge in its middle, the second ends in the middle of an edge, and the third continues below a leaf.
    const second = [
      `${RULES.slice(0, RULES.indexOf(' children'))} dogs bark`,
      `${RULES}${LIONS}`,
      `${first[0]} all day`,
    ];
    const grown = await ask(second);
    assert.equal(grown.stats.tokens, count.continuing(' dogs bark', ' all day') + second.length * (save + generate));
    // On a busy machine, the calls of an invocation may come so far apart that no batch holds two. One invocation with joint batches is enough.
    const asked = [cold, warm, grown].map(({ stats }) => stats);
    assert.ok(
      asked.some(({ meanBatchSize }) => meanBatchSize > 1),
      asked.map(({ batchSizes }) => `${batchSizes}`).join('; '),
    );
    // No other cache supplied the prefixes.
    assert.equal(grown.stats.prefix.hitTokens, before.prefix.hitTokens);

    for (const [prompts, { texts }] of [
      [first, cold],
      [second, grown],
    ] as const) {
      for (const [i, prompt] of prompts.entries()) {
        const { output } = await callFunction('text-completion', { prompt, maxTokens: MAX_TOKENS, temperature: 0 });
        assert.equal(texts[i], output.text);
      }
    }
    // Without capacity, the tree evicts all texts, at least those of all prompts.
    assert.ok((await ask([RULES], 0)).evicted >= first.length + second.length);
    assert.equal((await countersOf()).exports, before.exports);
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('prefix-tree', { prompts: [] }), { status: 422, field: '/prompts' });
  });
});
