import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { deploy } from '#test/harness/deploy.ts';
import { invoke, terminal, text } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';

test('the chat model with grouped-query attention and a chat template names the capital of France', async () => {
  await using platform = await Platform.start({ functions: false, env: { PIE_MODEL: 'minimind2-small' } });
  await deploy(platform, 'chat');
  const events = await invoke(platform, 'chat', { question: 'What is the capital of France?' });
  assert.equal(terminal(events)?.event, 'result', JSON.stringify(terminal(events)?.data));
  assert.match(text(events), /The capital of France is Paris\./);
});

test('a start without configuration serves the OpenAI client and stories', async () => {
  await using platform = await Platform.start({ env: { PIE_MODEL: undefined } });
  const client = new OpenAI({ baseURL: `${platform.url}/v1`, apiKey: platform.apiKey });
  const served = (await client.models.list()).data.map(({ id }) => id);
  assert.deepEqual(served.toSorted(), ['minimind2-small', 'stories15m']);
  const question = 'What is the capital of France?';
  const request = {
    ...{ model: 'minimind2-small', temperature: 0 },
    messages: [{ role: 'user' as const, content: question }],
  };
  const answer = await client.chat.completions.create(request);
  assert.match(answer.choices[0]?.message.content ?? '', /The capital of France is Paris\./);
  const stream = client.chat.completions.stream({ ...request, max_tokens: 8 });
  assert.match((await stream.finalChatCompletion()).choices[0]?.message.content ?? '', /^The capital of France/);
  const parameters = {
    ...{ type: 'object', properties: { zone: { enum: ['UTC', 'CET'] } } },
    ...{ required: ['zone'], additionalProperties: false },
  };
  const called = await client.chat.completions.create({
    ...{ ...request, tool_choice: 'required' },
    tools: [{ type: 'function', function: { name: 'get_time', parameters } }],
  });
  const [call] = called.choices[0]?.message.tool_calls ?? [];
  assert.ok(call?.type === 'function' && ['UTC', 'CET'].includes(JSON.parse(call.function.arguments).zone));
  const response = await client.responses.create({ model: request.model, input: question, temperature: 0 });
  assert.match(response.output_text, /The capital of France is Paris\./);
  const completion = await client.completions.create({
    ...{ model: 'stories15m', prompt: 'Once upon a', max_tokens: 4, temperature: 0 },
  });
  assert.match(completion.choices[0]?.text ?? '', /^ time/);
  const story = await invoke(platform, 'text-completion', { prompt: '', maxTokens: 12, temperature: 0 });
  assert.match(text(story), /^Once upon a time/);
});
