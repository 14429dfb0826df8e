import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BadRequestError, NotFoundError } from 'openai';
import { callFunction, deployFunction, ENCODER, functionsPlatform, RANKER } from '#test/harness/functions.ts';
import { openAiClient } from '../openai-shared/testing/client.ts';
import { inNineDigits, mostVectors } from './answer-size.ts';

const TEXTS = ['the king of france', 'paris', 'the queen!'];
/** Numbers in a vector of the test's encoder. */
const VECTOR_SIZE = 32;
/** Largest difference between numbers that may be rounded differently. */
const ROUNDING = 1e-5;
/** The encoder cuts a longer text to this many tokens. */
const MAX_TEXT_TOKENS = 64;
/** The encoder adds one special token before each text and one after it. */
const SPECIAL_TOKENS = 2;
/** Most characters of an inferlet's result. */
const MAX_RESULT = 4 << 20;
/** A number that takes the most characters in JSON after rounding to nine digits: 15. */
const LONGEST_NUMBER = -1.23456789e-10;

describe('openai-embeddings', () => {
  const openClient = async () => {
    await deployFunction('openai-embeddings');
    return openAiClient();
  };

  it('returns a unit vector for each text, the same for one text and for several, and the same as numbers and as bytes', async () => {
    const { embeddings } = await openClient();
    const together = await embeddings.create({ model: ENCODER, input: TEXTS, encoding_format: 'float' });
    assert.deepEqual([together.object, together.model], ['list', ENCODER]);
    assert.deepEqual(
      together.data.map(({ index, object }) => [index, object]),
      TEXTS.map((_, i) => [i, 'embedding']),
    );
    let tokens = 0;
    for (const [i, input] of TEXTS.entries()) {
      // Without `encoding_format`, the OpenAI client asks for bytes and decodes them.
      const alone = await embeddings.create({ model: ENCODER, input });
      tokens += alone.usage.prompt_tokens;
      const aloneVector = alone.data[0]?.embedding ?? [];
      const togetherVector = together.data[i]?.embedding ?? [];
      assert.equal(aloneVector.length, VECTOR_SIZE);
      assert.ok(Math.abs(Math.hypot(...aloneVector) - 1) < ROUNDING);
      for (const [k, value] of aloneVector.entries()) {
        assert.ok(Math.abs(value - (togetherVector[k] ?? 0)) < ROUNDING);
      }
    }
    assert.deepEqual(together.usage, { prompt_tokens: tokens, total_tokens: tokens });
    const [first, second] = together.data.map(({ embedding }) => embedding);
    assert.notDeepEqual(first, second);
  });

  it('tells the reason when it refuses a model, a number of dimensions, token ids or an empty text', async () => {
    const { embeddings } = await openClient();
    const refusalOf = (request: Parameters<typeof embeddings.create>[0]) =>
      embeddings.create(request).then(
        () => assert.fail('it was accepted'),
        (error: unknown) => {
          assert.ok(error instanceof BadRequestError || error instanceof NotFoundError, String(error));
          return error.message;
        },
      );
    assert.match(await refusalOf({ model: 'no-such', input: 'a' }), /"no-such" does not exist/);
    assert.match(await refusalOf({ model: 'x'.repeat(100_000), input: 'a' }), /"x{128}…" does not exist/);
    assert.match(
      await refusalOf({ model: RANKER, input: 'a' }),
      /"tiny-ranker" is a reranker; this route needs a model for embeddings/,
    );
    assert.match(await refusalOf({ model: ENCODER, input: 'a', dimensions: 16 }), /32 dimensions/);
    assert.match(await refusalOf({ model: ENCODER, input: [1, 2, 3] }), /input\[0\] must be string, not number/);
    assert.match(await refusalOf({ model: ENCODER, input: ['a', ''] }), /input\[1\] is too short/);
  });

  it('returns the reason as output when a client invokes the function directly, and its models are in the list of models', async () => {
    const { output } = await callFunction('openai-embeddings', { model: RANKER, input: 'a' });
    assert.match(output.error.message, /"tiny-ranker" is not an embedding model\. There are: tiny-encoder/);
    const { models } = await openClient();
    const { data } = await models.list();
    const encoder = data.find(({ id }) => id === ENCODER) as unknown as { kind: string; size: number };
    assert.deepEqual([encoder.kind, encoder.size], ['embedding', VECTOR_SIZE]);
  });

  it('accepts as many texts as the OpenAI API, and a text of any length', async () => {
    const { embeddings } = await openClient();
    const [maxTexts, words] = [2048, 60];
    const input = new Array<string>(maxTexts).fill('king '.repeat(words));
    const { data, usage } = await embeddings.create({ model: ENCODER, input });
    // Each word is one token.
    assert.deepEqual([data.length, usage.prompt_tokens], [maxTexts, maxTexts * (words + SPECIAL_TOKENS)]);
    await assert.rejects(embeddings.create({ model: ENCODER, input: [...input, 'a'] }), BadRequestError);
    const long = await embeddings.create({ model: ENCODER, input: ['a', 'king '.repeat(60_000), 'a'] });
    // The long text is cut. The text "a" is one token.
    const tokensOfA = 1 + SPECIAL_TOKENS;
    assert.deepEqual([long.data.length, long.usage.prompt_tokens], [3, tokensOfA + MAX_TEXT_TOKENS + tokensOfA]);
  });

  it('computes a number of vectors that fits in one answer and fills at least 90 % of it', () => {
    assert.equal(inNineDigits(Math.fround(LONGEST_NUMBER)).toString().length, 15);
    for (const size of [32, 384, 1024]) {
      const embedding = {
        float: new Array<number>(size).fill(LONGEST_NUMBER),
        base64: 'A'.repeat(4 * Math.ceil((4 * size) / 3)),
      };
      for (const format of ['float', 'base64'] as const) {
        const item = JSON.stringify({ object: 'embedding', index: 99_999, embedding: embedding[format] });
        const comma = 1;
        const characters = mostVectors(size, format) * (item.length + comma);
        // The rest of the answer, besides its vectors, needs at most 1,000 characters.
        assert.ok(characters < MAX_RESULT - 1000, `${size} ${format}: ${characters} are too many`);
        assert.ok(characters > 0.9 * MAX_RESULT, `${size} ${format}: ${characters} are too few`);
      }
    }
  });

  it('counts the `prompt_tokens` of an answer as input tokens in the usage of the invocation', async () => {
    const platform = await functionsPlatform();
    const response = await platform.fetch('/v1/embeddings', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: ENCODER, input: TEXTS }),
    });
    const { usage } = (await response.json()) as { usage: { prompt_tokens: number } };
    const invocationPath = response.headers.get('content-location') ?? '';
    const invocation = (await (await platform.fetch(invocationPath)).json()) as { usage: { inputTokens: number } };
    assert.equal(invocation.usage.inputTokens, usage.prompt_tokens);
  });
});
