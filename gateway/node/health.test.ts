import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PendingFunction } from '#infra/pending-functions.ts';
import type { RuntimeGpuHost, RuntimeInfo } from '#scheduler/runtimes/types.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { createApp } from '../app/app.ts';
import type { Health } from '../app/control.ts';
import { GatewayPlatform } from '../testing/platform.ts';
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

const pendingFunction = (name: string, more: Partial<PendingFunction> = {}): PendingFunction => ({
  name,
  isAwaited: false,
  state: 'waiting',
  tries: 0,
  ...more,
});

test('the check of functions names what is missing and why, and fails only for functions that the start awaits', () => {
  const now = 1_000_000;
  assert.deepEqual(functionsCheck([], now), []);
  const why = 'file-failed: /home/operator/pie/functions/rerank cannot be used.';
  const missing = [
    pendingFunction('rag'),
    pendingFunction('story', { state: 'building' }),
    pendingFunction('rerank', { state: 'failed', tries: 2, why, nextTryAt: now + 12_000 }),
    pendingFunction('echo'),
  ];
  const detail =
    'rerank failed 2 times (file-failed: rerank cannot be used.), and is tried again in 12 s; rag is not deployed yet; ' +
    'story is being built; 1 more are not deployed yet';
  assert.deepEqual(functionsCheck(missing, now), [{ name: 'functions', ok: true, detail }]);
  const awaited = pendingFunction('chat', { isAwaited: true });
  assert.deepEqual(functionsCheck([awaited], now), [
    { name: 'functions', ok: false, detail: 'chat is not deployed yet' },
  ]);
});

test('a request for a function that the start has not deployed yet is told so, and when to try again', async () => {
  const failed = pendingFunction('openai-chat', { state: 'failed', tries: 1, why: 'The store is full.' });
  let pending = [{ ...failed, nextTryAt: Date.now() + 600_000 }];
  const platform = await GatewayPlatform.start({ control: { pendingFunctions: () => pending } });
  try {
    const post = async (path: string, body: object) => {
      const headers = { authorization: `Bearer ${platform.apiKey}`, 'content-type': 'application/json' };
      const response = await fetch(`${platform.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
      const { code, detail } = (await response.json()) as Record<string, string>;
      return { status: response.status, code, detail, retryAfter: Number(response.headers.get('retry-after')) };
    };
    const chat = () => post('/v1/chat/completions', { model: 'tiny', messages: [{ role: 'user', content: 'Hi' }] });
    const text =
      /still deploys its functions: openai-chat failed once \(The store is full\.\), and is tried again in \d+ s/;
    for (const { status, code, detail, retryAfter } of [
      await chat(),
      await post('/v1/functions/openai-chat/invocations', {}),
    ]) {
      assert.deepEqual([status, code], [503, 'function-pending']);
      assert.match(detail ?? '', text);
      assert.ok(retryAfter > 500 && retryAfter <= 600, `${retryAfter} s`);
    }
    assert.equal((await post('/v1/functions/unknown/invocations', {})).code, 'unknown-function');
    pending = [];
    assert.deepEqual([(await chat()).status, (await chat()).code], [404, 'unknown-function']);
  } finally {
    await platform.stop();
  }
});

test('a gateway answers 503 until the awaited functions are deployed, and 200 from then on', async () => {
  let pending = ['story', 'chat'].map((name) => pendingFunction(name, { isAwaited: true }));
  const platform = await GatewayPlatform.start({ control: { pendingFunctions: () => pending } });
  try {
    const ready = async () => {
      const response = await fetch(`${platform.url}/readyz`);
      const { checks } = (await response.json()) as Health;
      return [response.status, checks.find(({ name }) => name === 'functions')?.detail];
    };
    assert.deepEqual(await ready(), [503, 'story is not deployed yet; chat is not deployed yet']);
    await platform.register({ name: 'story' });
    assert.deepEqual(await ready(), [503, 'chat is not deployed yet']);
    await platform.register({ name: 'chat' });
    assert.deepEqual(await ready(), [200, undefined]);
    pending = [];
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
