import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Agent, type AgentInputItem, OpenAIProvider, Runner, tool } from '@openai/agents';
import { z } from 'zod';
import { CHAT } from '#test/harness/functions.ts';
import { ANSWERING, CALLING, Recorder, THANKED, weatherIn } from './recorder.ts';

let recorder: Recorder;
before(async () => {
  recorder = await Recorder.start();
});
after(() => recorder[Symbol.asyncDispose]());

const weather = tool({
  name: 'weather',
  description: 'The weather in a city',
  parameters: z.object({ city: z.enum(['Rome', 'Oslo']) }),
  execute: async ({ city }) => weatherIn(city),
});

describe('the OpenAI Agents SDK', () => {
  for (const useResponses of [true, false])
    for (const stream of [false, true]) {
      const how = `${useResponses ? 'responses' : 'chat completions'}, ${stream ? 'streamed' : 'whole'}`;
      it(`runs an agent with a tool over three turns of ${how}`, async () => {
        const modelProvider = new OpenAIProvider({ baseURL: recorder.baseURL, apiKey: recorder.apiKey, useResponses });
        const runner = new Runner({ modelProvider, tracingDisabled: true });
        const agent = new Agent({ name: 'Guide', instructions: 'Be brief.', model: CHAT, tools: [weather] });
        let history: AgentInputItem[] = [];
        const ask = async (content: string) => {
          history.push({ role: 'user', content });
          if (stream) {
            const result = await runner.run(agent, history, { stream: true });
            const deltas = await Array.fromAsync(result.toTextStream());
            await result.completed;
            assert.ok(deltas.length > 1);
            history = result.history;
            return result.finalOutput;
          }
          const result = await runner.run(agent, history);
          history = result.history;
          return result.finalOutput;
        };
        recorder.script(CALLING, ANSWERING, THANKED, THANKED);
        assert.equal(await ask('What is the weather in Rome?'), ANSWERING[0]);
        const results = history.filter(({ type }) => type === 'function_call_result');
        assert.equal(results.length, 1);
        assert.equal(await ask('Thank you.'), THANKED[0]);
        assert.equal(await ask('Thank you again.'), THANKED[0]);
        assert.equal(recorder.unusedScripts, 0);
      });
    }
});
