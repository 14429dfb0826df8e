import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CHAT, callFunction, longStory, refusedInput, TINY } from '#test/harness/functions.ts';
import { readWindowed } from '#test/harness/reference-text.ts';

/** Context length of stories15m, the default model. */
const CONTEXT = 256;
const TINY_CONTEXT = 64;
/** Tokens of one page. */
const PAGE = 16;
/** Default number of first tokens that the function keeps. */
const SINK = 4;
/** The library's default slack: the number of tokens beyond sink and window that a context may hold before the window moves. */
const slack = (window: number): number => Math.ceil(window / 4);

describe('attention-sink', () => {
  it('reads a text of four times the context with bounded memory and low perplexity', async () => {
    const text = await longStory();
    const window = 96;
    const long = await callFunction('attention-sink', { text, window, maxTokens: 20 });
    assert.ok(long.output.tokens >= 4 * CONTEXT, `${long.output.tokens} tokens`);
    // The window moves only before a token, so one more token may follow the one that uses up the slack.
    const mostHeld = SINK + window + slack(window) + 1;
    const { held, written } = long.output;
    assert.ok(held.length <= mostHeld, `${held.length}`);
    // The context holds the first tokens of the text and, at its end, the tokens that the model wrote.
    const beginning = await callFunction('attention-sink', { text: text.slice(0, 40), window });
    assert.deepEqual(held.slice(0, SINK), beginning.output.held.slice(0, SINK));
    assert.deepEqual(held.slice(-written.length), written);
    // When the window moves, the old pages and the copy of the kept tokens exist at once. Allow one more page.
    const pages = Math.ceil(mostHeld / PAGE) + Math.ceil((SINK + window) / PAGE) + 1;
    assert.ok((long.usage.kvPagesPeak ?? 0) <= pages, `${long.usage.kvPagesPeak} pages`);
    // The model itself wrote the text at temperature 0.7; with the whole text in sight, its perplexity is about 2.
    assert.ok(long.output.perplexity < 4, `${long.output.perplexity}`);
    assert.equal(written.length, 20);
  });

  it('reads and writes the same as the float64 reference that holds the same tokens', async () => {
    const text = 'The quick brown fox jumps over the lazy dog, '.repeat(6);
    const { output } = await callFunction('attention-sink', { text, window: 24, maxTokens: 12, model: TINY });
    const expected = await readWindowed(text, { sink: SINK, window: 24, slack: slack(24), maxTokens: 12 });
    assert.ok(output.tokens > 4 * TINY_CONTEXT);
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

  it('reads a text with a model that has no begin-of-text token', async () => {
    const prompt = 'Once upon a time there was a little dog.';
    const input = { text: prompt, window: 120, maxTokens: 8, model: CHAT };
    const { output } = await callFunction('attention-sink', input);
    const plain = await callFunction('text-completion', { prompt, temperature: 0, maxTokens: 8, model: CHAT });
    // The function ignores end-of-text tokens, so it may write more than text-completion.
    assert.deepEqual(output.written.slice(0, plain.output.tokens.length), plain.output.tokens);
    assert.ok(output.perplexity > 1 && Number.isFinite(output.perplexity), `${output.perplexity}`);
    // The only token of this text has no predecessor, so nothing is predicted. The perplexity is then 1.
    const single = await callFunction('attention-sink', { text: 'a', model: CHAT });
    assert.deepEqual([single.output.tokens, single.output.perplexity], [1, 1]);
  });

  it('names the field of a bad input', async () => {
    assert.deepEqual(await refusedInput('attention-sink', { text: 'x', window: 0 }), { status: 422, field: '/window' });
  });
});
