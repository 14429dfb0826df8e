import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, test } from 'node:test';
import type { InvocationPage, PlatformLoad } from '#gateway/app/control/operations.ts';
import type { Health } from '#gateway/app/control.ts';
import { GpuHostConnection, type ModelStats } from '#gpu-host/protocol/client.ts';
import { loadConfig } from '#infra/config.ts';
import { invoke, terminal, text } from '#test/harness/events.ts';
import { Platform, ROOT, until } from '#test/harness/platform.ts';

const STORY = { prompt: 'Once upon a time', maxTokens: 24, temperature: 0 };

let platform: Platform;
before(async () => {
  platform = await Platform.start({
    functions: ['text-completion'],
    config: '[gpu_host]\ncount = 2\nspread = "invocation"\n',
  });
});
after(() => platform?.[Symbol.asyncDispose]());

/** What each GPU host says of its first model, in the order of the configuration. */
async function models(): Promise<ModelStats[]> {
  return Promise.all(
    loadConfig(platform.environment).gpuHosts.map(async ({ address }) => {
      const connection = await GpuHostConnection.connect(address);
      try {
        return (await connection.stats()).models[0] as ModelStats;
      } finally {
        connection.close();
      }
    }),
  );
}

const story = () => invoke(platform, 'text-completion', STORY);

test('invocations spread over two GPU hosts and say the same on both; the capacity is the sum', async () => {
  const told = await Promise.all(Array.from({ length: 24 }, story));
  const texts = new Set(told.map(text));
  assert.equal(texts.size, 1);
  assert.ok(([...texts][0] ?? '').length > 40);
  const hosts = await models();
  const computed = hosts.map(({ tokens }) => tokens);
  // 24 invocations of some 30 tokens: that one host gets fewer than four is one in 10,000.
  for (const tokens of computed) assert.ok(tokens > 3 * STORY.maxTokens, `${computed}`);
  const total = hosts.reduce((sum, { pages }) => sum + pages.total, 0);
  const capacity = new RegExp(`^pie_admission_pages.*\\} ${total}$`, 'm');
  await until('admission counts both', async () => capacity.test(await (await platform.fetch('/metrics')).text()));
});

test('operators see which of them serves each invocation', async () => {
  const { code, stderr } = await platform.pie(['deploy', path.join(ROOT, 'test/inferlets/counted')]);
  assert.equal(code, 0, stderr);
  const ids = await Promise.all(
    Array.from({ length: 8 }, async (_, i) => {
      const response = await platform.fetch('/v1/functions/counted/invocations', {
        method: 'POST',
        headers: { 'content-type': 'application/json', prefer: 'respond-async' },
        body: JSON.stringify({ mark: `shown-${i}`, tokens: 30, pauseMs: 1000 }),
      });
      return ((await response.json()) as { id: string }).id;
    }),
  );
  // Each host knows by itself how many inferlets it has.
  let there: number[] = [];
  let listed: InvocationPage['invocations'] = [];
  await until('all have begun', async () => {
    there = (await models()).map(({ inferlets }) => inferlets);
    listed = ((await (await platform.fetch('/v1/invocations?status=running')).json()) as InvocationPage).invocations;
    return there.reduce((sum, count) => sum + count, 0) === ids.length && listed.length === ids.length;
  });
  const shown = ['gpu-host-1', 'gpu-host-2'].map((name) => listed.filter(({ gpuHost }) => gpuHost === name).length);
  assert.deepEqual(shown, there);
  await Promise.all(ids.map((id) => platform.fetch(`/v1/invocations/${id}`, { method: 'DELETE' })));
});

test('one of them dies: what it ran ends with a code, and the other serves everybody until it is back', async () => {
  const restarted = platform.restarted('gpu-host-2');
  // Whoever starts it again stands still until it was seen away.
  process.kill(platform.supervisorPid, 'SIGSTOP');
  process.kill(platform.pid('gpu-host-2'), 'SIGKILL');
  const seen = async () => {
    const { gpuHosts } = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
    return gpuHosts.map(({ name, connected, models }) => `${name} ${connected} ${models[0]?.device}`).join(', ');
  };
  const away = until('it is seen away', async () => (await seen()) === 'gpu-host-1 true CPU, gpu-host-2 false CPU');
  const stories = Promise.all(Array.from({ length: 12 }, story));
  await away.finally(() => process.kill(platform.supervisorPid, 'SIGCONT'));
  const ends = await stories;
  for (const events of ends) {
    const end = terminal(events);
    assert.ok(end?.event === 'result' || end?.data.code === 'device-lost', JSON.stringify(end));
  }
  const after = await Promise.all(Array.from({ length: 12 }, story));
  for (const events of after) assert.equal(terminal(events)?.event, 'result');
  await restarted;
  await until('it is seen there', async () => (await seen()) === 'gpu-host-1 true CPU, gpu-host-2 true CPU');
  await until('both compute again', async () => {
    const earlier = (await models())[1]?.tokens ?? 0;
    await Promise.all(Array.from({ length: 8 }, story));
    return ((await models())[1]?.tokens ?? 0) > earlier;
  });
});

test('while all are away the platform says that it is not ready, and runs what comes once they are back', async () => {
  const ready = async () => {
    const response = await fetch(`${platform.url}/readyz`);
    const { checks } = (await response.json()) as Health;
    return { status: response.status, hosts: checks.find(({ name }) => name === 'gpu-hosts') };
  };
  assert.deepEqual(await ready(), { status: 200, hosts: { name: 'gpu-hosts', ok: true, detail: '2 of 2 there' } });
  // So that nobody starts them again meanwhile.
  process.kill(platform.supervisorPid, 'SIGSTOP');
  try {
    for (const name of ['gpu-host-1', 'gpu-host-2']) process.kill(platform.pid(name), 'SIGKILL');
    await until('it says so', async () => (await ready()).status === 503);
    const { hosts } = await ready();
    assert.deepEqual([hosts?.ok, hosts?.detail?.replace(/\d+ s$/, 'N s')], [false, 'none of 2 there for N s']);
  } finally {
    process.kill(platform.supervisorPid, 'SIGCONT');
  }
  await until('it is ready again', async () => (await ready()).status === 200);
  assert.equal(terminal(await story())?.event, 'result');
});
