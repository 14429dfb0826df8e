import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, isStepCount, type LanguageModel, Output, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { z } from 'zod';
import { firstFunctions } from '#infra/bundled.ts';
import { LIFELINE_VARIABLE } from '#infra/lifeline.ts';
import { platformProcesses } from '#test/chaos/processes.ts';
import { NewcomerFolder, stepsOf } from '#test/harness/newcomer.ts';
import { freePort, isAlive, newHome, runProgram, until } from '#test/harness/platform.ts';

const START_MS = 240_000;
/** Functions that a start deploys before it serves. The others, which it deploys in the background, take minutes of processor time. */
const FUNCTIONS = firstFunctions({ encoders: [] });
const CHAT = 'minimind2-small';
const QUESTION = 'What is the capital of France?';
const ANSWER = /The capital of France is Paris\./;

/**
 * Patterns in the output of the README's commands, by the first words of each command. Three commands are missing: `before` runs `npm start`,
 * `npm run test:ci` runs this file, and `npm test` other ones.
 */
const PRINTED: Readonly<Record<string, readonly RegExp[]>> = {
  'npx pie invoke text-completion': [/(\w+\W+){30}/],
  'npx pie demo': [/Both texts are equal\./, /HTTP requests +1 /],
  'npx pie deploy longest.ts': [/longest/],
  'npx pie invoke longest': [/^One day, a cat\b.*\.\S* \S/s],
};

describe('npm start without configuration', { concurrency: false }, () => {
  const steps = stepsOf('README.md');
  let newcomer: NewcomerFolder | undefined;
  let home: string | undefined;
  let environment: NodeJS.ProcessEnv;
  let url: string;
  let apiKey: string;
  let npm: ChildProcess | undefined;
  let output = '';
  const startedMs = performance.now();

  before(async () => {
    assert.equal(steps.commands[0], 'npm start');
    newcomer = await NewcomerFolder.create(steps);
    home = await newHome();
    const port = await freePort();
    url = `http://127.0.0.1:${port}`;
    environment = { ...process.env, PIE_HOME: home, PIE_PORT: String(port) };
    for (const name of ['REDIS_URL', 'PIE_URL', 'PIE_API_KEY', 'PIE_MODEL', 'NODE_OPTIONS']) delete environment[name];
    const child = spawn('npm', ['start', '--', '--functions', FUNCTIONS.join()], {
      cwd: newcomer.path,
      // The platform ends with this process, however this process ends.
      env: { ...environment, [LIFELINE_VARIABLE]: 'stdin' },
      // A process group of its own, as in a terminal, where Ctrl-C reaches every process of the group.
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    npm = child;
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (piece: string) => {
        output += piece;
      });
    const isReady = () => {
      assert.equal(child.exitCode, null, output);
      return output.includes('Ctrl-C stops it.');
    };
    await until('the start says that it is ready', isReady, START_MS);
    apiKey = JSON.parse(await readFile(path.join(home, 'credentials.json'), 'utf8')).apiKey;
  });
  after(async () => {
    if (npm?.pid !== undefined) {
      try {
        process.kill(-npm.pid, 'SIGKILL');
      } catch {
        // The group is gone.
      }
      if (npm.exitCode === null && npm.signalCode === null) await once(npm, 'exit');
    }
    if (home !== undefined) await rm(home, { recursive: true, force: true, maxRetries: 10 });
    await newcomer?.[Symbol.asyncDispose]();
  });

  it('streams a story as proof, is ready with all functions, and prints the addresses of the API and the dashboard', async () => {
    assert.match(output, /Once upon a time, there was/);
    assert.equal((await fetch(`${url}/readyz`)).status, 200);
    const headers = { authorization: `Bearer ${apiKey}` };
    for (const name of FUNCTIONS) assert.equal((await fetch(`${url}/v1/functions/${name}`, { headers })).status, 200);
    const addresses = [...output.matchAll(/^ {2}(?:URL|Dashboard) +(\S+)/gm)].map(([, address = '']) => address);
    assert.equal(addresses.length, 2, output);
    for (const address of addresses)
      assert.match(await (await fetch(address)).text(), /Sign in/, `a browser can open ${address}`);
  });

  it("takes a newcomer through the README's commands to an inferlet of their own", async (t) => {
    const commands = steps.commands.filter(
      (command) => !['npm start', 'npm test', 'npm run test:ci'].includes(command),
    );
    assert.equal(commands.length, Object.keys(PRINTED).length);
    for (const command of commands) {
      const { code, stdout, stderr } = await runProgram('sh', ['-c', command], {
        cwd: newcomer?.path,
        env: environment,
      });
      assert.equal(code, 0, `${command}\n${stdout}${stderr}`);
      const [, patterns] = Object.entries(PRINTED).find(([words]) => command.startsWith(words)) ?? [];
      assert.ok(patterns !== undefined, command);
      for (const pattern of patterns) assert.match(stdout, pattern, command);
    }
    t.diagnostic(`${((performance.now() - startedMs) / 1000).toFixed(0)} s from npm start on`);
  });

  it('serves the official OpenAI client', async () => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
    const served = (await client.models.list()).data.map(({ id }) => id);
    assert.deepEqual(served.toSorted(), [CHAT, 'stories15m']);
    const request = { model: CHAT, temperature: 0, messages: [{ role: 'user' as const, content: QUESTION }] };
    const answer = await client.chat.completions.create(request);
    assert.match(answer.choices[0]?.message.content ?? '', ANSWER);
    const stream = client.chat.completions.stream({ ...request, max_tokens: 8 });
    assert.match((await stream.finalChatCompletion()).choices[0]?.message.content ?? '', /^The capital of France/);
    const parameters = {
      type: 'object',
      properties: { zone: { enum: ['UTC', 'CET'] } },
      required: ['zone'],
      additionalProperties: false,
    };
    const called = await client.chat.completions.create({
      ...request,
      tool_choice: 'required',
      tools: [{ type: 'function', function: { name: 'get_time', parameters } }],
    });
    const [call] = called.choices[0]?.message.tool_calls ?? [];
    assert.ok(call?.type === 'function' && ['UTC', 'CET'].includes(JSON.parse(call.function.arguments).zone));
    const response = await client.responses.create({ model: CHAT, input: QUESTION, temperature: 0 });
    assert.match(response.output_text, ANSWER);
    const completion = await client.completions.create({
      model: 'stories15m',
      prompt: 'Once upon a',
      max_tokens: 4,
      temperature: 0,
    });
    assert.match(completion.choices[0]?.text ?? '', /^ time/);
  });

  const compatible = () =>
    createOpenAICompatible({
      name: 'pie',
      baseURL: `${url}/v1`,
      apiKey,
      includeUsage: true,
      supportsStructuredOutputs: true,
    });
  const openAi = () => createOpenAI({ baseURL: `${url}/v1`, apiKey });
  for (const [name, modelOf] of [
    ['its provider of OpenAI-compatible routes', () => compatible()(CHAT)],
    ['its OpenAI provider, by chat completions', () => openAi().chat(CHAT)],
    ['its OpenAI provider, by responses', () => openAi().responses(CHAT)],
  ] as const satisfies readonly (readonly [string, () => LanguageModel])[])
    it(`serves the Vercel AI SDK through ${name}`, async () => {
      const request = { model: modelOf(), prompt: QUESTION, maxOutputTokens: 24, temperature: 0, maxRetries: 0 };
      const whole = await generateText(request);
      assert.match(whole.text, ANSWER);
      assert.ok((whole.usage.inputTokens ?? 0) > 0);
      const streamed = streamText(request);
      const pieces = await Array.fromAsync(streamed.textStream);
      assert.ok(pieces.length > 1);
      assert.equal(pieces.join(''), whole.text);
      assert.equal((await streamed.usage).outputTokens, whole.usage.outputTokens);
      assert.equal(await streamed.finishReason, whole.finishReason);

      const schema = z.object({ city: z.enum(['Paris', 'Rome']), isLarge: z.boolean() });
      const { output: city } = await generateText({ ...request, output: Output.object({ schema }) });
      assert.deepEqual(schema.parse(city), city);

      const askedCities: string[] = [];
      const weather = tool({
        description: 'The weather in a city',
        inputSchema: z.object({ city: z.enum(['Paris', 'Rome']) }),
        execute: async ({ city }) => {
          askedCities.push(city);
          return `It is sunny in ${city}.`;
        },
      });
      const { steps: turns } = await generateText({
        ...request,
        maxOutputTokens: 60,
        tools: { weather },
        stopWhen: isStepCount(2),
        // The model must call the tool, and then read its result.
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }),
      });
      const [callTurn, answerTurn] = turns;
      assert.deepEqual([turns.length, callTurn?.finishReason, askedCities.length], [2, 'tool-calls', 1]);
      assert.deepEqual(callTurn?.toolResults[0]?.output, `It is sunny in ${askedCities[0]}.`);
      const [plainTokens = 0, turnTokens = 0] = [whole.usage.inputTokens, answerTurn?.usage.inputTokens];
      assert.ok(
        turnTokens > plainTokens,
        `the prompt has the call and its result: ${turnTokens} tokens, ${plainTokens} without a tool`,
      );

      const departure = new AbortController();
      const story = streamText({ ...request, maxOutputTokens: 300, abortSignal: departure.signal });
      const kinds: string[] = [];
      for await (const { type } of story.fullStream) {
        kinds.push(type);
        if (type === 'text-delta') departure.abort();
      }
      assert.equal(kinds.at(-1), 'abort');
    });

  it('serves completions to the Vercel AI SDK, and refuses a model that it does not have', async () => {
    const model = compatible().completionModel('stories15m');
    const story = await generateText({ model, prompt: 'Tell a story.', maxOutputTokens: 4, temperature: 0 });
    assert.deepEqual([story.usage.outputTokens, story.finishReason], [4, 'length']);
    assert.match(story.text, /\w/);
    await assert.rejects(
      generateText({ model: compatible()('nothing'), prompt: QUESTION, maxRetries: 0 }),
      (error) => APICallError.isInstance(error) && error.statusCode === 404 && /nothing/.test(error.message),
    );
  });

  it('ends all its processes on Ctrl-C', async () => {
    const group = npm?.pid ?? 0;
    const processes = platformProcesses(group);
    assert.ok(processes.length >= 6, `${processes.length} processes`);
    const ended = once(npm ?? assert.fail(), 'exit');
    process.kill(-group, 'SIGINT');
    await ended;
    assert.ok(!processes.some(isAlive), 'the command ends after all its processes');
    await until('it says that it has stopped in order', () => /^Draining .*^Stopped\.$/ms.test(output));
    assert.doesNotMatch(output, /Error:/);
  });
});
