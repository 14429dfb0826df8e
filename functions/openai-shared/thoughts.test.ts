import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';
import { Platform } from '#test/harness/platform.ts';
import { randomModel } from '../../gpu-host/models/testing/random-model.ts';

/** The turns of a conversation in ChatML. A thought of an earlier turn is shown; a call or a last answer without a thought has an empty one. */
const TURNS = `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' and (m.reasoning_content or (loop.last and not add_generation_prompt)) %}{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{%- endif %}
{{- m.content }}
{%- for call in m.tool_calls or [] %}{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}`;
const CHATML = ['<|im_end|>', '<|im_start|>'];

/** Models with one token per byte, besides these special and other added tokens. The first special token ends a text. */
const MODELS = {
  /** Begins its thoughts itself. A switch puts an empty thought into the prompt. */
  thinker: {
    template: `${TURNS}{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}`,
    special: CHATML,
    other: ['<think>', '</think>'],
  },
  /** The prompt opens each thought. */
  opener: { template: `${TURNS}{{- '<think>\\n' }}{%- endif %}`, special: CHATML, other: ['<think>', '</think>'] },
  /** The marks are special tokens, which text omits. */
  hidden: { template: `${TURNS}{%- endif %}`, special: [...CHATML, '<think>', '</think>'], other: [] },
  /** The marks are ordinary text. */
  spelled: { template: `${TURNS}{%- endif %}`, special: CHATML, other: [] },
  /** Thoughts, answers and calls are messages of three channels, each with a header (harmony). */
  harmony: {
    template: `{%- for m in messages %}{%- if m.role != 'assistant' %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}
{%- elif m.tool_calls %}{{- '<|start|>assistant to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' + (m.tool_calls[0].function.arguments | tojson) + '<|call|>' }}
{%- else %}{%- if m.thinking %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}<|start|>assistant{%- endif %}`,
    special: ['<|return|>', '<|call|>', '<|start|>', '<|message|>', '<|channel|>', '<|end|>', '<|constrain|>'],
    other: [],
  },
  /** Has no thoughts. */
  plain: {
    template: `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}{{- '<|im_start|>assistant\\n' }}`,
    special: CHATML,
    other: [],
  },
} as const;
type Name = keyof typeof MODELS;

const QUESTION = [{ role: 'user' as const, content: 'How many?' }];
const NUMBER = {
  type: 'json_schema' as const,
  json_schema: {
    name: 'number',
    schema: { type: 'object', properties: { n: { enum: [17, 4] } }, required: ['n'], additionalProperties: false },
  },
};
const LOOK = { type: 'function' as const, function: { name: 'look', parameters: NUMBER.json_schema.schema } };

type Message = OpenAI.ChatCompletionMessage & { reasoning_content?: string };
type Delta = OpenAI.ChatCompletionChunk.Choice.Delta & { reasoning_content?: string };

let root: string;
let platform: Platform;
let client: OpenAI;
before(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'pie-thoughts-'));
  await Promise.all(Object.keys(MODELS).map((name) => writeModel(name as Name)));
  const entries = Object.keys(MODELS).map((name) => `[[model]]\nname = "${name}"\nsource = "file:${root}/${name}"\n`);
  const own = `[[model]]\nname = "set"\nsource = "file:${root}/plain"\nthoughts = { open = "(", close = ")" }\n`;
  const off = `[[model]]\nname = "off"\nsource = "file:${root}/thinker"\nthoughts = false\n`;
  platform = await Platform.start({
    config: [...entries, own, off].join('\n'),
    env: { PIE_MODELS: path.join(root, 'cache') },
    functions: ['openai-chat', 'openai-responses', 'anthropic-messages'],
  });
  client = new OpenAI({ baseURL: `${platform.url}/v1`, apiKey: platform.apiKey, maxRetries: 0 });
});
after(async () => {
  await platform?.[Symbol.asyncDispose]();
  await rm(root, { recursive: true, force: true });
});

async function writeModel(name: Name): Promise<void> {
  const directory = path.join(root, name);
  const { template, special, other } = MODELS[name];
  const added = [...special, ...other];
  await randomModel(directory, { vocabularySize: 259 + added.length, contextLength: 1024 }, 3);
  const edit = async (file: string, change: (json: Record<string, unknown>) => object): Promise<void> => {
    const at = path.join(directory, file);
    await writeFile(at, JSON.stringify(change(JSON.parse(await readFile(at, 'utf8')))));
  };
  await edit('tokenizer.json', (json) => ({
    ...json,
    added_tokens: [
      ...(json.added_tokens as object[]),
      ...added.map((content, i) => ({ id: 259 + i, content, special: i < special.length, normalized: false })),
    ],
  }));
  await edit('tokenizer_config.json', (json) => ({ ...json, eos_token: special[0], chat_template: template }));
}

/** A chat's answer to the question. `script` forces the model's text. */
async function chat(model: string, more: object = {}) {
  const { choices, usage } = await client.chat.completions.create({
    model,
    messages: QUESTION,
    max_tokens: 200,
    ...more,
  } as OpenAI.ChatCompletionCreateParamsNonStreaming);
  const [choice] = choices;
  assert.ok(choice);
  const { content, reasoning_content: thought, tool_calls: calls } = choice.message as Message;
  const reasoning = usage?.completion_tokens_details?.reasoning_tokens;
  return { content, thought, calls, choice, finish: choice.finish_reason, usage, reasoning };
}

/** The same, streamed: the deltas in order, as [member, text]. */
async function streamed(model: string, more: object = {}): Promise<[string, string][]> {
  const stream = await client.chat.completions.create({
    model,
    messages: QUESTION,
    max_tokens: 200,
    stream: true,
    ...more,
  } as OpenAI.ChatCompletionCreateParamsStreaming);
  const parts: [string, string][] = [];
  let roles = 0;
  for await (const { choices } of stream) {
    const { role, reasoning_content: thought, content } = (choices[0]?.delta ?? {}) as Delta;
    if (role) roles++;
    for (const [member, text] of Object.entries({ thought, content })) {
      if (!text) continue;
      const last = parts.at(-1);
      if (last?.[0] === member) last[1] += text;
      else parts.push([member, text]);
    }
  }
  assert.equal(roles, 1, 'the role comes once');
  return parts;
}

/** What each model writes for a thought and an answer. */
function written(model: string, thought: string, answer: string): string {
  if (model === 'harmony') return `<|channel|>analysis<|message|>${thought}<|end|><|start|>assistant${answer}`;
  return `${model === 'opener' ? '' : '<think>\n'}${thought}\n</think>\n\n${answer}`;
}
const THINKERS = ['thinker', 'opener', 'hidden', 'spelled', 'harmony'] as const;
/** The beginning of a call, as the model writes it. */
const callBy = (model: string): string =>
  model === 'harmony' ? '<|channel|>commentary to=functions.look <|constrain|>json<|message|>' : '<tool_call>';

describe('the list of models', () => {
  it('says which models think, and with which marks', async () => {
    const marks = async (name: string) =>
      ((await client.models.retrieve(name)) as OpenAI.Model & { thoughts?: object }).thoughts;
    const tags = { begin: '<think>', end: '</think>' };
    for (const name of ['thinker', 'opener', 'hidden', 'spelled']) assert.deepEqual(await marks(name), tags, name);
    assert.deepEqual(await marks('harmony'), { begin: '<|channel|>analysis<|message|>', end: '<|end|>' });
    assert.deepEqual(await marks('set'), { begin: '(', end: ')' });
    for (const name of ['plain', 'off']) assert.equal(await marks(name), undefined, name);
    const { data } = await client.models.list();
    assert.equal(data.filter((model) => 'thoughts' in model).length, 6);
  });
});

describe('a chat with a model that thinks', () => {
  for (const model of THINKERS) {
    it(`divides the thought of ${model} from its answer, whole and streamed`, async () => {
      const script = [written(model, 'Count <em>them</em>.\n\nSeven?', 'Seven.')];
      const { content, thought, finish, usage, reasoning = 0 } = await chat(model, { script });
      assert.deepEqual([thought, content, finish], ['Count <em>them</em>.\n\nSeven?', 'Seven.', 'stop']);
      // The model has one token per byte.
      assert.equal((usage?.completion_tokens ?? 0) - reasoning, 'Seven.'.length);
      assert.deepEqual(await streamed(model, { script }), [
        ['thought', 'Count <em>them</em>.\n\nSeven?'],
        ['content', 'Seven.'],
      ]);
    });

    it(`ends a thought of ${model} at its budget`, async () => {
      const script = [written(model, 'x'.repeat(100), 'Seven.')];
      const { content, thought = '' } = await chat(model, { script, thinking_budget: 30 });
      assert.equal(content, 'Seven.');
      assert.match(thought, /^x{15,30}$/);
    });

    it(`keeps half of the tokens of ${model} for the text of a schema`, async () => {
      const { content, reasoning = 0 } = await chat(model, {
        ...{ response_format: NUMBER, max_tokens: 120, temperature: 1, seed: 4 },
        script: [written(model, 'y'.repeat(300), '{"n": 4}')],
      });
      assert.deepEqual(JSON.parse(content ?? ''), { n: 4 });
      assert.ok(reasoning >= 50 && reasoning < 90, `${reasoning}`);
    });

    it(`reports a thought of ${model} that has no end`, async () => {
      const script = [written(model, 'z'.repeat(100), 'Seven.')];
      const { content, thought, finish, usage, reasoning } = await chat(model, { script, max_tokens: 40 });
      assert.match(thought ?? '', /^z{20,40}$/);
      assert.deepEqual([content, finish, usage?.completion_tokens, reasoning], [null, 'length', 40, 40]);
    });

    it(`calls a tool after a thought of ${model}`, async () => {
      const script = [written(model, 'I must {"n": 1} look.', callBy(model)), '{"n": 17}'];
      for (const tool_choice of ['auto', 'required']) {
        // The text of a forced call is not the model's: its script is that of the arguments alone.
        const replies = tool_choice === 'auto' ? script : [written(model, 'I must {"n": 1} look.', '{"n": 17}')];
        const request = { script: replies, tools: [LOOK], tool_choice, parallel_tool_calls: false };
        const { content, thought, calls, finish } = await chat(model, request);
        assert.deepEqual([content, thought, finish], [null, 'I must {"n": 1} look.', 'tool_calls']);
        assert.deepEqual(
          calls?.map((call) => call.type === 'function' && call.function),
          [{ name: 'look', arguments: '{"n": 17}' }],
        );
      }
    });
  }

  it('answers at once with a text that begins with no thought', async () => {
    for (const model of ['thinker', 'hidden', 'spelled', 'harmony', 'plain', 'off'] as const) {
      for (const answer of ['Seven.', '<thin', '\n<b>7</b>', 'I <think>so</think>.']) {
        const { content, thought, reasoning, usage } = await chat(model, { script: [answer] });
        assert.equal(thought, undefined);
        assert.equal(reasoning, 0);
        assert.equal(content, answer);
        // The model has one token per byte, but for marks and headers.
        if (model !== 'harmony' && !answer.includes('<think>')) assert.equal(usage?.completion_tokens, answer.length);
        assert.deepEqual(await streamed(model, { script: [answer] }), [['content', answer]]);
      }
    }
  });

  it('omits the header of an answer', async () => {
    const { content, thought } = await chat('harmony', { script: ['<|channel|>final<|message|>Seven.'] });
    assert.deepEqual([content, thought], ['Seven.', undefined]);
  });

  it('streams the text behind a thought that the platform itself sends', async () => {
    // Without a script, the platform sends the text of the answer.
    const request = { thinking_budget: 10, max_tokens: 60, temperature: 0 };
    const { thought, content } = await chat('opener', request);
    assert.ok(thought && content);
    assert.deepEqual(await streamed('opener', request), [
      ['thought', thought],
      ['content', content],
    ]);
  });

  it('samples the same text after it has looked for a thought', async () => {
    let total = 0;
    for (const seed of [2, 3, 5, 6, 8, 9]) {
      // The bias keeps the models from writing a mark, which is token 261.
      const request = { temperature: 1.5, max_tokens: 24, seed, logit_bias: { 261: -100 }, logprobs: seed % 3 === 0 };
      const looked = await chat('thinker', request);
      const unlooked = await chat('off', request);
      assert.equal(looked.thought, undefined);
      assert.equal(looked.content, unlooked.content);
      assert.equal(looked.usage?.completion_tokens, unlooked.usage?.completion_tokens);
      total += looked.content?.length ?? 0;
    }
    assert.ok(total > 40, 'the models write texts');
  });

  it('applies stop strings and log-probabilities to the answer only', async () => {
    const request = { script: [written('thinker', 'a STOP b', 'One STOP two')], stop: ['STOP'] };
    const { content, thought } = await chat('thinker', request);
    assert.deepEqual([thought, content], ['a STOP b', 'One ']);
    const { choice } = await chat('thinker', { script: [written('thinker', 'Hm', 'Seven.')], logprobs: true });
    assert.equal(choice.logprobs?.content?.map(({ token }) => token).join(''), 'Seven.');
  });

  it('switches thoughts off by the effort none', async () => {
    const script = ['Seven.'];
    const on = await chat('thinker', { script, reasoning_effort: 'high' });
    const off = await chat('thinker', { script, reasoning_effort: 'none' });
    // The prompt has an empty thought, each mark of which is one token.
    assert.equal((off.usage?.prompt_tokens ?? 0) - (on.usage?.prompt_tokens ?? 0), 6);
    assert.equal(off.content, 'Seven.');
    // The template of this model has no switch: the platform ends the thought at its beginning.
    const ended = await chat('opener', { script, reasoning_effort: 'none' });
    assert.deepEqual([ended.thought, ended.content], [undefined, 'Seven.']);
    assert.equal((await chat('plain', { script, reasoning_effort: 'high' })).content, 'Seven.');
    await assert.rejects(chat('plain', { reasoning_effort: 'very' }), { status: 400 });
  });

  it('shows the template the thoughts of earlier turns', async () => {
    const turns = (more: object) => [...QUESTION, { role: 'assistant', content: 'Seven.', ...more }, ...QUESTION];
    const tokens = async (model: string, more: object) =>
      (await chat(model, { messages: turns(more), max_tokens: 1 })).usage?.prompt_tokens ?? 0;
    const without = await tokens('thinker', {});
    // Each mark is one token.
    const thought = 'abcdef'.length + '<>\n\n<>\n\n'.length - 2;
    assert.equal(await tokens('thinker', { reasoning_content: 'abcdef' }), without + thought);
    assert.equal(await tokens('thinker', { reasoning: 'abcdef' }), without + thought);
    assert.equal(await tokens('plain', { reasoning_content: 'abcdef' }), await tokens('plain', {}));
  });

  it('takes the marks from the setting of the model', async () => {
    assert.deepEqual(await streamed('set', { script: ['(Hm) Seven.'] }), [
      ['thought', 'Hm'],
      ['content', 'Seven.'],
    ]);
    const { content } = await chat('off', { script: [written('thinker', 'Hm', 'Seven.')] });
    assert.equal(content, written('thinker', 'Hm', 'Seven.'));
  });

  it('thinks for each of several choices', async () => {
    const { choices, usage } = await client.chat.completions.create({
      ...{ model: 'opener', messages: QUESTION, n: 3, max_tokens: 60 },
      ...{ script: [written('opener', 'Hm', 'Seven.')] },
    } as OpenAI.ChatCompletionCreateParamsNonStreaming);
    assert.deepEqual(
      choices.map(({ message }) => [(message as Message).reasoning_content, message.content]),
      [0, 1, 2].map(() => ['Hm', 'Seven.']),
    );
    assert.equal(usage?.completion_tokens_details?.reasoning_tokens, 3 * ('Hm\n'.length + 1 + 2));
  });
});

describe('a response of a model that thinks', () => {
  const respond = (more: object) =>
    client.responses.create({
      ...{ model: 'thinker', input: 'How many?', max_output_tokens: 200 },
      ...{ script: [written('thinker', 'Hm', 'Seven.')], ...more },
    } as OpenAI.Responses.ResponseCreateParamsNonStreaming);

  it('has the thought as an item before the message', async () => {
    const { output, output_text, usage, status } = await respond({ reasoning: { effort: 'medium' } });
    assert.equal(status, 'completed');
    assert.equal(output_text, 'Seven.');
    const [thought, message] = output;
    assert.equal(message?.type, 'message');
    assert.ok(thought?.type === 'reasoning');
    assert.match(thought.id, /^rs_/);
    assert.deepEqual(thought.content, [{ type: 'reasoning_text', text: 'Hm' }]);
    assert.deepEqual(thought.summary, []);
    assert.equal(usage?.output_tokens_details.reasoning_tokens, (usage?.output_tokens ?? 0) - 'Seven.'.length);
    const cut = await respond({ max_output_tokens: 3 });
    assert.deepEqual([cut.status, cut.output.map(({ type }) => type)], ['incomplete', ['reasoning']]);
  });

  for (const summary of [null, 'auto'])
    it(`streams the thought ${summary ? 'as a summary' : 'in its own events'}`, async () => {
      const stream = await client.responses.create({
        ...{ model: 'opener', input: 'How many?', max_output_tokens: 200, stream: true as const },
        ...{ reasoning: { summary }, script: [written('opener', 'Hm', 'Seven.')] },
      } as OpenAI.Responses.ResponseCreateParamsStreaming);
      const events: OpenAI.Responses.ResponseStreamEvent[] = [];
      for await (const event of stream) events.push(event);
      const types = events.map(({ type }) => type.replace('response.', ''));
      const distinct = types.filter((type, i) => type !== types[i - 1]);
      const [part, text] = summary
        ? ['reasoning_summary_part', 'reasoning_summary_text']
        : ['content_part', 'reasoning_text'];
      assert.deepEqual(distinct, [
        ...['created', 'in_progress'],
        ...['output_item.added', `${part}.added`, `${text}.delta`, `${text}.done`, `${part}.done`, 'output_item.done'],
        ...['output_item.added', 'content_part.added', 'output_text.delta', 'output_text.done'],
        ...['content_part.done', 'output_item.done', 'completed'],
      ]);
      assert.deepEqual(
        events.map((event) => event.sequence_number),
        events.map((_, i) => i),
      );
      const last = events.at(-1);
      assert.ok(last?.type === 'response.completed');
      const items = events.flatMap((event) => (event.type === 'response.output_item.done' ? [event.item] : []));
      assert.deepEqual(last.response.output, items);
      const thoughts = events.flatMap((event) =>
        event.type === 'response.reasoning_text.delta' || event.type === 'response.reasoning_summary_text.delta'
          ? [event.delta]
          : [],
      );
      assert.equal(thoughts.join(''), 'Hm');
    });

  it('streams a message behind the thought that the platform itself sends', async () => {
    const request = { model: 'opener', script: undefined, thinking_budget: 10, max_output_tokens: 60, temperature: 0 };
    const whole = await respond(request);
    const stream = await client.responses.create({
      ...{ ...request, input: 'How many?', stream: true as const },
    } as OpenAI.Responses.ResponseCreateParamsStreaming);
    const events: OpenAI.Responses.ResponseStreamEvent[] = [];
    for await (const event of stream) events.push(event);
    const deltas = events.flatMap((event) => (event.type === 'response.output_text.delta' ? [event] : []));
    assert.equal(deltas.map(({ delta }) => delta).join(''), whole.output_text);
    const last = events.at(-1);
    assert.ok(last && 'response' in last);
    assert.equal(last.response.status, whole.status);
    assert.notEqual(whole.output_text, '');
    assert.deepEqual(
      last.response.output.map(({ id, type }) => [id, type]),
      [
        [
          events.flatMap((event) => (event.type === 'response.reasoning_text.done' ? [event.item_id] : []))[0],
          'reasoning',
        ],
        [deltas[0]?.item_id, 'message'],
      ],
    );
    assert.equal(deltas[0]?.output_index, 1);
  });

  it('continues a conversation with its thoughts', async () => {
    const tokens = async (items: object[]) =>
      (await respond({ input: [...items, ...QUESTION], max_output_tokens: 16 })).usage?.input_tokens ?? 0;
    const message = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Seven.' }] };
    const thinking = (text: string) => ({ type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text }] });
    const without = await tokens([...QUESTION, message]);
    // Each mark is one token.
    assert.equal(await tokens([...QUESTION, thinking('abcdef'), message]), without + 'abcdef'.length + 6);
    assert.equal(await tokens([...QUESTION, message, thinking('abcdef')]), without);
    const first = await respond({});
    const next = await respond({ previous_response_id: first.id, script: ['Yes.'] });
    assert.equal(next.output_text, 'Yes.');
  });

  it('calls a tool after the thought', async () => {
    const { name, parameters } = LOOK.function;
    const { output } = await respond({
      tools: [{ type: 'function', name, parameters, strict: true }],
      script: [written('thinker', 'I look.', callBy('thinker')), '{"n": 4}'],
      parallel_tool_calls: false,
    });
    assert.deepEqual(
      output.map(({ type }) => type),
      ['reasoning', 'function_call'],
    );
  });
});

describe('a message of a model that thinks', () => {
  const request = (model: string, more: object = {}) =>
    ({
      ...{ model, messages: QUESTION, max_tokens: 200, script: [written(model, 'x'.repeat(40), 'Seven.')] },
      ...more,
    }) as Anthropic.MessageCreateParamsNonStreaming;
  const contents = ({ content }: Anthropic.Message) =>
    content.map((block) => (block.type === 'thinking' ? block.thinking : block.type === 'text' ? block.text : ''));

  it('has the thought as a block before the text', async () => {
    const anthropic = new Anthropic({ baseURL: platform.url, apiKey: platform.apiKey, maxRetries: 0 });
    for (const model of ['opener', 'harmony']) {
      const whole = await anthropic.messages.create(request(model));
      assert.deepEqual(contents(whole), ['x'.repeat(40), 'Seven.']);
      assert.deepEqual((await anthropic.messages.stream(request(model)).finalMessage()).content, whole.content);
    }
    const thinking = { type: 'enabled', budget_tokens: 10 };
    assert.deepEqual(contents(await anthropic.messages.create(request('opener', { thinking }))), [
      'x'.repeat(10),
      'Seven.',
    ]);
    const off = request('thinker', { thinking: { type: 'disabled' }, script: ['Seven.'] });
    assert.deepEqual(contents(await anthropic.messages.create(off)), ['Seven.']);
    // The platform sends this text by itself.
    const free = request('opener', { thinking, script: undefined, temperature: 0 });
    const piped = await anthropic.messages.stream(free).finalMessage();
    assert.deepEqual(piped.content, (await anthropic.messages.create(free)).content);
  });
});

describe('a prefilled message of a model that thinks', () => {
  const ask = async (model: string, more: object = {}) => {
    const anthropic = new Anthropic({ baseURL: platform.url, apiKey: platform.apiKey, maxRetries: 0 });
    const messages = [...QUESTION, { role: 'assistant' as const, content: 'I say' }];
    const request = { ...{ model, messages, max_tokens: 40, script: [' Seven.'] }, ...more };
    const { content, usage } = await anthropic.messages.create(request as Anthropic.MessageCreateParamsNonStreaming);
    assert.deepEqual(
      (await anthropic.messages.stream(request as Anthropic.MessageStreamParams).finalMessage()).content,
      content,
    );
    return { content, input: usage.input_tokens + (usage.cache_read_input_tokens ?? 0) };
  };

  it('goes on with the answer, without a thought', async () => {
    for (const model of [...THINKERS, 'plain'] as const) {
      const { content } = await ask(model);
      assert.deepEqual(content, [{ type: 'text', text: ' Seven.', citations: null }], model);
    }
    // A model that begins a thought all the same has begun its answer.
    const { content } = await ask('thinker', { script: ['<think>Hm'] });
    assert.deepEqual(content, [{ type: 'text', text: '<think>Hm', citations: null }]);
  });

  it("stands behind the end of the prompt's thought, or behind the header of an answer", async () => {
    const tokens = async (model: string) => {
      const empty = await ask(model, { messages: QUESTION });
      return (await ask(model)).input - empty.input - 'I say'.length;
    };
    // The models have one token per byte, besides their special and other added tokens.
    assert.equal(await tokens('plain'), 0);
    assert.equal(await tokens('thinker'), 0);
    assert.equal(await tokens('opener'), '\n</think>\n\n'.length - '</think>'.length + 1);
    assert.equal(await tokens('harmony'), '<|channel|>final<|message|>'.length - '<|channel|><|message|>'.length + 2);
  });

  it('ends no thought twice', async () => {
    const thinking = { type: 'disabled' };
    const closed = await ask('thinker', { thinking });
    const open = await ask('thinker');
    // The template writes an empty thought, each mark of which is one token.
    assert.equal(closed.input - open.input, 6);
    assert.deepEqual(closed.content, open.content);
  });
});

describe('the Vercel AI SDK with a model that thinks', () => {
  const script = [written('thinker', 'Hm', 'Seven.')];
  const connection = () => ({ baseURL: `${platform.url}/v1`, apiKey: platform.apiKey });
  /** Adds the script to each request. */
  const scripted: typeof globalThis.fetch = (url, init) =>
    fetch(url, { ...init, body: JSON.stringify({ ...JSON.parse(String(init?.body)), script }) });

  it('reads thoughts of chats', async () => {
    const provider = createOpenAICompatible({ name: 'pie', ...connection(), fetch: scripted });
    const request = { model: provider('thinker'), prompt: 'How many?', maxRetries: 0 };
    const { text, reasoningText } = await generateText(request);
    assert.deepEqual([reasoningText, text], ['Hm', 'Seven.']);
    const stream = streamText(request);
    assert.deepEqual([await stream.reasoningText, await stream.text], ['Hm', 'Seven.']);
  });

  it('reads thoughts of responses as summaries', async () => {
    const provider = createOpenAI({ ...connection(), fetch: scripted });
    const request = {
      model: provider.responses('thinker'),
      prompt: 'How many?',
      maxRetries: 0,
      providerOptions: { openai: { reasoningSummary: 'auto', forceReasoning: true } },
    };
    const { text, reasoningText } = await generateText(request);
    assert.deepEqual([reasoningText, text], ['Hm', 'Seven.']);
    const stream = streamText(request);
    assert.deepEqual([await stream.reasoningText, await stream.text], ['Hm', 'Seven.']);
  });
});
