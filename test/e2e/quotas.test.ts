import assert from 'node:assert/strict';
import path from 'node:path';
import { before, beforeEach, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { deploySource, deployWith, tokensEncoded } from '#test/harness/deploy.ts';
import { json, readEvents, type StreamEvent, terminal } from '#test/harness/events.ts';
import { ENCODER, functionsPlatform, RANKER } from '#test/harness/functions.ts';
import { type Platform, ROOT, until } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';

let platform: Platform;
let count = 0;

const leftOfDayMs = (): number => new Date().setUTCHours(24, 0, 0, 0) - Date.now();
/** No test may run past midnight (UTC), when the daily quotas start anew. */
const LONGEST_TEST_MS = 60_000;

/** Creates a tenant and deploys the given inferlets for it. */
async function tenantWith(...folders: readonly string[]): Promise<TenantClient> {
  const tenant = await createTenant(platform, `tenant-${++count}`);
  for (const folder of folders) await deployWith(platform, folder, {}, tenant.apiKey);
  return tenant;
}

async function setQuota(tenant: TenantClient, quota: string, limit: number): Promise<void> {
  const response = await platform.fetch('/v1/quotas', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ tenant: tenant.name, quota, limit }),
  });
  assert.equal(response.status, 200, await response.text());
}

/** Used amount of a quota according to the API. */
async function used(tenant: TenantClient, quota: string): Promise<number> {
  const { quotas } = await json(await tenant.fetch('/v1/quotas'));
  const found = quotas.find((each: { quota: string }) => each.quota === quota);
  assert.ok(found, `${quota} is listed`);
  return found.used;
}

const post = (tenant: TenantClient, name: string, input: object, headers: Record<string, string> = {}) =>
  tenant.fetch(`/v1/functions/${name}/invocations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(input),
  });

async function stream(tenant: TenantClient, name: string, input: object): Promise<StreamEvent[]> {
  const response = await post(tenant, name, input, { accept: 'text/event-stream' });
  assert.equal(response.status, 200, await response.clone().text());
  return readEvents(response);
}

async function assertRefused(response: Response, code: string, status = 429): Promise<void> {
  const problem = await json(response);
  assert.equal(response.status, status, JSON.stringify(problem));
  assert.equal(problem.code, code);
}

/** Sum of `pick` over all invocations of a tenant. */
async function usageOf(tenant: TenantClient, pick: (usage: Record<string, number>) => number): Promise<number> {
  const { invocations } = await json(await tenant.fetch('/v1/invocations?limit=100'));
  return invocations.reduce((sum: number, { usage = {} }: { usage?: Record<string, number> }) => sum + pick(usage), 0);
}

/**
 * Waits until the count of a tenant's quota equals the usage of its invocations. Both numbers may grow after the end of an invocation: a GPU host may
 * report the last usage late.
 */
async function assertCounted(tenant: TenantClient, quota: string, field: 'gpuMs' | 'cpuMs'): Promise<void> {
  await until(`the count of ${quota} equals the usage`, async () => {
    const usageMs = await usageOf(tenant, (usage) => usage[field] ?? 0);
    return usageMs > 0 && Math.abs((await used(tenant, quota)) - usageMs) < 1e-3 * usageMs + 1e-3;
  });
}

describe('each quota', () => {
  before(async () => {
    platform = await functionsPlatform();
  });

  beforeEach(async () => {
    const leftMs = leftOfDayMs();
    if (leftMs < LONGEST_TEST_MS) await sleep(leftMs + 1000);
  });

  test('a request beyond the daily quota is refused until the day ends; headers, API and command agree', async () => {
    const tenant = await tenantWith('ticker');
    await setQuota(tenant, 'requests-per-day', 3);
    for (let i = 1; i <= 3; i++) {
      const response = await post(tenant, 'ticker', { ticks: 0 });
      assert.equal(response.status, 200);
      assert.match(response.headers.get('ratelimit') ?? '', new RegExp(`"requests-per-day";r=${3 - i};t=\\d+`));
      assert.match(response.headers.get('ratelimit-policy') ?? '', /"requests-per-day";q=3;w=86400/);
    }
    const longestSeconds = leftOfDayMs() / 1000;
    const refused = await post(tenant, 'ticker', { ticks: 0 });
    const shortestSeconds = leftOfDayMs() / 1000;
    const retryAfter = Number(refused.headers.get('retry-after'));
    assert.ok(
      retryAfter >= shortestSeconds - 1 && retryAfter <= longestSeconds + 1,
      `${retryAfter} s, between ${shortestSeconds} and ${longestSeconds}`,
    );
    await assertRefused(refused, 'quota-requests');
    assert.equal(await used(tenant, 'requests-per-day'), 3);
    const { stdout } = await platform.pie(['quota', '--json'], { apiKey: tenant.apiKey });
    const quotas = JSON.parse(stdout) as { quota: string; used: number; limit: number }[];
    const shown = quotas.find(({ quota }) => quota === 'requests-per-day');
    assert.deepEqual([shown?.used, shown?.limit], [3, 3]);
    const { invocations } = await json(await tenant.fetch('/v1/invocations'));
    assert.equal(invocations.length, 3, 'a refused request leaves no invocation');
  });

  test('the token quota ends a running invocation and refuses the next, and its count equals the usage', async () => {
    const tenant = await tenantWith('counted');
    await setQuota(tenant, 'tokens-per-day', 40);
    const events = await stream(tenant, 'counted', { mark: 'm', tokens: 200 });
    assert.equal(terminal(events)?.data.code, 'quota-tokens', JSON.stringify(terminal(events)?.data));
    assert.ok(terminal(events)?.data.usage.outputTokens > 0);
    await assertRefused(await post(tenant, 'counted', { mark: 'n' }), 'quota-tokens');
    const usedTokens = await usageOf(tenant, ({ inputTokens = 0, outputTokens = 0 }) => inputTokens + outputTokens);
    assert.equal(await used(tenant, 'tokens-per-day'), usedTokens);
    // A step takes two tokens: one input and one output.
    assert.ok(usedTokens > 40 - 2 && usedTokens <= 40, `${usedTokens} of 40`);
  });

  test('invocations that begin together use at most the token quota, and reserve nothing afterwards', async () => {
    const tenant = await tenantWith('counted');
    const limit = 300;
    await setQuota(tenant, 'tokens-per-day', limit);
    const run = async (i: number, tokens: number, child = false) => {
      const response = await post(tenant, 'counted', { mark: `m${i}`, context: 60 + i, tokens, child });
      const { code, status } = await json(response);
      return code ?? status;
    };
    const ends = await Promise.all(Array.from({ length: 40 }, (_, i) => run(i, 200, i % 4 === 0)));
    assert.ok(!ends.includes('succeeded') && ends.includes('quota-tokens'), ends.join());
    const usedTokens = await used(tenant, 'tokens-per-day');
    assert.ok(usedTokens > limit / 2 && usedTokens <= limit, `${usedTokens} of ${limit}`);
    assert.equal(
      await usageOf(
        tenant,
        ({ inputTokens = 0, outputTokens = 0, cachedTokens = 0 }) => inputTokens - cachedTokens + outputTokens,
      ),
      usedTokens,
    );
    // Nothing stays reserved: one call finds room for all that a higher limit leaves.
    const left = 70;
    await setQuota(tenant, 'tokens-per-day', usedTokens + left);
    assert.equal(await run(left, 1), 'quota-tokens');
    assert.equal(await used(tenant, 'tokens-per-day'), usedTokens);
    const last = await json(await post(tenant, 'counted', { mark: 'last', context: left - 1, tokens: 1 }));
    assert.equal(last.status, 'succeeded', JSON.stringify(last));
    assert.ok((await used(tenant, 'tokens-per-day')) <= usedTokens + left);
  });

  test('the token quota counts exactly the embeddings and scores that were computed, also when the client leaves early', async () => {
    const tenant = await createTenant(platform, `tenant-${++count}`);
    for (const name of ['openai-embeddings', 'rerank'])
      await deploySource(platform, path.join(ROOT, 'functions', name), { apiKey: tenant.apiKey });
    await setQuota(tenant, 'tokens-per-day', 10_000_000);
    const ask = (route: string, request: object, signal?: AbortSignal) =>
      tenant.fetch(route, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(request),
        ...(signal && { signal }),
      });
    const encoded = async () => (await tokensEncoded(platform, ENCODER)) + (await tokensEncoded(platform, RANKER));
    const before = await encoded();
    const few = await json(await ask('/v1/embeddings', { model: ENCODER, input: ['the king', 'paris'] }));
    const documents = Array.from({ length: 40 }, (_, i) => `the queen ${i}`);
    const ranked = await json(await ask('/v1/rerank', { model: RANKER, query: 'who?', documents }));
    const bothTokens = few.usage.total_tokens + ranked.usage.total_tokens;
    assert.deepEqual([await used(tenant, 'tokens-per-day'), (await encoded()) - before], [bothTokens, bothTokens]);
    const [texts, words] = [2048, 60];
    const input = new Array<string>(texts).fill('king '.repeat(words));
    // Each word is one token; each text also has a token at its beginning and one at its end.
    const allTokens = texts * (words + 2);
    let billed = bothTokens;
    let billedNow = 0;
    // The client must leave after the first batch, so that some tokens are billed, and before the last batch, so that not all are. The search halves
    // the range of delays. If no tokens were billed, the client left too early; if all were, it left too late.
    let [earlyMs, lateMs] = [0, 1600];
    for (let tries = 0; tries < 40 && (billedNow === 0 || billedNow === allTokens); tries++) {
      const waitMs = (earlyMs + lateMs) / 2;
      const leaving = new AbortController();
      const abandoned = ask('/v1/embeddings', { model: ENCODER, input }, leaving.signal).catch(
        (error: Error) => error.name,
      );
      await sleep(waitMs);
      leaving.abort();
      await abandoned;
      await until('the invocation has ended', async () => {
        const { invocations } = await json(await tenant.fetch('/v1/invocations'));
        return invocations.every(({ status }: { status: string }) => status !== 'running' && status !== 'queued');
      });
      await until('what was computed is billed', async () => {
        return (await used(tenant, 'tokens-per-day')) === (await encoded()) - before;
      });
      const now = await used(tenant, 'tokens-per-day');
      billedNow = now - billed;
      billed = now;
      if (billedNow === 0) earlyMs = waitMs;
      else lateMs = waitMs;
      // The time of the first batch varies between tries, so a narrow range may miss it: widen the range.
      if (lateMs - earlyMs < 10) [earlyMs, lateMs] = [earlyMs / 2, 2 * lateMs];
    }
    assert.ok(billedNow > 0 && billedNow < allTokens, `${billedNow} of ${allTokens} tokens`);
    assert.equal(await usageOf(tenant, ({ inputTokens = 0 }) => inputTokens), billed);
  });

  test('the GPU time quota ends a running invocation and refuses the next', async () => {
    const tenant = await tenantWith('counted');
    await setQuota(tenant, 'gpu-ms-per-day', 30);
    const events = await stream(tenant, 'counted', { mark: 'm', tokens: 230 });
    assert.equal(terminal(events)?.data.code, 'quota-gpu-time', JSON.stringify(terminal(events)?.data));
    await assertRefused(await post(tenant, 'counted', { mark: 'n' }), 'quota-gpu-time');
    await assertCounted(tenant, 'gpu-ms-per-day', 'gpuMs');
  });

  test('the CPU time quota ends a running invocation and refuses the next', async () => {
    const tenant = await tenantWith('hostile');
    await setQuota(tenant, 'cpu-ms-per-day', 200);
    const events = await stream(tenant, 'hostile', { misdeed: 'spin' });
    assert.equal(terminal(events)?.data.code, 'quota-cpu-time', JSON.stringify(terminal(events)?.data));
    await assertRefused(await post(tenant, 'hostile', { misdeed: 'spin' }), 'quota-cpu-time');
    await assertCounted(tenant, 'cpu-ms-per-day', 'cpuMs');
  });

  test('beyond the concurrency quota one invocation waits, and the next is refused', async () => {
    const tenant = await tenantWith('ticker');
    await setQuota(tenant, 'concurrent-invocations', 1);
    await setQuota(tenant, 'waiting-invocations', 1);
    const respondAsync = { prefer: 'respond-async' };
    const first = await json(await post(tenant, 'ticker', { ticks: 0, hold: true }, respondAsync));
    const second = await json(await post(tenant, 'ticker', { ticks: 0 }, respondAsync));
    const status = async (id: string) => (await json(await tenant.fetch(`/v1/invocations/${id}`))).status;
    await until('the first runs', async () => (await status(first.id)) === 'running');
    assert.equal(await status(second.id), 'queued');
    await assertRefused(await post(tenant, 'ticker', { ticks: 0 }, respondAsync), 'quota-concurrency');
    assert.equal(await used(tenant, 'concurrent-invocations'), 1);
    assert.equal(await used(tenant, 'waiting-invocations'), 1);
    const message = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"text":"go"}' };
    await tenant.fetch(`/v1/invocations/${first.id}/messages`, message);
    await until('the second invocation has run', async () => (await status(second.id)) === 'succeeded');
    assert.equal(await used(tenant, 'concurrent-invocations'), 0);
  });

  test('the page quota ends an invocation that needs more pages', async () => {
    const tenant = await tenantWith('counted');
    await setQuota(tenant, 'kv-pages', 4);
    const events = await stream(tenant, 'counted', { mark: 'm', context: 160, tokens: 4 });
    assert.equal(terminal(events)?.data.code, 'quota-pages', JSON.stringify(terminal(events)?.data));
    const small = await stream(tenant, 'counted', { mark: 'n', context: 8, tokens: 4 });
    assert.equal(terminal(small)?.event, 'result', JSON.stringify(terminal(small)?.data));
  });

  test('the storage quota counts components, and refuses a deploy and a write to the store', async () => {
    const tenant = await tenantWith('counted');
    await setQuota(tenant, 'storage-bytes', 1);
    assert.ok((await used(tenant, 'storage-bytes')) > 10_000, 'the script counts');
    const source = await platform.pie(['deploy', 'test/inferlets/ticker'], { apiKey: tenant.apiKey });
    assert.notEqual(source.code, 0);
    assert.match(source.stderr, /quota-storage/);
    const { functions } = await json(await tenant.fetch('/v1/functions'));
    assert.ok(!functions.some(({ name }: { name: string }) => name === 'ticker'));
    const events = await stream(tenant, 'counted', { mark: 'm', tokens: 2 });
    assert.equal(terminal(events)?.event, 'error', 'its first call stores a value');
    assert.match(JSON.stringify(terminal(events)?.data), /storage-bytes/);
    const counted = await json(await post(tenant, 'counted', { read: 'm' }));
    assert.equal(counted.output.ran, 0, 'nothing was stored');
  });

  test('a quota of one function leaves other functions of the tenant usable', async () => {
    const tenant = await tenantWith('ticker', 'counted');
    const response = await platform.fetch('/v1/quotas', {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ tenant: tenant.name, quota: 'requests-per-day', function: 'ticker', limit: 1 }),
    });
    assert.equal(response.status, 200, await response.text());
    assert.equal((await post(tenant, 'ticker', { ticks: 0 })).status, 200);
    await assertRefused(await post(tenant, 'ticker', { ticks: 0 }), 'quota-requests');
    assert.equal((await post(tenant, 'counted', { read: 'x' })).status, 200);
  });
});
