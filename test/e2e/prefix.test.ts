import assert from 'node:assert/strict';
import { test } from 'node:test';
import { call, deploy } from '#test/harness/deploy.ts';
import { countersOf, functionsPlatform } from '#test/harness/functions.ts';

/** The default of `page_size`. */
const PAGE_SIZE = 16;

test('a second run of a prompt prefills only the tokens after its last cached page', async () => {
  const platform = await functionsPlatform();
  await deploy(platform, 'prefix');
  const prompt = Array.from({ length: 12 }, (_, i) => `The ${['cat', 'dog', 'bird'][i % 3]} saw a tree. `).join('');
  const run = async (input: object) => {
    const before = await countersOf(undefined, { reset: true });
    // The affinity sends all runs to one GPU host, since each host has its own prefix cache.
    const output = await call(platform, 'prefix', input, { affinity: 'prompt' });
    const { tokens, prefix } = await countersOf();
    return { ...output, computed: tokens, hitTokens: prefix.hitTokens - before.prefix.hitTokens };
  };
  const cold = await run({ prompt, maxTokens: 8 });
  const warm = await run({ prompt, maxTokens: 8 });
  const longer = await run({ prompt: `${prompt}Then they all went home.`, maxTokens: 8 });

  assert.deepEqual(warm.tokens, cold.tokens);
  // The host always computes the last token, since sampling needs its state. It finds all whole pages before this token, and also the tokens in the
  // partly filled page behind them if this page still exists.
  const reusable = Math.floor((cold.promptTokens - 1) / PAGE_SIZE) * PAGE_SIZE;
  assert.equal(cold.hitTokens, 0);
  const { hitTokens } = warm;
  assert.ok(hitTokens >= reusable && hitTokens < cold.promptTokens, `${hitTokens} of ${cold.promptTokens} tokens`);
  assert.equal(cold.computed - warm.computed, hitTokens);
  // The space that ends the prompt is its last token. In the longer prompt this space belongs to the next word, so one token fewer is equal.
  assert.ok(longer.hitTokens >= Math.floor((cold.promptTokens - 2) / PAGE_SIZE) * PAGE_SIZE);
});
