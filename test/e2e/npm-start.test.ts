import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import OpenAI from 'openai';
import { platformProcesses } from '#test/chaos/processes.ts';
import { invoke, text } from '#test/harness/events.ts';
import { freePort, isAlive, newHome, ROOT, until } from '#test/harness/platform.ts';

const START_MS = 120_000;
const FUNCTIONS = ['text-completion', 'openai-chat', 'openai-completions', 'openai-responses'];

test('npm start without configuration serves the OpenAI client and stories, and Ctrl-C ends all its processes', async () => {
  const home = await newHome();
  const port = await freePort();
  const env: NodeJS.ProcessEnv = { ...process.env, PIE_HOME: home, PIE_PORT: String(port) };
  for (const name of ['REDIS_URL', 'PIE_URL', 'PIE_API_KEY', 'PIE_MODEL', 'NODE_OPTIONS']) delete env[name];
  const npm = spawn('npm', ['start', '--', '--no-story', '--functions', FUNCTIONS.join()], {
    cwd: ROOT,
    env,
    // A process group of its own, as in a terminal, where Ctrl-C reaches every process of the group.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const group = npm.pid;
  assert.ok(group !== undefined);
  let output = '';
  for (const stream of [npm.stdout, npm.stderr])
    stream.setEncoding('utf8').on('data', (piece: string) => {
      output += piece;
    });
  const exited = once(npm, 'exit');
  try {
    const url = `http://127.0.0.1:${port}`;
    await until(
      'it is ready',
      async () => {
        assert.equal(npm.exitCode, null, output);
        return (await fetch(`${url}/readyz`).catch(() => null))?.status === 200;
      },
      START_MS,
    );
    const { apiKey } = JSON.parse(await readFile(path.join(home, 'credentials.json'), 'utf8')) as { apiKey: string };
    const platform = {
      fetch: (route: string, init: RequestInit = {}) =>
        fetch(`${url}${route}`, {
          ...init,
          headers: { authorization: `Bearer ${apiKey}`, ...(init.headers as Record<string, string>) },
        }),
    };
    for (const name of FUNCTIONS)
      assert.equal((await platform.fetch(`/v1/functions/${name}`)).status, 200, 'ready means deployed');
    const story = await invoke(platform, 'text-completion', { prompt: '', maxTokens: 12, temperature: 0 });
    assert.match(text(story), /^Once upon a time/);
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey });
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
    assert.match(output, new RegExp(`:${port}`), 'the output has the port');

    const processes = platformProcesses(group);
    assert.ok(processes.length >= 6, `${processes.length} processes`);
    process.kill(-group, 'SIGINT');
    await until('no process runs', () => !processes.some(isAlive));
    assert.doesNotMatch(output, /Error:/);
  } finally {
    try {
      process.kill(-group, 'SIGKILL');
    } catch {
      // The group is gone.
    }
    await exited;
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
});
