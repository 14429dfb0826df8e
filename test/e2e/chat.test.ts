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
  const functions = ['openai-chat', 'text-completion'];
  await using platform = await Platform.start({ functions, env: { PIE_MODEL: undefined } });
  const client = new OpenAI({ baseURL: `${platform.url}/v1`, apiKey: platform.apiKey });
  const served = (await client.models.list()).data.map(({ id }) => id);
  assert.deepEqual(served.toSorted(), ['minimind2-small', 'stories15m']);
  const answer = await client.chat.completions.create({
    model: 'minimind2-small',
    messages: [{ role: 'user', content: 'What is the capital of France?' }],
    temperature: 0,
  });
  assert.match(answer.choices[0]?.message.content ?? '', /The capital of France is Paris\./);
  const story = await invoke(platform, 'text-completion', { prompt: '', maxTokens: 12, temperature: 0 });
  assert.match(text(story), /^Once upon a time/);
});
