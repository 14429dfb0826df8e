import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RuntimeGpuHost, RuntimeInfo } from '#scheduler/runtimes/types.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { createApp } from '../app/app.ts';
import type { Health } from '../app/control.ts';
import { TestPlatform } from '../testing/platform.ts';
import { functionsCheck, GPU_HOST_GRACE_MS, runningChecks } from './health.ts';

const NOW = 1_000_000;
const there = (name: string): RuntimeGpuHost => ({ name, connected: true, connectedAt: 1, models: [] });
const away = (name: string, forMs?: number): RuntimeGpuHost => ({
  name,
  connected: false,
  models: [],
  ...(forMs !== undefined && { connectedAt: 1, lostAt: NOW - forMs }),
});
const runtime = (gpuHosts: readonly RuntimeGpuHost[], more: Partial<RuntimeInfo> = {}): RuntimeInfo => ({
  id: 'r',
  name: 'r',
  startedAt: 0,
  slots: 8,
  alive: true,
  load: { running: 0 },
  gpuHosts,
  ...more,
});
const checkLines = (...runtimes: RuntimeInfo[]): string[] =>
  runningChecks(runtimes, NOW).map(({ name, ok, detail }) => `${name} ${ok ? 'ok' : 'FAIL'}: ${detail}`);

test('the platform is ready only with a living runtime', () => {
  assert.deepEqual(checkLines(), ['runtimes FAIL: 0 alive']);
  assert.deepEqual(checkLines(runtime([], { alive: false })), ['runtimes FAIL: 0 alive']);
  const { gpuHosts: _, ...silent } = runtime([]);
  assert.deepEqual(checkLines(silent), ['runtimes ok: 1 alive'], 'a runtime that does not report GPU hosts');
});

test('each accepting runtime must reach a GPU host or have lost its last one only recently', () => {
  const hostsLine = (...gpuHosts: RuntimeGpuHost[]) => checkLines(runtime(gpuHosts))[1];
  assert.equal(hostsLine(there('a'), away('b', 60_000)), 'gpu-hosts ok: 1 of 2 there');
  assert.equal(hostsLine(away('a'), away('b')), 'gpu-hosts FAIL: none of 2 there yet');
  assert.equal(hostsLine(), 'gpu-hosts FAIL: no machine with GPU hosts is there');
  assert.equal(hostsLine(away('a', 60_000), away('b', GPU_HOST_GRACE_MS)), 'gpu-hosts ok: none of 2 there for 5 s');
  assert.equal(hostsLine(away('a', 60_000), away('b', 6000)), 'gpu-hosts FAIL: none of 2 there for 6 s');
  const drained = (host: RuntimeGpuHost) => ({ ...host, drain: { since: 1 } });
  assert.equal(hostsLine(there('a'), drained(there('b'))), 'gpu-hosts ok: 1 of 2 there, 1 drained');
  assert.equal(hostsLine(drained(there('a')), drained(there('b'))), 'gpu-hosts FAIL: none of 2 there, 2 drained');
  assert.equal(hostsLine(drained(there('a')), away('b', 6000)), 'gpu-hosts FAIL: none of 2 there for 6 s, 1 drained');
  assert.equal(hostsLine({ ...there('a'), drain: { since: 1, until: 2 } }), 'gpu-hosts ok: 1 of 1 there');
  const acceptsWork = { accepting: true } as const;
  const [good, bad] = [runtime([there('a')], acceptsWork), runtime([away('a', 60_000)], acceptsWork)];
  assert.equal(
    checkLines(good, bad)[1],
    'gpu-hosts FAIL: none of 1 there for 60 s',
    'either runtime may get an invocation',
  );
  assert.equal(
    checkLines(good, { ...bad, accepting: false })[1],
    'gpu-hosts ok: 1 of 1 there',
    'a runtime that accepts no work gets none',
  );
});

test('the check of functions fails while functions of the start are not deployed yet', () => {
  assert.deepEqual(functionsCheck([]), { name: 'functions', ok: true });
  assert.equal(functionsCheck(['story']).detail, 'story not deployed yet');
  assert.deepEqual(functionsCheck(['story', 'chat', 'echo']), {
    name: 'functions',
    ok: false,
    detail: 'story and 2 more not deployed yet',
  });
});

test('a gateway answers 503 until the awaited functions are deployed, and 200 from then on', async () => {
  let awaited = ['story', 'chat'];
  const platform = await TestPlatform.start({ control: { awaitedFunctions: () => awaited } });
  try {
    const ready = async () => {
      const response = await fetch(`${platform.url}/readyz`);
      const { checks } = (await response.json()) as Health;
      return [response.status, checks.find(({ name }) => name === 'functions')?.detail];
    };
    assert.deepEqual(await ready(), [503, 'story and 1 more not deployed yet']);
    await platform.register({ name: 'story' });
    assert.deepEqual(await ready(), [503, 'chat not deployed yet']);
    await platform.register({ name: 'chat' });
    assert.deepEqual(await ready(), [200, undefined]);
    awaited = [];
    await platform.scheduler.removals.removeFunction('default', 'chat', false);
    assert.deepEqual(await ready(), [200, undefined], 'an operator may remove a function later');
    const draining = createApp(platform.control, { log: silentLog, draining: AbortSignal.abort() });
    const statuses = await Promise.all(
      ['/readyz', '/healthz'].map(async (path) => (await draining.request(path)).status),
    );
    assert.deepEqual(statuses, [503, 200], 'a draining gateway is alive and not ready');
  } finally {
    await platform.stop();
  }
});
