import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { AIMessageChunk, type BaseMessageLike, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';
import { CHAT, ENCODER } from '#test/harness/functions.ts';
import { ANSWERING, CALLING, Recorder, THANKED, weatherIn } from './recorder.ts';

let recorder: Recorder;
before(async () => {
  recorder = await Recorder.start();
});
after(() => recorder[Symbol.asyncDispose]());

const City = z.object({ city: z.enum(['Rome', 'Oslo']) });
const weather = tool(async ({ city }) => weatherIn(city), {
  name: 'weather',
  description: 'The weather in a city',
  schema: City,
});

describe('LangChain.js', () => {
  const modelOf = (useResponsesApi: boolean) =>
    new ChatOpenAI({
      model: CHAT,
      apiKey: recorder.apiKey,
      configuration: { baseURL: recorder.baseURL },
      useResponsesApi,
      temperature: 0,
      maxRetries: 0,
    });
  for (const useResponsesApi of [false, true])
    for (const streams of [false, true]) {
      const how = `${useResponsesApi ? 'responses' : 'chat completions'}, ${streams ? 'streamed' : 'whole'}`;
      it(`binds a tool and holds a conversation of three turns over ${how}`, async () => {
        const model = modelOf(useResponsesApi).bindTools([weather]);
        const messages: BaseMessageLike[] = [
          ['system', 'Be brief.'],
          ['user', 'What is the weather in Rome?'],
        ];
        const ask = async (): Promise<AIMessageChunk> => {
          if (!streams) {
            const message = await model.invoke(messages);
            messages.push(message);
            return message;
          }
          let whole: AIMessageChunk | undefined;
          for await (const chunk of await model.stream(messages)) whole = whole ? whole.concat(chunk) : chunk;
          assert.ok(whole instanceof AIMessageChunk);
          messages.push(whole);
          return whole;
        };
        recorder.script(CALLING, ANSWERING, THANKED);
        const called = await ask();
        assert.equal(called.text.trim(), 'Let me look.');
        const [call] = called.tool_calls ?? [];
        assert.deepEqual([call?.name, call?.args], ['weather', { city: 'Rome' }]);
        messages.push(new ToolMessage({ content: weatherIn('Rome'), tool_call_id: call?.id ?? '' }));
        assert.equal((await ask()).text, ANSWERING[0]);
        messages.push(['user', 'Thank you.']);
        assert.equal((await ask()).text, THANKED[0]);
        assert.equal(recorder.unusedScripts, 0);
      });
    }

  it('gets objects that fit a schema by each of its methods', async () => {
    for (const useResponsesApi of [false, true])
      for (const method of ['jsonSchema', 'functionCalling'] as const) {
        const model = modelOf(useResponsesApi).withStructuredOutput(City, { method });
        const found = await model.invoke('What is the capital of Italy?');
        assert.ok(City.safeParse(found).success, `${method}: ${JSON.stringify(found)}`);
      }
  });

  it('makes vectors', async () => {
    const embeddings = new OpenAIEmbeddings({
      model: ENCODER,
      apiKey: recorder.apiKey,
      configuration: { baseURL: recorder.baseURL },
      maxRetries: 0,
    });
    const [first, second] = await embeddings.embedDocuments(['a', 'a']);
    assert.deepEqual(first, second);
  });
});
