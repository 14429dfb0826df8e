import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import type { QuotaName } from '#scheduler/quotas/names.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { COUNTING, HOLDING } from '../testing/guests.ts';
import { RuntimePlatform } from '../testing/platform.ts';

const LIMITS = { memoryMb: 16, cpuMs: 30_000, wallMs: 60_000, pages: 64 };
const NOTE = { author: 'test', reason: 'test' };

describe('metered invocations', () => {
  let platform: RuntimePlatform;
  let counting: FunctionVersion;
  let holding: FunctionVersion;
  before(async () => {
    platform = await RuntimePlatform.start();
    counting = await platform.deploy(COUNTING, { name: 'counting', limits: LIMITS });
    holding = await platform.deploy(HOLDING, { name: 'holding', limits: LIMITS });
  });
  after(() => platform.stop());
  const setQuota = (quota: QuotaName, limit: number | null) =>
    platform.scheduler.quotas.set('default', { quota, function: null, limit, until: null }, NOTE);
  const limitedQuotas: QuotaName[] = [];
  async function limit(quota: QuotaName, value: number): Promise<void> {
    limitedQuotas.push(quota);
    assert.equal(await setQuota(quota, value), 'ok');
  }
  afterEach(async () => {
    for (const quota of limitedQuotas.splice(0)) await setQuota(quota, null);
  });
  /** Sets the quota's limit to `left` above the present usage. @returns that usage */
  async function leaveUnused(quota: QuotaName, left: number): Promise<number> {
    await limit(quota, 1_000_000);
    const used = await usedOf(quota);
    await limit(quota, Math.ceil(used) + left);
    return used;
  }
  const usedOf = async (name: QuotaName) =>
    (await platform.scheduler.quotas.status('default')).find(({ quota }) => quota === name)?.used ?? 0;

  it('report every kind of usage in their terminal event', async () => {
    const { messages, end } = await platform.invoke(counting, { tokens: 12 });
    assert.equal(messages.length, 12);
    const usage = end.data.usage ?? {};
    // Inputs: the prompt of 8 tokens, then 11 of the 12 decoded tokens, because the last one is not fed back.
    assert.deepEqual([usage.inputTokens, usage.outputTokens, usage.messages], [8 + 11, 12, 12]);
    for (const name of ['gpuMs', 'cpuMs', 'wallMs', 'pageSeconds', 'kvPagesPeak', 'memoryBytes', 'calls'])
      assert.ok((usage[name] ?? 0) > 0, name);
  });

  it('end exactly at the token quota of their tenant, and name the quota, its limit and its reset', async () => {
    const usedBefore = await leaveUnused('tokens-per-month', 30);
    const { messages, end } = await platform.invoke(counting, { tokens: 100 });
    // The first step takes 9 tokens: the prompt of 8 and its output. Each further step takes 2: an input and its output.
    assert.equal(messages.length, 1 + Math.floor((30 - 9) / 2));
    assert.equal(end.data.code, 'quota-tokens');
    assert.match(
      end.data.message ?? '',
      /^The quota tokens-per-month of the tenant is used up: its limit is \d+, and it resets at \d{4}-\d\d-01T00:00:00.000Z\.$/,
    );
    assert.ok(Number(end.data.retryAfterMs) > 0);
    const used = (await usedOf('tokens-per-month')) - usedBefore;
    assert.equal(used, 9 + 2 * (messages.length - 1), 'the usage equals the tokens that ran');
    assert.ok(used <= 30);
    const { inputTokens = 0, outputTokens = 0, cachedTokens = 0 } = end.data.usage ?? {};
    assert.equal(inputTokens - cachedTokens + outputTokens, used);
  });

  it('end after a usage report that exceeds the quota of device or CPU time, also without messages', async () => {
    await leaveUnused('gpu-ms-per-day', 1);
    const talking = await platform.invoke(counting, { tokens: 400, pauseMs: 1 });
    assert.equal(talking.end.data.code, 'quota-gpu-time');
    assert.match(talking.end.data.message ?? '', /gpu-ms-per-day of the tenant is used up: its limit is \d+,/);
    assert.ok(talking.messages.length < 400);
    await setQuota('gpu-ms-per-day', null);
    await leaveUnused('cpu-ms-per-day', 50);
    const silent = await platform.invoke(holding, { pages: 1, do: 'spin' });
    assert.equal(silent.end.data.code, 'quota-cpu-time');
    assert.deepEqual(silent.messages, ['holding']);
  });

  it('end with `quota-pages` when the page quota of their tenant refuses pages and they do not handle the error', async () => {
    await limit('kv-pages', 8);
    const { end } = await platform.invoke(holding, { pages: 9, do: 'sleep' });
    assert.equal(end.data.code, 'quota-pages');
    assert.match(
      end.data.message ?? '',
      /^quota kv-pages: 0 pages are held .* 9 more are needed; 8 is the tenant's limit$/,
    );
    const record = (await platform.scheduler.invocations.list?.('default', { limit: 1 }))?.invocations[0];
    assert.equal(record?.failure?.code, 'quota-pages');
  });
});

describe('a runtime that is killed', () => {
  let platform: RuntimePlatform;
  before(async () => {
    platform = await RuntimePlatform.start();
    await platform.runtime.stop(0);
  });
  after(() => platform.stop());

  /** Returns false if the invocation ended before the kill; otherwise asserts that the usage equals the messages. */
  async function killedInTime(pauseMs: number): Promise<boolean> {
    const runtime = await platform.spawnRuntime('killed');
    const version = await platform.deploy(COUNTING, { name: 'counting', limits: LIMITS });
    const id = await platform.submit(version, { tokens: 700, pauseMs });
    const messages = async () =>
      (await platform.scheduler.events.read(id, 0)).filter(({ event }) => event === 'message').length;
    await eventually(async () => (await messages()) > 20, 'the invocation sends messages');
    await runtime.kill();
    await platform.scheduler.runtimes.recoverOrphans();
    for (const { id: runtimeId, name } of await platform.scheduler.runtimes.list())
      if (name === 'killed') await platform.scheduler.runtimes.recover(runtimeId);
    const record = await platform.scheduler.invocations.get(id);
    if (record?.status === 'succeeded') return false;
    assert.equal(record?.failure?.code, 'runtime-lost');
    assert.equal(record.usage?.outputTokens, await messages());
    return true;
  }

  it('leaves the usage of exactly those tokens that reached the log', async () => {
    for (const pauseMs of [0, 5]) {
      // An invocation that ended before the kill tests nothing, so the test repeats it.
      while (!(await killedInTime(pauseMs)));
    }
  });
});
