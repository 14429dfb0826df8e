import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type OpenAI from 'openai';
import { BadRequestError } from 'openai';
import { CHAT, callFunction, SMALL, STORIES, TINY, TINY_REFERENCE } from '#test/harness/functions.ts';
import { tokenCounter } from '#test/harness/tokens.ts';
import { NOT_TOKENS, openAiClient } from '../openai-shared/testing/client.ts';

const PROMPT = 'Once upon a time';

/** Request members beyond OpenAI's API. The type `object` hides them from the client's types. */
const extra = (members: object): object => members;

describe('openai-completions', () => {
  it('gives the text of text-completion at temperature 0, in one piece and as a stream', async () => {
    const client = await openAiClient();
    const { output } = await callFunction('text-completion', { prompt: PROMPT, temperature: 0, maxTokens: 20 });
    const request = { model: STORIES, prompt: PROMPT, temperature: 0, max_tokens: 20 };
    const { choices, usage, object, id } = await client.completions.create(request);
    assert.equal(choices[0]?.text, output.text);
    assert.equal(choices[0]?.finish_reason, 'length');
    assert.equal(object, 'text_completion');
    assert.match(id, /^cmpl-\w+$/);
    const count = await tokenCounter(STORIES);
    assert.equal(usage?.prompt_tokens, count.begin(PROMPT));
    assert.equal(usage?.completion_tokens, output.tokens.length);
    assert.equal(usage?.total_tokens, count.begin(PROMPT) + 20);

    let text = '';
    const finishes: string[] = [];
    const usages: unknown[] = [];
    const stream = await client.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.text ?? '';
      if (chunk.choices[0]?.finish_reason) finishes.push(chunk.choices[0].finish_reason);
      if (chunk.usage) usages.push(chunk.usage.total_tokens);
    }
    assert.deepEqual([text, finishes, usages], [output.text, ['length'], [usage?.total_tokens]]);
  });

  it("reports the float64 reference's log-probabilities for prompts and generated text", async () => {
    const client = await openAiClient();
    const score = async (model: string) => {
      const prompt = [1, 72, 105, 33, 32, 79, 110, 99, 101];
      const [scored] = (await client.completions.create({ model, prompt, echo: true, logprobs: 3, max_tokens: 0 }))
        .choices;
      return scored?.logprobs;
    };
    const [device, reference] = [await score(TINY), await score(TINY_REFERENCE)];
    // Evaluation harnesses count on one entry for each id of the prompt.
    assert.deepEqual([device?.tokens?.length, device?.token_logprobs?.[0], device?.top_logprobs?.[0]], [9, null, null]);
    const [mine, theirs] = [device?.token_logprobs?.slice(1) ?? [], reference?.token_logprobs?.slice(1) ?? []];
    assert.equal(mine.length, 8);
    for (const [i, logprob] of mine.entries())
      assert.ok(Math.abs(logprob - (theirs[i] ?? 0)) < 1e-3, `${i}: ${logprob}`);
    const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(sum(mine) - sum(theirs)) < 1e-3);
    assert.deepEqual(Object.keys(device?.top_logprobs?.[3] ?? {}), Object.keys(reference?.top_logprobs?.[3] ?? {}));

    // Log-probabilities of generated text equal those of the same text given as a prompt.
    const said = await client.completions.create({
      model: STORIES,
      prompt: PROMPT,
      temperature: 0,
      max_tokens: 6,
      logprobs: 0,
    });
    const given = await client.completions.create({
      model: STORIES,
      prompt: PROMPT + (said.choices[0]?.text ?? ''),
      echo: true,
      logprobs: 0,
      max_tokens: 0,
    });
    const told = said.choices[0]?.logprobs?.token_logprobs ?? [];
    assert.equal(given.choices[0]?.text, PROMPT + said.choices[0]?.text);
    const again = given.choices[0]?.logprobs?.token_logprobs?.slice(-6) ?? [];
    assert.equal(told.length, 6);
    for (const [i, logprob] of told.entries()) assert.ok(Math.abs(logprob - (again[i] ?? 0)) < 1e-3);

    // A forced text has the log-probabilities of the same text when the model chose it.
    const forced = await client.completions.create({
      model: STORIES,
      prompt: PROMPT,
      temperature: 0,
      max_tokens: 6,
      logprobs: 0,
      ...extra({ script: [said.choices[0]?.text] }),
    });
    const rescored = forced.choices[0]?.logprobs?.token_logprobs ?? [];
    assert.equal(rescored.length, 6);
    for (const [i, logprob] of rescored.entries()) assert.ok(Math.abs(logprob - (told[i] ?? 0)) < 1e-3);

    // A forced text that the model would not choose has the log-probabilities of the same text given as a prompt.
    const improbable = await client.completions.create({
      model: STORIES,
      prompt: PROMPT,
      temperature: 0,
      max_tokens: 6,
      logprobs: 0,
      ...extra({ script: [' xylophone quantum'] }),
    });
    const echoed = await client.completions.create({
      model: STORIES,
      prompt: `${PROMPT} xylophone quantum`,
      echo: true,
      logprobs: 0,
      max_tokens: 0,
    });
    // Leave out the last log-probability of the forced text: it is that of the end-of-text token.
    const scored = improbable.choices[0]?.logprobs?.token_logprobs?.slice(0, -1) ?? [];
    const tail = echoed.choices[0]?.logprobs?.token_logprobs?.slice(-scored.length) ?? [];
    assert.ok(scored.length > 3 && scored.some((logprob) => logprob < -8));
    for (const [i, logprob] of scored.entries()) assert.ok(Math.abs(logprob - (tail[i] ?? 0)) < 1e-3);
  });

  it('gives a prompt token the same log-probability in token_logprobs and in top_logprobs', async () => {
    const client = await openAiClient();
    const prompt = Array.from({ length: 200 }, (_, i) => 35 + ((7 * i) % 90));
    const { choices } = await client.completions.create({
      model: SMALL,
      prompt,
      echo: true,
      logprobs: 20,
      max_tokens: 0,
    });
    const { tokens = [], token_logprobs: own = [], top_logprobs: top = [] } = choices[0]?.logprobs ?? {};
    // Skip U+FFFD, the text of every token that is a part of a character: the entry may belong to another token.
    const listed = tokens.flatMap((token, i) => {
      const { [token]: value } = token === '\ufffd' ? {} : (top?.[i] ?? {});
      return value === undefined ? [] : [{ own: own?.[i], value }];
    });
    assert.ok(listed.length > 8);
    for (const { own, value } of listed) assert.equal(own, value);
  });

  it('scores as many prompts of token ids as a request may have', async () => {
    const client = await openAiClient();
    const [prompts, tokens] = [64, 129];
    const prompt = Array.from({ length: prompts }, (_, p) =>
      Array.from({ length: tokens }, (_, i) => 3 + ((7 * i + p) % 250)),
    );
    const request = { model: SMALL, echo: true, logprobs: 1, max_tokens: 0 };
    const { choices } = await client.completions.create({ ...request, prompt });
    assert.equal(choices.length, prompt.length);
    for (const { logprobs } of choices) assert.equal(logprobs?.token_logprobs?.length, tokens);
    // The last prompt has the same log-probabilities when it is sent alone.
    const [alone] = (await client.completions.create({ ...request, prompt: prompt.at(-1) ?? [] })).choices;
    const [mine = [], last = []] = [alone, choices.at(-1)].map((choice) => choice?.logprobs?.token_logprobs?.slice(1));
    assert.equal(mine.length, tokens - 1);
    for (const [i, logprob] of mine.entries()) assert.ok(Math.abs(logprob - (last[i] ?? 1)) < 1e-3, `${i}: ${logprob}`);
  });

  it('takes the most probable token with a top_p of 0', async () => {
    const client = await openAiClient();
    const ask = async (more: object) => {
      const { choices } = await client.completions.create({ model: STORIES, prompt: PROMPT, max_tokens: 12, ...more });
      return choices[0]?.text;
    };
    for (const more of [{}, { logprobs: 0 }, { presence_penalty: 1 }])
      assert.equal(await ask({ top_p: 0, ...more }), await ask({ temperature: 0, ...more }));
    // A float of 32 bits cannot represent this value.
    assert.equal(await ask({ top_p: 1e-50 }), await ask({ temperature: 0 }));
  });

  it('lists the log-probability of every token that the model chose, also of those without text', async () => {
    const client = await openAiClient();
    const prompt = [1, 9038, 2501, 263, 931];
    const endOfText = 2;
    const ends = { model: STORIES, prompt, temperature: 0, logprobs: 1, logit_bias: { [endOfText]: 100 } };
    const ask = async (more: object) => {
      const { choices } = await client.completions.create({ ...ends, ...more, ...extra({ return_token_ids: true }) });
      return choices[0] as OpenAI.CompletionChoice & { readonly token_ids: readonly number[] };
    };
    const given = await ask({ prompt: [...prompt, endOfText], echo: true, max_tokens: 0 });
    // Evaluation harnesses that score a prompt let the model generate one token, and ignore it.
    const scored = await ask({ echo: true, max_tokens: 1 });
    assert.deepEqual([scored.finish_reason, scored.logprobs?.tokens], ['stop', given.logprobs?.tokens]);
    assert.equal(scored.logprobs?.text_offset?.at(-1), scored.text.length);
    const [mine = [], theirs = []] = [scored, given].map(({ logprobs }) => logprobs?.token_logprobs?.slice(1));
    assert.equal(mine.length, prompt.length);
    for (const [i, logprob] of mine.entries())
      assert.ok(Math.abs(logprob - (theirs[i] ?? 1)) < 1e-3, `${i}: ${logprob}, ${theirs[i]}`);

    for (const more of [{}, { ignore_eos: true }, { stop: ['never'] }]) {
      const { logprobs, token_ids } = await ask({ max_tokens: 3, ...more });
      const streamed: (readonly string[])[] = [];
      const request = { ...ends, max_tokens: 3, ...more };
      for await (const chunk of await client.completions.create({ ...request, stream: true }))
        streamed.push(chunk.choices[0]?.logprobs?.tokens ?? []);
      assert.deepEqual([...new Set(token_ids)], [endOfText]);
      assert.equal(logprobs?.tokens?.length, token_ids.length);
      assert.deepEqual(streamed.flat(), logprobs?.tokens);
    }
  });

  it('lists the most probable of several alternatives that have the same text', async () => {
    const client = await openAiClient();
    // Within these characters, the model expects other parts of characters, whose texts are all U+FFFD.
    const prompt = '今天天气很好，我们去公园散步。🦊龘靐';
    const bestOf = async (logprobs: number) => {
      const request = { model: CHAT, prompt, echo: true, logprobs, max_tokens: 0 };
      const [scored] = (await client.completions.create(request)).choices;
      return (scored?.logprobs?.top_logprobs ?? []).map((top) => Math.max(...Object.values(top ?? { none: 0 })));
    };
    const [one, many] = [await bestOf(1), await bestOf(20)];
    assert.ok(one.length > 10);
    assert.equal(many.length, one.length);
    for (const [i, best] of one.entries())
      assert.ok(Math.abs(best - (many[i] ?? 1)) < 1e-3, `${i}: ${best}, ${many[i]}`);
  });

  it('gives n choices, accepts several prompts, and repeats its output for a seed', async () => {
    const client = await openAiClient();
    const ask = async (n: number, prompt: string | string[] = PROMPT): Promise<string[]> => {
      const { choices } = await client.completions.create({ model: STORIES, prompt, n, seed: 11, max_tokens: 16 });
      assert.deepEqual(
        choices.map(({ index }) => index),
        choices.map((_, i) => i),
      );
      return choices.map(({ text }) => text);
    };
    const three = await ask(3);
    assert.equal(new Set(three).size, 3);
    assert.deepEqual(await ask(3), three);
    assert.deepEqual(await ask(1), three.slice(0, 1));
    const [first, second] = await ask(1, [PROMPT, 'The dog']);
    assert.equal(first, three[0]);
    assert.notEqual(second, first);
  });

  it('gives as many choices as the OpenAI API', async () => {
    const client = await openAiClient();
    const request = { model: STORIES, prompt: 'Once upon a', max_tokens: 1, seed: 3, n: 128 };
    const { choices, usage } = await client.completions.create(request);
    assert.deepEqual(
      choices.map(({ index }) => index),
      Array.from({ length: 128 }, (_, i) => i),
    );
    assert.equal(usage?.completion_tokens, 128);
    const few = await client.completions.create({ ...request, n: 2 });
    assert.deepEqual(few.choices, choices.slice(0, 2));
  });

  it('ends at a stop string, and applies biases and penalties', async () => {
    const client = await openAiClient();
    const ask = async (more: object): Promise<{ text: string; finish_reason: string }> => {
      const { choices } = await client.completions.create({
        model: STORIES,
        prompt: PROMPT,
        temperature: 0,
        max_tokens: 40,
        ...more,
      });
      return choices[0] as { text: string; finish_reason: string };
    };
    const plain = (await ask({})).text;
    const stop = plain.slice(14, 20);
    const stopped = await ask({ stop: [stop, 'never'] });
    assert.deepEqual([stopped.text, stopped.finish_reason], [plain.slice(0, plain.indexOf(stop)), 'stop']);

    // A token outside the 256 most probable, which only a bias can make a candidate.
    const rare = 22567;
    const { choices } = await client.completions.create({
      model: STORIES,
      prompt: PROMPT,
      temperature: 0,
      max_tokens: 3,
      logit_bias: { [rare]: 100 },
      logprobs: 0,
    });
    assert.equal(new Set(choices[0]?.logprobs?.tokens).size, 1);
    assert.notEqual(choices[0]?.text, plain.slice(0, choices[0]?.text.length));
    const comma = 29892;
    const { choices: banned } = await client.completions.create({
      model: STORIES,
      prompt: PROMPT,
      temperature: 0,
      max_tokens: 1,
      logit_bias: { [comma]: -100 },
    });
    assert.ok(plain.startsWith(','));
    assert.notEqual(banned[0]?.text, ',');

    const shareOfDistinctWords = (text: string): number => {
      const words = text.split(/\W+/);
      return new Set(words).size / words.length;
    };
    const penalised = await ask({ frequency_penalty: 2, presence_penalty: 2 });
    assert.ok(shareOfDistinctWords(penalised.text) > shareOfDistinctWords(plain));
  });

  it('reports the offset of each token in the text, also with stop strings and echo', async () => {
    const client = await openAiClient();
    const request = { model: STORIES, prompt: PROMPT, temperature: 0, max_tokens: 12, logprobs: 0 };
    const plain = (await client.completions.create(request)).choices[0]?.text ?? '';
    // The function holds back text that begins like a stop string. The first two stops only begin like the output; the third occurs in it.
    const stops = [`${plain.slice(1, 8)}X`, `${plain.slice(12, 15)}X`, plain.slice(20, 24)];
    for (const more of [{ stop: stops }, { stop: stops, echo: true }, { stop: stops.slice(0, 2) }]) {
      const { choices } = await client.completions.create({ ...request, ...more });
      const pieces: OpenAI.CompletionChoice[] = [];
      for await (const chunk of await client.completions.create({ ...request, ...more, stream: true }))
        pieces.push(...chunk.choices);
      const text = pieces.map((piece) => piece.text).join('');
      const streamed = (of: 'tokens' | 'text_offset') => pieces.flatMap(({ logprobs }) => [...(logprobs?.[of] ?? [])]);
      const { tokens = [], text_offset: offsets = [] } = choices[0]?.logprobs ?? {};
      assert.equal(text, choices[0]?.text);
      assert.deepEqual([streamed('tokens'), streamed('text_offset')], [tokens, offsets]);
      assert.ok(tokens.length > 4 && tokens.join('').startsWith(text));
      // The last token may begin before a stop string and end in it.
      for (const [i, token] of tokens.slice(0, -1).entries())
        assert.equal(text.slice(offsets[i], (offsets[i] ?? 0) + token.length), token);
      assert.ok((offsets.at(-1) ?? 0) < text.length);
    }
  });

  it('counts the tokens that the prefix cache supplied', async () => {
    const client = await openAiClient();
    const prompt = `A story that nobody has told before, number ${Date.now()}: there were three foxes in a wood and`;
    const ask = () => client.completions.create({ model: CHAT, prompt, max_tokens: 1 });
    const before = (await ask()).usage?.prompt_tokens_details?.cached_tokens ?? -1;
    const { prompt_tokens = 0, prompt_tokens_details } = (await ask()).usage ?? {};
    const cached = prompt_tokens_details?.cached_tokens ?? 0;
    assert.ok(before < 16 && cached >= 16 && cached < prompt_tokens, `${before}, then ${cached} of ${prompt_tokens}`);
  });

  it('generates past the end-of-text token with ignore_eos, and returns token ids on request', async () => {
    const client = await openAiClient();
    const endOfText = 2;
    const ask = async (more: object) => {
      const { choices } = await client.completions.create({
        model: STORIES,
        prompt: PROMPT,
        temperature: 0,
        max_tokens: 3,
        ...more,
      });
      return choices[0] as unknown as { token_ids?: number[]; finish_reason: string };
    };
    const { output } = await callFunction('text-completion', { prompt: PROMPT, temperature: 0, maxTokens: 3 });
    assert.deepEqual((await ask({ return_token_ids: true })).token_ids, output.tokens);
    assert.equal((await ask({})).token_ids, undefined);
    const ends = { logit_bias: { [endOfText]: 100 }, return_token_ids: true };
    assert.equal((await ask(ends)).finish_reason, 'stop');
    const on = await ask({ ...ends, ignore_eos: true });
    assert.deepEqual([on.token_ids, on.finish_reason], [[endOfText, endOfText, endOfText], 'length']);
    const ids: (readonly number[] | undefined)[] = [];
    const request = { model: STORIES, prompt: PROMPT, temperature: 0, max_tokens: 3, return_token_ids: true };
    for await (const chunk of await client.completions.create({ ...request, stream: true }))
      ids.push((chunk.choices[0] as { token_ids?: readonly number[] } | undefined)?.token_ids);
    assert.deepEqual(
      ids.flatMap((piece) => piece ?? []),
      output.tokens,
    );
  });

  it('refuses unsupported parameters by name', async () => {
    const client = await openAiClient();
    const refused = async (more: object, param: string | undefined, code = 'invalid-parameter') => {
      const asked = client.completions.create({ model: STORIES, prompt: PROMPT, ...more });
      await assert.rejects(asked, (error) => {
        assert.ok(error instanceof BadRequestError, String(error));
        assert.deepEqual([error.status, error.param, error.code], [400, param, code]);
        assert.ok(error.requestID);
        return true;
      });
    };
    await refused({ suffix: 'The end.' }, 'suffix');
    await refused({ best_of: 3 }, 'best_of');
    await refused({ max_tokens: -1 }, 'max_tokens');
    await refused({ temperature: 'hot' }, 'temperature');
    await refused({ logit_bias: { 99999: 1 } }, 'logit_bias.99999');
    for (const id of NOT_TOKENS) await refused({ logit_bias: { [id]: -100 } }, 'logit_bias');
    await refused({ reasoning: 'hard' }, 'reasoning');
    await refused({ prompt: 'word '.repeat(300), stream: true }, 'prompt', 'context_length_exceeded');
    // This prompt is too long to be tokenized.
    await refused({ prompt: 'word '.repeat(200_000) }, 'prompt', 'context_length_exceeded');
  });
});
