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

const CONTEXT = 256;
const PAGE = 16;

describe('kv-eviction', () => {
  it('holds as much as a window of the same budget, with a lower perplexity', async () => {
    const text = await longStory();
    const [attention, recent] = await Promise.all(
      ['attention', 'recent'].map((policy) =>
        callFunction('kv-eviction', { text, policy, budget: 96, recent: 64, maxTokens: 20 }),
      ),
    );
    assert.ok(attention && recent);
    assert.ok(attention.output.tokens >= 4 * CONTEXT, `${attention.output.tokens} tokens`);
    for (const { output, usage } of [attention, recent]) {
      // Each step reads sixteen tokens, so the last step before an eviction may exceed the bound by fifteen.
      assert.ok(output.mostHeld >= 96 + 48 && output.mostHeld < 96 + 48 + 16, `${output.mostHeld}`);
      // The cache, and its copy during an eviction.
      assert.ok((usage.kvPagesPeak ?? 0) <= (96 + 48) / PAGE + 96 / PAGE + 2, `${usage.kvPagesPeak} pages`);
    }
    const { perplexity } = attention.output;
    assert.ok(perplexity < 12, `${perplexity}`);
    assert.ok(perplexity < recent.output.perplexity, `${perplexity} against ${recent.output.perplexity}`);
    assert.equal(attention.output.written.length, 20);
  });

  it('reads and writes what the reference does with these tokens in sight', async () => {
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
    for (let at = 0; at < tokens.length; at += 16) await read(tokens.slice(at, at + 16));
    const perplexity = Math.exp(surprise / (tokens.length - 1));
    const written: number[] = [];
    while (written.length < maxTokens) {
      written.push(likeliest(row!));
      await read(written.slice(-1));
    }
    assert.ok(output.tokens > 4 * 64);
    assert.deepEqual(output.written, written);
    const difference = Math.abs(Math.log(output.perplexity) - Math.log(perplexity));
    assert.ok(difference < 1e-4, `${difference} nats`);
  });

  it('keeps the tokens with the most attention by the reference, with a decay for older attention', async () => {
    // One token a byte, after the token that begins a text: four reads of sixteen, the last of which finds no room.
    const text = 'The quick brown fox jumps over the lazy dog and then it sleeps.';
    const [budget, recent, step, forget] = [24, 8, 16, 0.8];
    const { output } = await callFunction('kv-eviction', { text, budget, recent, model: TINY });
    assert.equal(output.tokens, 4 * step);
    await deployFrom(path.join(ROOT, 'functions/kv-eviction/fixtures/attention.ts'), 'kv-eviction-attention');
    const tokens = [1, ...Buffer.from(text).map((byte) => byte)].map((byte, i) => (i === 0 ? byte : byte + 3));
    const lengths = [1, 2, 3].map((reads) => reads * step);
    const input = { tokens, lengths, model: TINY_REFERENCE };
    const sums: number[][] = await call(await functionsPlatform(), 'kv-eviction-attention', input);
    const received = tokens.slice(0, 3 * step).map((_, token) =>
      sums.reduce((sum, all, read) => {
        const before = sums[read - 1]?.[token] ?? 0;
        return forget * sum + (all[token] ?? 0) - (all.length > token ? before : 0);
      }, 0),
    );
    const border = received.length - recent;
    const heavy = Array.from({ length: border }, (_, token) => token)
      .sort((a, b) => (received[b] ?? 0) - (received[a] ?? 0))
      .slice(0, budget - recent)
      .sort((a, b) => a - b);
    const rest = tokens.map((_, token) => token).slice(border);
    assert.deepEqual(output.held, [...heavy, ...rest]);
    // The kept tokens are neither the first nor the last ones.
    assert.ok(heavy.some((token, i) => token !== i) && heavy[0] !== border - heavy.length, `${heavy}`);
  });

  it('takes any budget that leaves room for a step in the context', async () => {
    const input = { text: 'The quick brown fox jumps over the lazy dog, '.repeat(6), recent: 8, model: TINY };
    const { output } = await callFunction('kv-eviction', { ...input, budget: 64 - 16 });
    assert.ok(output.tokens > 4 * 64 && output.mostHeld <= 64, `${output.mostHeld} of ${output.tokens}`);
    const { message } = await failingFunction('kv-eviction', { ...input, budget: 64 - 15 });
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
