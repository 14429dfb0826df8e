import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, countersOf, refusedInput, STORIES } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';

const RULES = 'There is a zoo in our town. All the children love it, for it has many animals and a big playground.';
const LIONS = ' The lions are the best.';
const MAX_TOKENS = 8;

describe('prefix-tree', () => {
  it('computes of each prompt only the part that no earlier prompt shares, with the same output', async () => {
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
    // Each continuation of a text, and each save, computes the text's last token.
    const save = 1;
    const generate = MAX_TOKENS;

    const first = [`${RULES}${LIONS} They sleep`, `${RULES}${LIONS} They eat`, `${RULES} One day`, RULES];
    const cold = await ask(first);
    const edges = count.begin(RULES) + count.continuing(LIONS, ' They', ' sleep', ' eat', ' One day');
    assert.equal(cold.stats.tokens, edges - 1 + first.length * (save + generate));
    const alone = sum(first.map((prompt) => count.begin(prompt) + MAX_TOKENS - 1));
    assert.ok(alone > 1.8 * cold.stats.tokens, `${alone} tokens without the tree, ${cold.stats.tokens} with it`);

    const warm = await ask(first);
    assert.equal(warm.stats.tokens, first.length * generate);
    assert.deepEqual(warm.texts, cold.texts);

    // The prompts leave an edge in its middle, end there, and continue below a leaf.
    const second = [
      `${RULES.slice(0, RULES.indexOf(' children'))} dogs bark`,
      `${RULES}${LIONS}`,
      `${first[0]} all day`,
    ];
    const grown = await ask(second);
    assert.equal(grown.stats.tokens, count.continuing(' dogs bark', ' all day') + second.length * (save + generate));
    // On a busy machine the calls of one invocation may come so far apart that none meets another.
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
    // All leaves and their parents.
    assert.ok((await ask([RULES], 0)).evicted >= first.length + second.length);
    assert.equal((await countersOf()).exports, before.exports);
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('prefix-tree', { prompts: [] }), { status: 422, field: '/prompts' });
  });
});
