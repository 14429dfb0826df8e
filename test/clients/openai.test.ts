import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { CHAT, ENCODER, STORIES } from '#test/harness/functions.ts';
import { ANSWERING, CALLING, Recorder, THANKED, WEATHER_PARAMETERS, weatherIn } from './recorder.ts';

const QUESTION = 'What is the weather in Rome?';

let recorder: Recorder;
let client: OpenAI;
before(async () => {
  recorder = await Recorder.start();
  client = new OpenAI({ baseURL: recorder.baseURL, apiKey: recorder.apiKey, maxRetries: 0 });
});
after(() => recorder[Symbol.asyncDispose]());

describe('the official OpenAI client', () => {
  for (const streams of [false, true])
    it(`holds a conversation with a tool over chat completions, ${streams ? 'streamed' : 'whole'}`, async () => {
      const messages: OpenAI.ChatCompletionMessageParam[] = [
        { role: 'developer', content: [{ type: 'text', text: 'Be brief.' }] },
        { role: 'user', content: QUESTION },
      ];
      const tools = [{ type: 'function' as const, function: { name: 'weather', parameters: WEATHER_PARAMETERS } }];
      const ask = async () => {
        const request = { model: CHAT, messages, tools, temperature: 0 };
        const { choices } = streams
          ? await client.chat.completions.stream(request).finalChatCompletion()
          : await client.chat.completions.create(request);
        const [{ message, finish_reason } = assert.fail()] = choices;
        messages.push(message);
        return { message, finish_reason };
      };
      recorder.script(CALLING, ANSWERING, THANKED);
      const called = await ask();
      assert.deepEqual([called.message.content?.trim(), called.finish_reason], ['Let me look.', 'tool_calls']);
      const [call] = called.message.tool_calls ?? [];
      assert.ok(call?.type === 'function');
      const { city } = JSON.parse(call.function.arguments);
      messages.push({ role: 'tool', tool_call_id: call.id, content: [{ type: 'text', text: weatherIn(city) }] });
      assert.equal((await ask()).message.content, ANSWERING[0]);
      messages.push({ role: 'user', content: 'Thank you.' });
      assert.equal((await ask()).message.content, THANKED[0]);
      assert.equal(recorder.unusedScripts, 0);
    });

  for (const streams of [false, true])
    it(`calls the deprecated functions, ${streams ? 'streamed' : 'whole'}`, async () => {
      const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: QUESTION }];
      const request = { model: CHAT, messages, functions: [{ name: 'weather', parameters: WEATHER_PARAMETERS }] };
      recorder.script(['{"city": "Oslo"}'], ANSWERING, THANKED);
      const forced = { ...request, function_call: { name: 'weather' } };
      let call = { name: '', arguments: '' };
      let finish: string | null | undefined;
      if (streams) {
        for await (const { choices } of await client.chat.completions.create({ ...forced, stream: true })) {
          const delta = choices[0]?.delta.function_call;
          call = { name: call.name + (delta?.name ?? ''), arguments: call.arguments + (delta?.arguments ?? '') };
          finish = choices[0]?.finish_reason;
        }
      } else {
        const [choice] = (await client.chat.completions.create(forced)).choices;
        assert.equal(choice?.message.tool_calls, undefined);
        call = choice?.message.function_call ?? call;
        finish = choice?.finish_reason;
      }
      assert.deepEqual([call, finish], [{ name: 'weather', arguments: '{"city": "Oslo"}' }, 'function_call']);
      messages.push(
        { role: 'assistant', content: null, function_call: call },
        { role: 'function', name: 'weather', content: weatherIn('Oslo') },
      );
      const answered = await client.chat.completions.create(request);
      assert.equal(answered.choices[0]?.message.content, ANSWERING[0]);
      messages.push({ role: 'assistant', content: ANSWERING[0] ?? '' }, { role: 'user', content: 'Thank you.' });
      const thanked = await client.chat.completions.create({ ...request, function_call: 'auto' });
      assert.equal(thanked.choices[0]?.message.content, THANKED[0]);
      assert.ok((answered.usage?.prompt_tokens ?? 0) < (thanked.usage?.prompt_tokens ?? 0));
    });

  for (const streams of [false, true])
    it(`continues a response by its id, ${streams ? 'streamed' : 'whole'}`, async () => {
      const ask = async (more: Omit<OpenAI.Responses.ResponseCreateParamsNonStreaming, 'model' | 'stream'>) => {
        const request = { model: CHAT, temperature: 0, ...more };
        return streams ? client.responses.stream(request).finalResponse() : client.responses.create(request);
      };
      const tools = [{ type: 'function' as const, name: 'weather', parameters: WEATHER_PARAMETERS, strict: true }];
      recorder.script(CALLING, ANSWERING, THANKED);
      const called = await ask({ input: QUESTION, tools });
      const [said, call] = called.output;
      assert.ok(said?.type === 'message' && call?.type === 'function_call');
      const answered = await ask({
        previous_response_id: called.id,
        input: [{ type: 'function_call_output', call_id: call.call_id, output: weatherIn('Rome') }],
        tools,
      });
      assert.equal(answered.output_text, ANSWERING[0]);
      assert.equal(answered.previous_response_id, called.id);
      const thanked = await ask({ previous_response_id: answered.id, input: 'Thank you.', tools });
      assert.equal(thanked.output_text, THANKED[0]);
      // The same conversation, sent as a whole and by reference, has as many tokens.
      const whole = [
        { role: 'user' as const, content: QUESTION },
        said,
        { type: 'item_reference' as const, id: call.id ?? '' },
        { type: 'function_call_output' as const, call_id: call.call_id, output: weatherIn('Rome') },
        ...answered.output,
        { role: 'user' as const, content: 'Thank you.' },
      ];
      recorder.script(THANKED);
      const again = await ask({ input: whole as OpenAI.Responses.ResponseInput, tools, store: false });
      assert.equal(again.usage?.input_tokens, thanked.usage?.input_tokens);
      await assert.rejects(ask({ previous_response_id: again.id, input: 'And?' }), /is not kept/);
      const items: OpenAI.Responses.ResponseItem[] = [];
      for await (const item of client.responses.inputItems.list(thanked.id, { order: 'asc', limit: 3 }))
        items.push(item);
      const types = ['message', 'message', 'function_call', 'function_call_output', 'message', 'message'];
      assert.deepEqual(
        items.map(({ type }) => type),
        types,
      );
      assert.deepEqual(items[2]?.id, call.id);
      assert.equal((await client.responses.retrieve(answered.id)).output_text, ANSWERING[0]);
      await client.responses.delete(answered.id);
      await assert.rejects(client.responses.retrieve(answered.id), OpenAI.NotFoundError);
      await assert.rejects(ask({ previous_response_id: thanked.id, input: 'And?' }), /is not kept/);
    });

  it('completes texts and makes vectors', async () => {
    for (const stream of [false, true]) {
      let prompt = 'Once upon a';
      for (let turn = 0; turn < 3; turn++) {
        const request = { model: STORIES, prompt, max_tokens: 4, temperature: 0 };
        if (stream)
          for await (const { choices } of await client.completions.create({ ...request, stream }))
            prompt += choices[0]?.text ?? '';
        else prompt += (await client.completions.create(request)).choices[0]?.text ?? '';
      }
      assert.match(prompt, /^Once upon a time, there was a/);
    }
    for (const encoding_format of ['float', 'base64'] as const) {
      const { data } = await client.embeddings.create({ model: ENCODER, input: ['a', 'b', 'a'], encoding_format });
      assert.deepEqual([data.length, data[0]?.embedding], [3, data[2]?.embedding]);
    }
  });
});
