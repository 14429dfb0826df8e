import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { platformProcesses } from '#test/chaos/processes.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { freePort, isAlive, newHome, ROOT, until } from '#test/harness/platform.ts';

const START_MS = 120_000;

test('npm start serves a bundled function, and Ctrl-C ends all its processes', async () => {
  const home = await newHome();
  const port = await freePort();
  const { REDIS_URL: _redis, PIE_URL: _url, PIE_API_KEY: _key, NODE_OPTIONS: _options, ...rest } = process.env;
  const npm = spawn('npm', ['start', '--', '--no-story', '--functions', 'text-completion'], {
    cwd: ROOT,
    env: { ...rest, PIE_HOME: home, PIE_PORT: String(port), PIE_MODEL: 'stories15m' },
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
    const client = {
      fetch: (route: string, init: RequestInit = {}) =>
        fetch(`${url}${route}`, {
          ...init,
          headers: { authorization: `Bearer ${apiKey}`, ...(init.headers as Record<string, string>) },
        }),
    };
    assert.equal((await client.fetch('/v1/functions/text-completion')).status, 200, 'ready means deployed');
    const end = terminal(await invoke(client, 'text-completion', { prompt: 'Once', maxTokens: 8, temperature: 0 }));
    assert.equal(end?.event, 'result', JSON.stringify(end?.data));
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
