import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { Platform, type ProgramResult, until } from '#test/harness/platform.ts';
import { LAYOUTS, type Layout, QUESTION } from './layouts.ts';
import { writeSmallModel } from './write.ts';

/** Layouts of the short run: one without a token to begin with, and one whose template takes parts and knows no tools. */
const QUICK = ['qwen2.5-0.5b-instruct', 'llava-1.5-7b-hf'];
/** Layouts whose template refuses the result of a call. */
const WITHOUT_TOOL_TURNS = ['mistral-7b-instruct-v0.3'];
const FUNCTIONS = ['text-completion', 'openai-chat', 'openai-completions'];

const WEATHER = {
  type: 'object',
  properties: { city: { enum: ['Paris', 'Rome'] }, metric: { type: 'boolean' } },
  required: ['city', 'metric'],
  additionalProperties: false,
};

for (const layout of LAYOUTS) {
  const skip = !QUICK.includes(layout.name) && !process.env.PIE_TEST_ALL && 'npm run test:all';
  const { expected } = layout;
  describe(`a platform whose only model is ${layout.name}`, { skip, concurrency: false }, () => {
    let root: string;
    let directory: string;
    before(async () => {
      root = await mkdtemp(path.join(os.tmpdir(), 'pie-layout-'));
      directory = path.join(root, 'model');
      await writeSmallModel(layout, directory);
    });
    after(() => rm(root, { recursive: true, force: true }));
    const start = () =>
      Platform.start({
        config: `[[model]]\nname = "m"\nsource = "file:${directory}"\n`,
        env: { PIE_MODELS: path.join(root, 'cache') },
        functions: FUNCTIONS,
        proves: true,
      });

    if ('refusal' in expected) {
      it('ends with the name of the field', async () => {
        await assert.rejects(start(), ({ message }: Error) => {
          assert.match(message, /config\.json: "model_type"/);
          return true;
        });
      });
    } else platformTests(layout, start, () => loadTokenizer(directory));
  });
}

function platformTests(layout: Layout, start: () => Promise<Platform>, load: () => Promise<Tokenizer>): void {
  const { expected } = layout;
  assert.ok('bos' in expected);
  let platform: Platform;
  let client: OpenAI;
  let tokenizer: Tokenizer;
  before(async () => {
    platform = await start();
    tokenizer = await load();
    client = new OpenAI({ baseURL: `${platform.url}/v1`, apiKey: platform.apiKey, maxRetries: 0 });
  });
  after(() => platform?.[Symbol.asyncDispose]());

  const complete = (input: object): Promise<ProgramResult> =>
    platform.pie(['invoke', 'text-completion', '--input', JSON.stringify({ maxTokens: 4, temperature: 0, ...input })]);
  const chat = (more: object = {}) =>
    client.chat.completions.create({
      model: 'm',
      messages: [{ role: 'user', content: QUESTION }],
      // A model that thinks takes half of the tokens for its thought.
      max_tokens: 128,
      temperature: 0,
      ...more,
    } as OpenAI.ChatCompletionCreateParamsNonStreaming);

  it('proves the model, and describes it', async () => {
    await until('the model was asked', () => platform.proofs.has('m'));
    assert.equal(platform.proofs.get('m'), null);
    const { data } = await client.models.list();
    const listed = data.map(
      (each) => each as typeof each & { contextLength: number; chat: boolean; unproven?: string },
    );
    assert.deepEqual(
      listed.map(({ id, contextLength, chat, unproven }) => ({ id, contextLength, chat, unproven })),
      [{ id: 'm', contextLength: expected.contextLength, chat: expected.chat !== null, unproven: undefined }],
    );
  });

  it('completes a text, and an empty one if texts begin with a token', async () => {
    const { code, stderr } = await complete({ prompt: 'Once upon a time' });
    assert.equal(code, 0, stderr);
    const empty = await complete({ prompt: '' });
    assert.equal(empty.code === 0, expected.bos !== null, empty.stderr);
    if (expected.bos === null) assert.match(empty.stderr, /prompt/);
    const request = { model: 'm', max_tokens: 4, temperature: 0 };
    const { usage } = await client.completions.create({ ...request, prompt: 'Once upon a time' });
    const begin = expected.bos === null ? 0 : 1;
    assert.equal(usage?.prompt_tokens, tokenizer.encode('Once upon a time').length + begin);
    if (expected.bos === null) {
      await assert.rejects(client.completions.create({ ...request, prompt: '' }), { status: 400, param: 'prompt' });
    } else assert.equal((await client.completions.create({ ...request, prompt: '' })).usage?.prompt_tokens, 1);
  });

  if (expected.chat === null) {
    it('refuses a chat and names the field', async () => {
      await assert.rejects(chat(), { status: 400, param: 'messages', message: /no chat template/ });
    });
    return;
  }

  it('chats, and counts the tokens of the rendered chat', async () => {
    const { choices, usage } = await chat({ max_tokens: 8 });
    const message: { content?: unknown; reasoning_content?: unknown } = choices[0]?.message ?? {};
    // The prompts of some models open a thought.
    assert.equal(typeof (message.content ?? message.reasoning_content), 'string');
    const count = tokenizer.encode(expected.chat ?? '', { special: true }).length;
    assert.equal(usage?.prompt_tokens, count);
  });

  it('keeps a schema', async () => {
    const { choices } = await chat({
      response_format: { type: 'json_schema', json_schema: { name: 'weather', strict: true, schema: WEATHER } },
    });
    assertWeather(choices[0]?.message.content ?? '');
  });

  it('calls a tool, and takes its result', async () => {
    const tools = [
      { type: 'function', function: { name: 'get_weather', description: 'Weather', parameters: WEATHER } },
    ];
    const { choices } = await chat({ tools, tool_choice: 'required', parallel_tool_calls: false });
    const message = choices[0]?.message;
    assert.equal(choices[0]?.finish_reason, 'tool_calls');
    const [call] = message?.tool_calls ?? [];
    assert.ok(call?.type === 'function');
    assert.equal(call.function.name, 'get_weather');
    assertWeather(call.function.arguments);
    const messages = [
      { role: 'user', content: QUESTION },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: call.id, content: '{"degrees":21}' },
    ];
    const next = chat({ messages, tools, max_tokens: 4 });
    if (WITHOUT_TOOL_TURNS.includes(layout.name))
      await assert.rejects(next, { status: 400, param: 'messages', message: /chat template refused .*roles/ });
    else assert.equal((await next).choices.length, 1);
  });

  if (expected.contextLength <= 4096)
    it('refuses a prompt that the context has no room for, with its count', async () => {
      const prompt = Array.from({ length: expected.contextLength + 1 }, () => 100);
      const request = { model: 'm', max_tokens: 1, prompt };
      await assert.rejects(client.completions.create(request), {
        status: 400,
        code: 'context_length_exceeded',
        message: new RegExp(
          `length is ${expected.contextLength} tokens.*resulted in ${expected.contextLength + 1} tokens`,
        ),
      });
    });
}

function assertWeather(text: string): void {
  const { city, metric, ...rest } = JSON.parse(text);
  assert.ok(['Paris', 'Rome'].includes(city), text);
  assert.equal(typeof metric, 'boolean', text);
  assert.deepEqual(rest, {});
}
