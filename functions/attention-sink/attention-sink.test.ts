import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHAT, callFunction, longStory, refusedInput, TINY } from '#test/harness/functions.ts';
import { readWindowed } from '#test/harness/reference-text.ts';

const CONTEXT = 256;
const PAGE = 16;
const SINK = 4;
/** Tokens past the window before it moves: a quarter of it. */
const slack = (window: number): number => Math.ceil(window / 4);

describe('attention-sink', () => {
  it('reads four times the context with bounded memory and low perplexity', async () => {
    const text = await longStory();
    const wide = await callFunction('attention-sink', { text, window: 96, maxTokens: 20 });
    assert.ok(wide.output.tokens >= 4 * CONTEXT, `${wide.output.tokens} tokens`);
    const bound = SINK + 96 + slack(96) + 1;
    const { held, written } = wide.output;
    assert.ok(held.length <= bound, `${held.length}`);
    // The first tokens of the text, and its last ones.
    const beginning = await callFunction('attention-sink', { text: text.slice(0, 40), window: 96 });
    assert.deepEqual(held.slice(0, SINK), beginning.output.held.slice(0, SINK));
    assert.deepEqual(held.slice(-written.length), written);
    // The pages held, plus the copy of the kept ones during a move.
    const pages = Math.ceil(bound / PAGE) + Math.ceil((SINK + 96) / PAGE) + 1;
    assert.ok((wide.usage.kvPagesPeak ?? 0) <= pages, `${wide.usage.kvPagesPeak} pages`);
    // The model itself wrote the text at temperature 0.7; with the whole text in sight, its perplexity is about 2.
    assert.ok(wide.output.perplexity < 4, `${wide.output.perplexity}`);
    assert.equal(written.length, 20);
  });

  it('reads and writes what the reference does with these tokens in sight', async () => {
    const text = 'The quick brown fox jumps over the lazy dog, '.repeat(6);
    const { output } = await callFunction('attention-sink', { text, window: 24, maxTokens: 12, model: TINY });
    const expected = await readWindowed(text, { sink: SINK, window: 24, slack: slack(24), maxTokens: 12 });
    assert.ok(output.tokens > 4 * 64);
    assert.deepEqual(output.written, expected.written);
    assert.deepEqual(output.held, expected.visible);
    const difference = Math.abs(Math.log(output.perplexity) - Math.log(expected.perplexity));
    assert.ok(difference < 1e-4, `${difference} nats`);
  });

  it('writes the same as text-completion while the whole text fits the window', async () => {
    const prompt = 'Once upon a time there was a little dog.';
    const windowed = await callFunction('attention-sink', { text: prompt, window: 120, maxTokens: 40 });
    const plain = await callFunction('text-completion', { prompt, temperature: 0, maxTokens: 40 });
    assert.deepEqual(windowed.output.written, plain.output.tokens);
  });

  it('reads a text with a model that has no token to begin with', async () => {
    const prompt = 'Once upon a time there was a little dog.';
    const input = { text: prompt, window: 120, maxTokens: 8, model: CHAT };
    const { output } = await callFunction('attention-sink', input);
    const plain = await callFunction('text-completion', { prompt, temperature: 0, maxTokens: 8, model: CHAT });
    // The function ignores end-of-text tokens, so it may write more than text-completion.
    assert.deepEqual(output.written.slice(0, plain.output.tokens.length), plain.output.tokens);
    assert.ok(output.perplexity > 1 && Number.isFinite(output.perplexity), `${output.perplexity}`);
    const single = await callFunction('attention-sink', { text: 'a', model: CHAT });
    assert.deepEqual([single.output.tokens, single.output.perplexity], [1, 1]);
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('attention-sink', { text: 'x', window: 0 }), { status: 422, field: '/window' });
  });
});
