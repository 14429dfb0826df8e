import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { BadRequestError, type default as OpenAI } from 'openai';
import { CHAT, functionsPlatform, LONG } from '#test/harness/functions.ts';
import { openAiClient } from './testing/client.ts';

const ALL = process.env.PIE_TEST_ALL !== undefined;
/** Pages of a tenant's quota, and the tokens that they hold. */
const QUOTA_PAGES = 20;
const QUOTA_TOKENS = 320;

describe('a long prompt', () => {
  let client: OpenAI;
  before(async () => {
    client = await openAiClient();
  });

  /** The requests of one text on each route, whole and streamed, with the name of the field that has the text. */
  const requests = (model: string, text: string): [param: string, request: (from: OpenAI) => Promise<unknown>][] =>
    [false, true].flatMap((stream): [string, (from: OpenAI) => Promise<unknown>][] => [
      [
        'messages',
        (from) => from.chat.completions.create({ model, stream, messages: [{ role: 'user', content: text }] }),
      ],
      ['prompt', (from) => from.completions.create({ model, stream, prompt: text })],
      ['input', (from) => from.responses.create({ model, stream, input: text })],
    ]);

  /** Checks that a request is refused for its length, and returns the message. */
  const refusal = async (request: Promise<unknown>, param: string): Promise<string> => {
    let message = '';
    await assert.rejects(request, (error) => {
      assert.ok(error instanceof BadRequestError, String(error));
      assert.deepEqual([error.code, error.param], ['context_length_exceeded', param], error.message);
      message = error.message;
      return true;
    });
    return message;
  };

  it("is computed beyond the default of 512 pages, up to the model's context", async () => {
    const prompt = 'a'.repeat(8250);
    const { usage, choices } = await client.completions.create({ model: LONG, prompt, max_tokens: 2, n: 2 });
    assert.deepEqual([usage?.prompt_tokens, choices.length], [8251, 2]);
  });

  it('past the context is refused in the words of OpenAI, with the context and the tokens of the prompt', async () => {
    const text = 'word '.repeat(33_000);
    // A chat and a response that is streamed, and with PIE_TEST_ALL all of them.
    const asked = requests(CHAT, text).filter((_, i) => ALL || i === 0 || i === 5);
    for (const [param, request] of asked) {
      const message = await refusal(request(client), param);
      const figures = /maximum context length is 32768 tokens\. However, your (\w+) resulted in (\d+) tokens\./.exec(
        message,
      );
      assert.equal(figures?.[1], param, message);
      assert.ok(Number(figures[2]) > 33_000 && Number(figures[2]) < 33_100, message);
      assert.match(message, new RegExp(`Please reduce the length of the ${param}\\.$`));
    }
  });

  it('without a place to cut it is tokenized, or refused with its length', async () => {
    const message = await refusal(client.completions.create({ model: LONG, prompt: 'a'.repeat(32_768) }), 'prompt');
    assert.match(message, /resulted in 32769 tokens/);
    const endless = await refusal(client.completions.create({ model: LONG, prompt: 'a'.repeat(1 << 20) }), 'prompt');
    assert.match(endless, /context length is 10240 tokens\. .* 1048576 characters; 131072 is the limit of one call/);
  });

  it('past the pool is refused with the pool, its size and what to do', async () => {
    const message = await refusal(client.completions.create({ model: LONG, prompt: 'a'.repeat(10_240) }), 'prompt');
    assert.match(message, /maximum context length is 10240 tokens\. However, your prompt resulted in 10241 tokens\./);
    assert.match(
      message,
      /context of 16384 tokens, but the pool .* 640 KV pages of 16 tokens; .* `pages` .* pie\.toml/,
    );
  });

  const skip = !ALL && 'it computes 10,000 tokens: set PIE_TEST_ALL';
  it('that fills the pool ends the answer for its length', { skip }, async () => {
    const request = { model: LONG, prompt: 'a'.repeat(10_230), max_tokens: 50 };
    const { usage, choices } = await client.completions.create(request);
    assert.deepEqual([usage?.completion_tokens, choices[0]?.finish_reason], [10_240 - 10_231, 'length']);
  });

  it("past the tenant's quota of pages is refused with the quota on every route", async () => {
    const platform = await functionsPlatform();
    const setQuota = async (limit: number | null) => {
      const set = await platform.fetch('/v1/quotas', {
        method: 'PUT',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ quota: 'kv-pages', limit }),
      });
      assert.equal(set.status, 200, await set.text());
    };
    await setQuota(QUOTA_PAGES);
    try {
      for (const [param, request] of requests(CHAT, 'word '.repeat(QUOTA_TOKENS))) {
        const message = await refusal(request(client), param);
        assert.match(
          message,
          new RegExp(`maximum context length is ${QUOTA_TOKENS} tokens\\. However, your ${param} resulted`),
        );
        assert.match(
          message,
          /context of 32768 tokens, but the tenant's quota kv-pages is 20 KV pages .* `pie quota set`/,
        );
      }
      const short = { model: CHAT, prompt: 'word '.repeat(100), max_tokens: 2 };
      assert.equal((await client.completions.create(short)).usage?.prompt_tokens, 101);
    } finally {
      await setQuota(null);
    }
  });
});
