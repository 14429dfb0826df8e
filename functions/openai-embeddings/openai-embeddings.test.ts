import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BadRequestError, NotFoundError } from 'openai';
import { callFunction, deployFunction, ENCODER, functionsPlatform, RANKER } from '#test/harness/functions.ts';
import { openAiClient } from '../openai-shared/testing.ts';
import { inNineDigits, mostVectors } from './answer-size.ts';

const TEXTS = ['the king of france', 'paris', 'the queen!'];

describe('openai-embeddings', () => {
  const client = async () => {
    await deployFunction('openai-embeddings');
    return openAiClient();
  };

  it('gives a vector of length 1 for each text, the same alone and together, as numbers and as bytes', async () => {
    const { embeddings } = await client();
    const together = await embeddings.create({ model: ENCODER, input: TEXTS, encoding_format: 'float' });
    assert.deepEqual([together.object, together.model], ['list', ENCODER]);
    assert.deepEqual(
      together.data.map(({ index, object }) => [index, object]),
      TEXTS.map((_, i) => [i, 'embedding']),
    );
    let tokens = 0;
    for (const [i, input] of TEXTS.entries()) {
      // The client asks for bytes by default, and decodes them.
      const alone = await embeddings.create({ model: ENCODER, input });
      tokens += alone.usage.prompt_tokens;
      const [one, other] = [alone.data[0]?.embedding ?? [], together.data[i]?.embedding ?? []];
      assert.equal(one.length, 32);
      assert.ok(Math.abs(Math.hypot(...one) - 1) < 1e-5);
      for (const [k, value] of one.entries()) assert.ok(Math.abs(value - (other[k] ?? 0)) < 1e-5);
    }
    assert.deepEqual(together.usage, { prompt_tokens: tokens, total_tokens: tokens });
    const [first, second] = together.data.map(({ embedding }) => embedding);
    assert.notDeepEqual(first, second);
  });

  it('refuses models of other kinds, other dimensions and token ids, with the reason', async () => {
    const { embeddings } = await client();
    const message = (request: Parameters<typeof embeddings.create>[0]) =>
      embeddings.create(request).then(
        () => assert.fail('it was accepted'),
        (error: unknown) => {
          assert.ok(error instanceof BadRequestError || error instanceof NotFoundError, String(error));
          return error.message;
        },
      );
    assert.match(await message({ model: 'no-such', input: 'a' }), /"no-such" does not exist/);
    assert.match(await message({ model: 'x'.repeat(100_000), input: 'a' }), /"x{128}…" does not exist/);
    assert.match(
      await message({ model: RANKER, input: 'a' }),
      /"tiny-ranker" is a reranker; this route needs a model for embeddings/,
    );
    assert.match(await message({ model: ENCODER, input: 'a', dimensions: 16 }), /32 dimensions/);
    assert.match(await message({ model: ENCODER, input: [1, 2, 3] }), /\/input\/0: .*"string"/);
    assert.match(await message({ model: ENCODER, input: ['a', ''] }), /\/input\/1: .*too short/);
  });

  it('gives the reason to a client that invokes the function, too, and lists its models', async () => {
    const { output } = await callFunction('openai-embeddings', { model: RANKER, input: 'a' });
    assert.match(output.error.message, /"tiny-ranker" is not an embedding model\. There are: tiny-encoder/);
    const { models } = await client();
    const { data } = await models.list();
    const found = data.find(({ id }) => id === ENCODER) as unknown as { kind: string; size: number };
    assert.deepEqual([found.kind, found.size], ['embedding', 32]);
  });

  it('takes as many texts as OpenAI, and a text of any length', async () => {
    const { embeddings } = await client();
    const input = new Array<string>(2048).fill('king '.repeat(60));
    const { data, usage } = await embeddings.create({ model: ENCODER, input });
    // Each text has 60 words of one token, and two special tokens around them.
    assert.deepEqual([data.length, usage.prompt_tokens], [2048, 2048 * (60 + 2)]);
    await assert.rejects(embeddings.create({ model: ENCODER, input: [...input, 'a'] }), BadRequestError);
    const long = await embeddings.create({ model: ENCODER, input: ['a', 'king '.repeat(60_000), 'a'] });
    // The encoder reads the first 64 tokens of a longer text; "a" has one token and two special ones.
    assert.deepEqual([long.data.length, long.usage.prompt_tokens], [3, 3 + 64 + 3]);
  });

  it('computes how many vectors fit an answer', () => {
    const [most, longest] = [4 << 20, -1.23456789e-10];
    assert.equal(inNineDigits(Math.fround(longest)).toString().length, 15);
    for (const size of [32, 384, 1024]) {
      const embedding = {
        float: new Array<number>(size).fill(longest),
        base64: 'A'.repeat(4 * Math.ceil((4 * size) / 3)),
      };
      for (const format of ['float', 'base64'] as const) {
        const item = JSON.stringify({ object: 'embedding', index: 99_999, embedding: embedding[format] });
        const characters = mostVectors(size, format) * (item.length + 1);
        assert.ok(characters < most - 1000 && characters > 0.9 * most, `${size} ${format}: ${characters}`);
      }
    }
  });

  it('counts its tokens in the usage of the invocation', async () => {
    const platform = await functionsPlatform();
    const response = await platform.fetch('/v1/embeddings', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: ENCODER, input: TEXTS }),
    });
    const { usage } = (await response.json()) as { usage: { prompt_tokens: number } };
    const id = response.headers.get('content-location') ?? '';
    const record = (await (await platform.fetch(id)).json()) as { usage: { inputTokens: number; gpuMs: number } };
    assert.equal(record.usage.inputTokens, usage.prompt_tokens);
  });
});
