import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, type ModelMessage, streamText, tool } from 'ai';
import { z } from 'zod';
import { CHAT } from '#test/harness/functions.ts';
import { ANSWERING, CALLING, Recorder, THANKED, weatherIn } from './recorder.ts';

let recorder: Recorder;
before(async () => {
  recorder = await Recorder.start();
});
after(() => recorder[Symbol.asyncDispose]());

const weather = tool({
  description: 'The weather in a city',
  inputSchema: z.object({ city: z.enum(['Rome', 'Oslo']) }),
  execute: async ({ city }) => weatherIn(city),
});

describe('the Vercel AI SDK', () => {
  const provider = () => createOpenAI({ baseURL: recorder.baseURL, apiKey: recorder.apiKey });
  for (const [api, modelOf] of [
    ['responses, its default', () => provider()(CHAT)],
    ['chat completions', () => provider().chat(CHAT)],
  ] as const)
    for (const streams of [false, true])
      it(`runs a tool loop with text and further turns over ${api}, ${streams ? 'streamed' : 'whole'}`, async () => {
        const messages: ModelMessage[] = [];
        const ask = async (content: string) => {
          messages.push({ role: 'user', content });
          const request = {
            model: modelOf(),
            messages,
            tools: { weather },
            stopWhen: isStepCount(3),
            temperature: 0,
            maxRetries: 0,
          };
          const result = streams ? streamText(request) : await generateText(request);
          const text = await result.text;
          messages.push(...(await result.response).messages);
          return { text, steps: await result.steps };
        };
        recorder.bodies.length = 0;
        recorder.script(CALLING, ANSWERING, THANKED, THANKED);
        const { text, steps } = await ask('What is the weather in Rome?');
        assert.deepEqual(
          steps.map((step) => [step.text.trim(), step.finishReason]),
          [
            ['Let me look.', 'tool-calls'],
            ['It is sunny in Rome.', 'stop'],
          ],
        );
        assert.equal(steps[0]?.toolResults[0]?.output, weatherIn('Rome'));
        assert.equal(text, ANSWERING[0]);
        assert.equal((await ask('Thank you.')).text, THANKED[0]);
        assert.equal((await ask('Thank you again.')).text, THANKED[0]);
        assert.equal(recorder.unusedScripts, 0);
        if (api === 'chat completions') return;
        const references = recorder.bodies.map(
          ({ input }) => input.filter(({ type }: { type?: string }) => type === 'item_reference').length,
        );
        assert.ok(
          references.every((count, request) => (request === 0 ? count === 0 : count > 0)),
          `the SDK refers to earlier items: ${references}`,
        );
      });
});
