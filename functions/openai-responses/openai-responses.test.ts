import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type OpenAI from 'openai';
import { BadRequestError } from 'openai';
import { CHAT } from '#test/harness/functions.ts';
import { openAiClient } from '../openai-shared/testing/client.ts';

const QUESTION = 'What is the capital of France?';
const clock = {
  type: 'function' as const,
  name: 'get_time',
  description: 'The time in a zone',
  strict: true,
  parameters: {
    type: 'object',
    properties: { zone: { enum: ['UTC', 'CET'] } },
    required: ['zone'],
    additionalProperties: false,
  },
};

type Events = OpenAI.Responses.ResponseStreamEvent[];
type Request = OpenAI.Responses.ResponseCreateParamsStreaming;

async function eventsOf(client: OpenAI, request: Omit<Request, 'stream'>): Promise<Events> {
  const events: Events = [];
  for await (const event of await client.responses.create({ ...request, stream: true })) events.push(event);
  assert.deepEqual(
    events.map(({ sequence_number }) => sequence_number),
    events.map((_, i) => i),
  );
  return events;
}

/** Types of the events, in order and without their common prefix. Successive events of one type count once. */
const kinds = (events: Events): string[] =>
  events.map(({ type }) => type.slice('response.'.length)).filter((type, i, all) => type !== all[i - 1]);

describe('openai-responses', () => {
  it('gives the answers of the chat API, in one piece and as events', async () => {
    const client = await openAiClient();
    const chat = await client.chat.completions.create({
      model: CHAT,
      temperature: 0,
      max_tokens: 24,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: QUESTION },
      ],
    });
    const request = {
      model: CHAT,
      instructions: 'Be brief.',
      input: QUESTION,
      top_p: 0,
      max_output_tokens: 24,
      metadata: { run: 'test' },
    };
    const whole = await client.responses.create(request);
    assert.equal(whole.output_text, chat.choices[0]?.message.content);
    assert.equal(whole.usage?.input_tokens, chat.usage?.prompt_tokens);
    assert.equal(whole.usage?.output_tokens, chat.usage?.completion_tokens);
    assert.deepEqual([whole.status, whole.metadata, whole.instructions], ['completed', { run: 'test' }, 'Be brief.']);

    const events = await eventsOf(client, request);
    assert.deepEqual(kinds(events), [
      'created',
      'in_progress',
      'output_item.added',
      'content_part.added',
      'output_text.delta',
      'output_text.done',
      'content_part.done',
      'output_item.done',
      'completed',
    ]);
    const deltas = events.map((event) => (event.type === 'response.output_text.delta' ? event.delta : ''));
    assert.equal(deltas.join(''), whole.output_text);
    const last = events.at(-1);
    assert.ok(last?.type === 'response.completed');
    assert.deepEqual(last.response.output[0]?.type, 'message');
    assert.equal(last.response.usage?.total_tokens, whole.usage?.total_tokens);

    const cut = await client.responses.create({ ...request, max_output_tokens: 2 });
    assert.deepEqual([cut.status, cut.incomplete_details], ['incomplete', { reason: 'max_output_tokens' }]);
    assert.equal(kinds(await eventsOf(client, { ...request, max_output_tokens: 2 })).at(-1), 'incomplete');
  });

  it('streams a function call as events, and accepts its result', async () => {
    const client = await openAiClient();
    const request = { model: CHAT, input: QUESTION, tools: [clock], tool_choice: 'required' as const, temperature: 0 };
    const events = await eventsOf(client, request);
    assert.deepEqual(kinds(events), [
      'created',
      'in_progress',
      'output_item.added',
      'function_call_arguments.delta',
      'function_call_arguments.done',
      'output_item.done',
      'completed',
    ]);
    const final = await client.responses.stream(request).finalResponse();
    const [call] = final.output;
    assert.ok(call?.type === 'function_call');
    assert.equal(call.name, 'get_time');
    assert.ok(['UTC', 'CET'].includes(JSON.parse(call.arguments).zone));
    const answered = await client.responses.create({
      model: CHAT,
      tools: [clock],
      tool_choice: 'none',
      temperature: 0,
      max_output_tokens: 8,
      // Usual parameters of OpenAI clients.
      store: false,
      service_tier: 'auto',
      prompt_cache_key: 'a',
      safety_identifier: 'b',
      truncation: 'disabled',
      text: { verbosity: 'low' },
      reasoning: { effort: 'low' },
      include: ['reasoning.encrypted_content'],
      input: [
        { type: 'reasoning', id: 'rs_1', summary: [] },
        { role: 'user', content: [{ type: 'input_text', text: QUESTION }] },
        call,
        { type: 'function_call_output', call_id: call.call_id, output: '12:00' },
      ],
    });
    assert.notEqual(answered.output_text, '');
  });

  it('lets the model choose calls or JSON that fits the schema', async () => {
    const client = await openAiClient();
    const schema = { ...clock.parameters, properties: { time: { enum: ['noon', 'night'] } }, required: ['time'] };
    const format = { type: 'json_schema' as const, name: 'report', schema };
    const answers: readonly (readonly [readonly string[], string, string])[] = [
      [['<tool_call>', '{"zone": "CET"}', ''], 'function_call', '{"zone": "CET"}'],
      [['{"time": "noon"}'], 'message', '{"time": "noon"}'],
    ];
    for (const [script, type, text] of answers) {
      const request = { model: CHAT, input: QUESTION, tools: [clock], text: { format }, temperature: 0, script };
      const streamed = (await eventsOf(client, request)).at(-1);
      assert.ok(streamed?.type === 'response.completed');
      for (const { output } of [await client.responses.create({ ...request, stream: false }), streamed.response]) {
        assert.deepEqual(
          output.map((item) => item.type),
          [type],
        );
        const [item] = output;
        if (item?.type === 'function_call') assert.equal(item.arguments, text);
        else {
          const part = item?.type === 'message' ? item.content[0] : undefined;
          assert.equal(part?.type === 'output_text' && part.text, text);
        }
      }
    }
  });

  it('reads the text and the calls of a turn as the chat API reads them', async () => {
    const client = await openAiClient();
    const said = 'Let me look.';
    const calls = ['UTC', 'CET'].map((zone, i) => ({ id: `call_${i}`, zone: JSON.stringify({ zone }) }));
    const { usage: expected } = await client.chat.completions.create({
      model: CHAT,
      messages: [
        { role: 'user', content: QUESTION },
        {
          role: 'assistant',
          content: said,
          tool_calls: calls.map(({ id, zone }) => ({
            id,
            type: 'function' as const,
            function: { name: 'get_time', arguments: zone },
          })),
        },
        ...calls.map(({ id }) => ({ role: 'tool' as const, tool_call_id: id, content: '12:00' })),
      ],
      max_tokens: 1,
    });
    const { usage } = await client.responses.create({
      model: CHAT,
      input: [
        { role: 'user', content: QUESTION },
        { role: 'assistant', content: said },
        ...calls.map(({ id, zone }) => ({
          type: 'function_call' as const,
          call_id: id,
          name: 'get_time',
          arguments: zone,
        })),
        ...calls.map(({ id }) => ({ type: 'function_call_output' as const, call_id: id, output: '12:00' })),
      ],
      max_output_tokens: 1,
    });
    assert.equal(usage?.input_tokens, expected?.prompt_tokens);
  });

  it('reads the refusals of earlier turns', async () => {
    const client = await openAiClient();
    const ask = async (said: OpenAI.Responses.ResponseInputItem) => {
      const input = [{ role: 'user' as const, content: QUESTION }, said, { role: 'user' as const, content: 'Why?' }];
      const { output_text, usage } = await client.responses.create({
        model: CHAT,
        input,
        temperature: 0,
        max_output_tokens: 8,
      });
      return [output_text, usage?.input_tokens];
    };
    const content = [{ type: 'refusal' as const, refusal: 'I cannot say.' }];
    const refused = await ask({ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content });
    assert.deepEqual(refused, await ask({ role: 'assistant', content: 'I cannot say.' }));
  });

  it('writes JSON that fits the schema, and reports log-probabilities on request', async () => {
    const client = await openAiClient();
    const schema = {
      type: 'object',
      properties: { yes: { type: 'boolean' } },
      required: ['yes'],
      additionalProperties: false,
    };
    const { output_text, output } = await client.responses.create({
      model: CHAT,
      input: QUESTION,
      temperature: 0,
      text: { format: { type: 'json_schema', name: 'a', schema } },
      include: ['message.output_text.logprobs'],
      top_logprobs: 2,
    });
    assert.equal(typeof JSON.parse(output_text).yes, 'boolean');
    const [message] = output;
    const part = message?.type === 'message' ? message.content[0] : undefined;
    assert.ok(part?.type === 'output_text');
    assert.equal(part.logprobs?.map(({ token }) => token).join(''), output_text);
    assert.ok((part.logprobs?.[0]?.top_logprobs.length ?? 0) > 0);
  });

  it('drops the oldest turns of a conversation that is too long, if the request asks for it', async () => {
    const client = await openAiClient();
    const last = { role: 'user' as const, content: QUESTION };
    const request = { model: CHAT, instructions: 'Be brief.', temperature: 0, max_output_tokens: 8 };
    const short = await client.responses.create({ ...request, input: [last] });
    const long = { role: 'user' as const, content: 'word '.repeat(40_000) };
    const input = [long, { role: 'assistant' as const, content: 'I see.' }, last];
    const cut = await client.responses.create({ ...request, input, truncation: 'auto' });
    assert.deepEqual([cut.output_text, cut.usage?.input_tokens], [short.output_text, short.usage?.input_tokens]);
    await assert.rejects(client.responses.create({ ...request, input }), { code: 'context_length_exceeded' });
  });

  it('refuses unsupported parameters', async () => {
    const client = await openAiClient();
    const refused = async (more: object, param: string, message = /./) => {
      for (const stream of [false, true]) {
        const asked = client.responses.create({ model: CHAT, input: QUESTION, ...more, stream });
        await assert.rejects(asked, (error) => {
          assert.ok(error instanceof BadRequestError, String(error));
          assert.match(error.message, message);
          assert.equal(error.param, param);
          return true;
        });
      }
    };
    await refused({ previous_response_id: 'resp_1' }, 'previous_response_id');
    await refused({ background: true }, 'background');
    await refused({ input: [{ type: 'function_call_output', output: 'x' }] }, 'input[0].call_id');
    await refused({ tools: [{ type: 'function', name: 'a b' }] }, 'tools[0].name');
    const output = { type: 'message', role: 'user', content: [null] };
    await refused({ instructions: [output] }, 'instructions[0].content');
    await refused({ instructions: [{ ...output, content: 5 }] }, 'instructions[0].content');
    await refused({ instructions: [{ role: 'wizard', content: 'Hi.' }] }, 'instructions[0].role');
    await refused({ previous_items: [output] }, 'previous_items');
    await refused({ instructions: [{ type: 'function_call_output', call_id: 5 }] }, 'instructions[0].call_id');
    await refused({ input: [{ type: 'item_reference' }] }, 'input[0].id', /input\[0\]\.id is missing/);
    // The message repeats what the client wrote, but is cut.
    await refused({ input: [{ type: 'x'.repeat(20_000) }] }, 'input[0].type');
  });

  it('passes over what is no text in thoughts, and answers with a response that is too long to be kept', async () => {
    const client = await openAiClient();
    const ask = (more: object) =>
      client.responses.create({ model: CHAT, max_output_tokens: 2, input: QUESTION, ...more });
    for (const odd of [
      { summary: 'Well.' },
      { summary: [null] },
      { content: [{ type: 'reasoning_text', text: 5 }], summary: [] },
    ])
      assert.equal(
        (
          await ask({
            input: [
              { type: 'reasoning', ...odd },
              { role: 'user', content: QUESTION },
            ],
          })
        ).object,
        'response',
      );
    const safetyIdentifier = { safety_identifier: 'x'.repeat(750_000) };
    const long = await ask(safetyIdentifier);
    assert.deepEqual([long.object, long.usage?.output_tokens], ['response', 2]);
    await assert.rejects(client.responses.retrieve(long.id), { status: 404 });
  });

  it('repeats neither tools nor instructions that are too long for a message of the stream', async () => {
    const client = await openAiClient();
    const filters = { allowed_domains: Array.from({ length: 100_000 }, (_, i) => `${i}.example.com`) };
    const tools = [{ type: 'web_search' as const, filters }];
    const request = { model: CHAT, max_output_tokens: 2, input: QUESTION, instructions: 'Be brief.', tools };
    const streamed = await client.responses.stream(request).finalResponse();
    const whole = await client.responses.create(request);
    for (const { id, tools, instructions, usage } of [streamed, whole]) {
      assert.deepEqual([tools, instructions, usage?.output_tokens], [[], 'Be brief.', 2]);
      assert.equal((await client.responses.retrieve(id)).id, id);
    }
  });
});
