import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import Anthropic, { type APIError, AuthenticationError, BadRequestError, NotFoundError } from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { CHAT } from '#test/harness/functions.ts';
import { ANSWERING, CALLING, Recorder, THANKED, WEATHER_PARAMETERS, weatherIn } from './recorder.ts';

const QUESTION = 'What is the weather in Rome?';
const REQUEST = { model: CHAT, max_tokens: 64, temperature: 0 };
const WEATHER = {
  name: 'weather',
  description: 'The weather in a city',
  input_schema: WEATHER_PARAMETERS as Anthropic.Tool.InputSchema,
};

let recorder: Recorder;
let client: Anthropic;
before(async () => {
  recorder = await Recorder.start();
  client = new Anthropic({ baseURL: recorder.origin, apiKey: recorder.apiKey, maxRetries: 0 });
});
after(() => recorder[Symbol.asyncDispose]());

const textIn = ({ content }: Anthropic.Message): string =>
  content.map((block) => (block.type === 'text' ? block.text : '')).join('');

describe('the official Anthropic client', () => {
  for (const streams of [false, true])
    it(`holds a conversation with a tool over three turns, ${streams ? 'streamed' : 'whole'}`, async () => {
      const messages: Anthropic.MessageParam[] = [{ role: 'user', content: [{ type: 'text', text: QUESTION }] }];
      const system = [{ type: 'text' as const, text: 'Be brief.', cache_control: { type: 'ephemeral' as const } }];
      const ask = async () => {
        const request = { ...REQUEST, system, messages, tools: [WEATHER] };
        const message = streams
          ? await client.messages.stream(request).finalMessage()
          : await client.messages.create(request);
        messages.push({ role: 'assistant', content: message.content });
        return message;
      };
      recorder.script(CALLING, ANSWERING, THANKED);
      const called = await ask();
      assert.match(called.id, /^msg_\w+$/);
      assert.deepEqual([called.type, called.role, called.model], ['message', 'assistant', CHAT]);
      const [said, call] = called.content;
      assert.ok(said?.type === 'text' && call?.type === 'tool_use' && called.content.length === 2);
      assert.deepEqual([said.text.trim(), call.name, call.input], ['Let me look.', 'weather', { city: 'Rome' }]);
      assert.match(call.id, /^toolu_\w+$/);
      assert.deepEqual([called.stop_reason, called.stop_sequence], ['tool_use', null]);
      const result = { type: 'tool_result' as const, tool_use_id: call.id };
      messages.push({ role: 'user', content: [{ ...result, content: [{ type: 'text', text: weatherIn('Rome') }] }] });
      const answered = await ask();
      assert.deepEqual([textIn(answered), answered.stop_reason], [ANSWERING[0], 'end_turn']);
      messages.push({ role: 'user', content: 'Thank you.' });
      const thanked = await ask();
      assert.equal(textIn(thanked), THANKED[0]);
      const promptTokens = ({ usage }: Anthropic.Message) =>
        usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);
      assert.ok(promptTokens(answered) > promptTokens(called) && promptTokens(thanked) > promptTokens(answered));
      const counted = await client.messages.countTokens({
        model: CHAT,
        system,
        messages: messages.slice(0, 1),
        tools: [WEATHER],
      });
      assert.equal(counted.input_tokens, promptTokens(called));
      assert.equal(recorder.unusedScripts, 0);
    });

  for (const stream of [false, true])
    it(`runs its own tool loop, ${stream ? 'streamed' : 'whole'}`, async () => {
      const weather = betaTool({
        name: 'weather',
        description: 'The weather in a city',
        inputSchema: { type: 'object', properties: { city: { enum: ['Rome', 'Oslo'] } }, required: ['city'] },
        run: ({ city }) => weatherIn(String(city)),
      });
      const messages: Anthropic.Beta.BetaMessageParam[] = [{ role: 'user', content: QUESTION }];
      // The client first asks for a thread, which the platform refuses, and then sends the whole conversation.
      recorder.script([], CALLING, ANSWERING);
      const runner = client.beta.messages.toolRunner({ ...REQUEST, messages, tools: [weather], stream });
      const last = await runner.runUntilDone();
      assert.equal(last.content[0]?.type === 'text' && last.content[0].text, ANSWERING[0]);
      const results = runner.params.messages.flatMap(({ content }) =>
        Array.isArray(content) ? content.filter(({ type }) => type === 'tool_result') : [],
      );
      assert.deepEqual(
        results.map((result) => 'content' in result && result.content),
        [weatherIn('Rome')],
      );
    });

  it('gets the events of a stream in the order of the reference', async () => {
    recorder.script(CALLING);
    const messages = [{ role: 'user' as const, content: QUESTION }];
    const events = await Array.fromAsync(
      await client.messages.create({ ...REQUEST, messages, tools: [WEATHER], stream: true }),
    );
    const steps = events.map((event) =>
      event.type === 'content_block_delta'
        ? `${event.index} ${event.delta.type}`
        : 'index' in event
          ? `${event.index} ${event.type}`
          : event.type,
    );
    assert.deepEqual(
      steps.filter((step, i) => step !== steps[i - 1]),
      [
        'message_start',
        '0 content_block_start',
        '0 text_delta',
        '0 content_block_stop',
        '1 content_block_start',
        '1 input_json_delta',
        '1 content_block_stop',
        'message_delta',
        'message_stop',
      ],
    );
    const [start] = events;
    assert.ok(start?.type === 'message_start');
    assert.deepEqual([start.message.content, start.message.stop_reason], [[], null]);
    const delta = events.find(({ type }) => type === 'message_delta');
    assert.ok(delta?.type === 'message_delta' && delta.usage.output_tokens > 0);
    assert.equal(delta.delta.stop_reason, 'tool_use');
  });

  it('ends at a stop sequence, at the limit of tokens, and with a forced call', async () => {
    const messages = [{ role: 'user' as const, content: QUESTION }];
    for (const stream of [false, true]) {
      const ask = (more: object): Promise<Anthropic.Message> =>
        client.messages.stream({ ...REQUEST, messages, ...more }).finalMessage();
      const askWhole = (more: object): Promise<Anthropic.Message> =>
        client.messages.create({ ...REQUEST, messages, ...more });
      const answer = stream ? ask : askWhole;
      recorder.script(['One, two, three, four.'], ['One, two, three, four.'], ['{"city": "Oslo"}']);
      const stopped = await answer({ stop_sequences: ['never', ', three'] });
      assert.deepEqual(
        [textIn(stopped), stopped.stop_reason, stopped.stop_sequence],
        ['One, two', 'stop_sequence', ', three'],
      );
      const cut = await answer({ max_tokens: 3 });
      assert.deepEqual([cut.stop_reason, cut.stop_sequence, cut.usage.output_tokens], ['max_tokens', null, 3]);
      const forced = await answer({ tools: [WEATHER], tool_choice: { type: 'tool', name: 'weather' } });
      const [call] = forced.content;
      assert.ok(call?.type === 'tool_use' && forced.content.length === 1);
      assert.deepEqual([call.input, forced.stop_reason], [{ city: 'Oslo' }, 'tool_use']);
      const shaped = await answer({
        output_config: { format: { type: 'json_schema', schema: { enum: ['sunny', 'rainy'] } } },
      });
      assert.match(textIn(shaped), /^"(sunny|rainy)"$/);
    }
  });

  it('gets its own error classes', async () => {
    const messages = [{ role: 'user' as const, content: 'Hi' }];
    const platform = new Anthropic({ baseURL: recorder.platformUrl, apiKey: recorder.apiKey, maxRetries: 0 });
    const refused = (error: unknown, kind: new (...args: never[]) => APIError, type: string) => {
      assert.ok(error instanceof kind, String(error));
      assert.equal(error.type, type);
      assert.match(error.requestID ?? '', /^req_/);
      assert.ok(error.error && 'request_id' in error.error);
      assert.equal(error.error.request_id, error.requestID);
      return true;
    };
    for (const stream of [false, true]) {
      const ask = (more: object, asking = platform) =>
        asking.messages.create({ ...REQUEST, messages, stream, ...more } as Anthropic.MessageCreateParams);
      await assert.rejects(ask({}, platform.withOptions({ apiKey: 'wrong' })), (error) =>
        refused(error, AuthenticationError, 'authentication_error'),
      );
      await assert.rejects(ask({ model: 'nothing' }), (error) => refused(error, NotFoundError, 'not_found_error'));
      for (const more of [{ max_tokens: undefined }, { messages: [] }, { temperature: -1 }])
        await assert.rejects(ask(more), (error) => refused(error, BadRequestError, 'invalid_request_error'));
    }
    await assert.rejects(platform.messages.countTokens({ model: 'nothing', messages }), NotFoundError);
    const models = await platform.models.list();
    assert.ok(models.data.some(({ id }) => id === CHAT));
  });
});
