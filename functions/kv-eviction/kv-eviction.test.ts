import assert from 'node:assert/strict';
import path from 'node:path';
import { describe, it } from 'node:test';
import { call } from '#test/harness/deploy.ts';
import {
  callFunction,
  deployFrom,
  failingFunction,
  functionsPlatform,
  longStory,
  refusedInput,
  TINY,
  TINY_REFERENCE,
} from '#test/harness/functions.ts';
import { ROOT } from '#test/harness/platform.ts';
import { likeliest, ReferenceText, type Row, tinyTokens } from '#test/harness/reference-text.ts';

/** Context length of stories15m, the default model. */
const CONTEXT = 256;
const TINY_CONTEXT = 64;
/** Tokens of one page. */
const PAGE = 16;
/** Tokens that the function reads in one call. */
const STEP = 16;

describe('kv-eviction', () => {
  it('holds as many tokens as a window of the same budget, with a lower perplexity', async () => {
    const text = await longStory();
    const budget = 96;
    const mostBeforeEviction = 1.5 * budget;
    const [attention, recent] = await Promise.all(
      ['attention', 'recent'].map((policy) =>
        callFunction('kv-eviction', { text, policy, budget, recent: 64, maxTokens: 20 }),
      ),
    );
    assert.ok(attention && recent);
    assert.ok(attention.output.tokens >= 4 * CONTEXT, `${attention.output.tokens} tokens`);
    for (const { output, usage } of [attention, recent]) {
      // The last step before an eviction may exceed the bound by all but one of its tokens.
      const isNearBound = output.mostHeld >= mostBeforeEviction && output.mostHeld < mostBeforeEviction + STEP;
      assert.ok(isNearBound, `${output.mostHeld}`);
      // During an eviction, the cache and the copy of the kept tokens exist at once. Allow one more page for each.
      assert.ok(
        (usage.kvPagesPeak ?? 0) <= mostBeforeEviction / PAGE + budget / PAGE + 2,
        `${usage.kvPagesPeak} pages`,
      );
    }
    const { perplexity } = attention.output;
    assert.ok(perplexity < 12, `${perplexity}`);
    assert.ok(perplexity < recent.output.perplexity, `${perplexity} against ${recent.output.perplexity}`);
    assert.equal(attention.output.written.length, 20);
  });

  it('reads and writes the same as the float64 reference that holds the same tokens', async () => {
    const text = 'The quick brown fox jumps over the lazy dog, '.repeat(6);
    const [budget, maxTokens] = [24, 24];
    const input = { text, policy: 'recent', budget, recent: 8, maxTokens, model: TINY };
    const { output } = await callFunction('kv-eviction', input);
    await using reference = await ReferenceText.open();
    const tokens = tinyTokens(text);
    let row: Row | undefined;
    let surprise = 0;
    const read = async (piece: readonly number[]) => {
      if (reference.length >= 1.5 * budget) reference.keep([...Array(reference.length).keys()].slice(-budget));
      const rows = await reference.add(piece);
      for (const [i, token] of piece.entries()) surprise -= (rows[i - 1] ?? row)?.[token] ?? 0;
      row = rows.at(-1);
    };
    for (let at = 0; at < tokens.length; at += STEP) await read(tokens.slice(at, at + STEP));
    const perplexity = Math.exp(surprise / (tokens.length - 1));
    const written: number[] = [];
    while (written.length < maxTokens) {
      written.push(likeliest(row!));
      await read(written.slice(-1));
    }
    assert.ok(output.tokens > 4 * TINY_CONTEXT);
    assert.deepEqual(output.written, written);
    const difference = Math.abs(Math.log(output.perplexity) - Math.log(perplexity));
    assert.ok(difference < 1e-4, `${difference} nats`);
  });

  it('keeps the tokens that received the most attention in the reference, with a decay for older attention', async () => {
    // With the begin-of-text token, the text has 64 tokens, one for each byte: four reads. The fourth finds a full cache, so it evicts tokens first.
    const text = 'The quick brown fox jumps over the lazy dog and then it sleeps.';
    const [budget, recent, decay] = [24, 8, 0.8];
    const { output } = await callFunction('kv-eviction', { text, budget, recent, model: TINY });
    assert.equal(output.tokens, 4 * STEP);
    await deployFrom(path.join(ROOT, 'functions/kv-eviction/fixtures/attention.ts'), 'kv-eviction-attention');
    const tokens = tinyTokens(text);
    const lengths = [1, 2, 3].map((reads) => reads * STEP);
    const input = { tokens, lengths, model: TINY_REFERENCE };
    /** For each number of reads, the attention that each token has received from all tokens so far, without decay. */
    const totals: number[][] = await call(await functionsPlatform(), 'kv-eviction-attention', input);
    const received = tokens.slice(0, 3 * STEP).map((_, token) =>
      totals.reduce((sum, total, read) => {
        const before = totals[read - 1]?.[token] ?? 0;
        const duringRead = (total[token] ?? 0) - before;
        return decay * sum + duringRead;
      }, 0),
    );
    const border = received.length - recent;
    const heavy = Array.from({ length: border }, (_, token) => token)
      .sort((a, b) => (received[b] ?? 0) - (received[a] ?? 0))
      .slice(0, budget - recent)
      .sort((a, b) => a - b);
    const rest = tokens.map((_, token) => token).slice(border);
    assert.deepEqual(output.held, [...heavy, ...rest]);
    // The tokens with the most attention are neither the first tokens nor the last ones before the recent tokens.
    assert.ok(heavy.some((token, i) => token !== i) && heavy[0] !== border - heavy.length, `${heavy}`);
  });

  it('takes any budget that leaves room for a step in the context', async () => {
    const input = { text: 'The quick brown fox jumps over the lazy dog, '.repeat(6), recent: 8, model: TINY };
    const { output } = await callFunction('kv-eviction', { ...input, budget: TINY_CONTEXT - STEP });
    assert.ok(
      output.tokens > 4 * TINY_CONTEXT && output.mostHeld <= TINY_CONTEXT,
      `${output.mostHeld} of ${output.tokens}`,
    );
    const { message } = await failingFunction('kv-eviction', { ...input, budget: TINY_CONTEXT - STEP + 1 });
    assert.match(message, /^invalid-argument: budget \(49\) must leave room for 16 tokens/);
  });

  it('names the field of a bad input', async () => {
    assert.match(
      (await failingFunction('kv-eviction', { text: 'x', budget: 8, recent: 8 })).message,
      /^invalid-argument: recent/,
    );
    assert.deepEqual(await refusedInput('kv-eviction', { text: 'x', budget: 1 }), { status: 422, field: '/budget' });
  });
});
