import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { test } from 'node:test';
import { invoke, numberOf, terminal } from '#test/harness/events.ts';
import { freePort, isAlive, newHome, Platform, ROOT } from '#test/harness/platform.ts';

test('a drain lets a running story end, stops every process and ends an endless run; a second start finds the deployed function', async (t) => {
  const home = await newHome();
  try {
    const first = await Platform.start({ home, functions: ['text-completion'] });
    assert.equal((await stat(path.join(home, 'credentials.json'))).mode & 0o777, 0o600);
    const source = path.join(home, 'hello.ts');
    await writeFile(
      source,
      `export const run = async (input: string) => {
         const { name } = JSON.parse(input);
         while (name === 'for ever');
         return JSON.stringify({ hello: name });
       };`,
    );
    const deploy = await first.pie(['deploy', source, '--name', 'hello', '--json']);
    assert.equal(deploy.code, 0, deploy.stderr);

    const pids = first.pids();
    let stopping: Promise<number | null> | undefined;
    const events = await invoke(
      first,
      'text-completion',
      { prompt: '', maxTokens: 200, temperature: 0 },
      {
        onEvent: (event) => {
          // A service manager may signal all processes. The supervisor then gets two signals, since `pie up` passes its own signal on.
          if (numberOf(event) === 3) stopping = first.stop('SIGTERM');
          if (numberOf(event) === 4) void first.stop('SIGTERM');
        },
      },
    );
    assert.equal(terminal(events)?.event, 'result');
    assert.equal(await stopping, 0);
    stopping = undefined;
    assert.deepEqual(pids.filter(isAlive), []);

    await using second = await Platform.start({ home, functions: false, config: 'drain_ms = 500' });
    assert.ok(existsSync(path.join(home, 'run/serving')));
    const again = await invoke(second, 'hello', { name: 'you' });
    assert.deepEqual(terminal(again)?.data.output, { hello: 'you' });
    assert.equal(second.apiKey, first.apiKey);
    await t.test('two platforms run side by side, and a home serves one platform only', () => assertApart(second));
    const endless = await invoke(
      second,
      'hello',
      { name: 'for ever' },
      {
        onEvent: () => {
          stopping ??= second.stop('SIGTERM');
        },
      },
    );
    assert.equal(terminal(endless)?.event, 'error');
    assert.equal(await stopping, 0);
    assert.ok(!existsSync(path.join(home, 'run/serving')));
  } finally {
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
});

for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 0],
] as const)
  test(`${signal} during the start ends the platform with ${code} and leaves no process`, () =>
    stopDuringStart(signal, code));

async function assertApart(one: Platform): Promise<void> {
  await using two = await Platform.start({ functions: false });
  assert.notEqual(one.apiKey, two.apiKey);
  assert.equal(
    (await fetch(`${two.url}/v1/functions`, { headers: { authorization: `Bearer ${one.apiKey}` } })).status,
    401,
  );
  await assert.rejects(Platform.start({ home: one.home, functions: false }), /in use by a running platform/);
}

async function stopDuringStart(signal: NodeJS.Signals, code: number): Promise<void> {
  const home = await mkdtemp(path.join(os.tmpdir(), 'pie-'));
  const environment = { ...process.env, PIE_HOME: home, PIE_PORT: String(await freePort()), REDIS_URL: '' };
  const starting = spawn(process.execPath, ['infra/up.ts', '--json', '--no-functions'], {
    cwd: ROOT,
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(starting, 'exit');
  try {
    const pids: number[] = [];
    let serves = false;
    for await (const line of readline.createInterface({ input: starting.stdout })) {
      const event = JSON.parse(line) as { kind: string; name?: string; pid?: number };
      if (event.pid !== undefined) pids.push(event.pid);
      serves ||= event.kind === 'serving';
      // Redis starts first; the other processes are not ready yet.
      if (event.name === 'redis') starting.kill(signal);
    }
    // If the signal arrives late, the platform already serves; then it exits with 0.
    assert.deepEqual(await exited, [serves ? 0 : code, null]);
    assert.ok(pids.length > 0);
    assert.deepEqual(pids.filter(isAlive), []);
  } finally {
    starting.kill('SIGKILL');
    await rm(home, { recursive: true, force: true, maxRetries: 10 });
  }
}
