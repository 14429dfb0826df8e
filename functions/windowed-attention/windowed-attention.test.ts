import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHAT, callFunction, longStory, refusedInput, TINY } from '#test/harness/functions.ts';
import { readWindowed } from '#test/harness/reference-text.ts';

/** Context lengths of the stories' model and of `TINY`. */
const CONTEXT = 256;
const TINY_CONTEXT = 64;
/** Tokens in one KV page. */
const PAGE = 16;
const WINDOW = 96;
/** Tokens that may lie beyond the window before it moves: a quarter of its size. */
const slack = (window: number): number => Math.ceil(window / 4);

describe('windowed-attention', () => {
  it('reads four times the context with bounded memory and low perplexity', async () => {
    const text = await longStory();
    const wide = await callFunction('windowed-attention', { text, window: WINDOW, maxTokens: 20 });
    assert.ok(wide.output.tokens >= 4 * CONTEXT, `${wide.output.tokens} tokens`);
    // The window moves once one more token than the slack lies beyond it.
    const bound = WINDOW + slack(WINDOW) + 1;
    assert.ok(wide.output.held <= bound, `${wide.output.held}`);
    // While the window moves, its tokens are copied to new pages beside the old ones.
    const pages = Math.ceil(bound / PAGE) + Math.ceil(WINDOW / PAGE) + 1;
    assert.ok((wide.usage.kvPagesPeak ?? 0) <= pages, `${wide.usage.kvPagesPeak} pages`);
    // The model itself wrote the text at temperature 0.7; with the whole text in sight, its perplexity is about 2.
    assert.ok(wide.output.perplexity < 4, `${wide.output.perplexity}`);
    assert.equal(wide.output.written.length, 20);
  });

  it('reads and writes the same as the reference backend with the same tokens visible', async () => {
    const text = 'The quick brown fox jumps over the lazy dog, '.repeat(6);
    const { output } = await callFunction('windowed-attention', { text, window: 24, maxTokens: 12, model: TINY });
    const expected = await readWindowed(text, { sink: 0, window: 24, slack: slack(24), maxTokens: 12 });
    assert.ok(output.tokens > 4 * TINY_CONTEXT);
    assert.deepEqual(output.written, expected.written);
    assert.equal(output.held, expected.visible.length);
    const difference = Math.abs(Math.log(output.perplexity) - Math.log(expected.perplexity));
    assert.ok(difference < 1e-4, `${difference} nats`);
  });

  it('writes the same as text-completion while the whole text fits the window', async () => {
    const prompt = 'Once upon a time there was a little dog.';
    const windowed = await callFunction('windowed-attention', { text: prompt, window: 120, maxTokens: 40 });
    const plain = await callFunction('text-completion', { prompt, temperature: 0, maxTokens: 40 });
    assert.deepEqual(windowed.output.written, plain.output.tokens);
  });

  it('reads a text with a model that has no begin-of-text token', async () => {
    const prompt = 'Once upon a time there was a little dog.';
    const input = { text: prompt, window: 120, maxTokens: 8, model: CHAT };
    const { output } = await callFunction('windowed-attention', input);
    const plain = await callFunction('text-completion', { prompt, temperature: 0, maxTokens: 8, model: CHAT });
    // The function ignores end-of-text tokens, so it may write more than text-completion.
    assert.deepEqual(output.written.slice(0, plain.output.tokens.length), plain.output.tokens);
    assert.ok(output.perplexity > 1 && Number.isFinite(output.perplexity), `${output.perplexity}`);
    const single = await callFunction('windowed-attention', { text: 'a', model: CHAT });
    assert.deepEqual([single.output.tokens, single.output.perplexity], [1, 1]);
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('windowed-attention', { text: 'x', window: 0 }), {
      status: 422,
      field: '/window',
    });
  });
});
