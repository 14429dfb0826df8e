import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { type Answer, ASYNC, ECHO_SCHEMA, type Harness, type Init, JSON_TYPE } from './harness.ts';

const TENANT = 'metered';
const BODY = '{"prompt":"a"}';

/** Tests of limits, their headers and refusals, and usage. */
export function describeQuotas(get: () => Harness): void {
  describe('quotas', () => {
    let ownHeaders: Record<string, string>;
    before(async () => {
      const { platform } = get();
      ownHeaders = { authorization: `Bearer ${await platform.key(['admin'], TENANT)}` };
      await platform.register({ name: 'echo', input: ECHO_SCHEMA }, TENANT);
    });
    const put = (change: object, headers: Record<string, string> = {}): Promise<Answer> =>
      get().ask('/v1/quotas', {
        method: 'PUT',
        body: JSON.stringify({ tenant: TENANT, ...change }),
        headers: { ...JSON_TYPE, ...headers },
      });
    const invoke = (more: Init['headers'] = {}): Promise<Answer> =>
      get().ask('/v1/functions/echo/invocations', {
        method: 'POST',
        body: BODY,
        headers: { ...ownHeaders, ...JSON_TYPE, ...ASYNC, ...more },
      });
    const list = async (query = '') => (await get().ask(`/v1/quotas${query}`, { headers: ownHeaders })).body.quotas;

    it('an answer has no RateLimit headers where no limit is set', async () => {
      const { headers } = await invoke();
      assert.deepEqual([headers.get('ratelimit'), headers.get('ratelimit-policy')], [null, null]);
      assert.deepEqual(await list(), []);
    });

    it('a limit adds RateLimit headers, and its refusals name the time of the reset', async () => {
      const h = get();
      await put({ quota: 'requests-per-month', limit: 3 });
      const [{ used, resetsAt }] = await list();
      assert.equal(used, 1, 'the request of the previous test');
      const key = { 'idempotency-key': 'twice' };
      const first = await invoke(key);
      assert.equal(first.headers.get('ratelimit-policy')?.split(';w=')[0], '"requests-per-month";q=3');
      assert.match(first.headers.get('ratelimit') ?? '', /^"requests-per-month";r=1;t=\d+$/);
      const seconds = (Date.parse(resetsAt) - Date.now()) / 1000;
      const resetSeconds = Number(first.headers.get('ratelimit')?.split(';t=')[1]);
      assert.ok(Math.abs(resetSeconds - seconds) < 60, `${resetSeconds} ${seconds}`);
      const again = await invoke(key);
      assert.deepEqual([again.status < 500, (await list())[0].used], [true, 2], 'a repeated request is not counted');
      await invoke();
      const refused = await invoke();
      h.refused(refused, 'quota-requests');
      const { quota, limit, function: fn, used: all, resetsAt: until } = refused.body;
      assert.deepEqual([quota, limit, fn, all, until], ['requests-per-month', 3, null, 3, resetsAt]);
      assert.equal(
        refused.headers.get('x-should-retry'),
        String(resetSeconds <= 60),
        'a client does not wait for a distant end of the month',
      );
      assert.match(refused.headers.get('ratelimit') ?? '', /^"requests-per-month";r=0;t=\d+$/);
      assert.ok(Number(refused.headers.get('retry-after')) >= resetSeconds - 60);
      const { body } = await h.ask('/v1/usage/minutes?minutes=5', { headers: ownHeaders });
      const refusals = body.minutes.map((minute: { rejections: Record<string, number> }) => minute.rejections);
      assert.equal(
        refusals.reduce((sum: number, one: Record<string, number>) => sum + (one['quota-requests'] ?? 0), 0),
        1,
      );
    });

    it('operators set limits, for a time or permanently, for a tenant or a function', async () => {
      const h = get();
      h.refused(await put({ quota: 'requests-per-day', limit: 1 }, ownHeaders), 'forbidden');
      const expiresAt = new Date(Date.now() + 60_000).toISOString();
      const set = await put({ quota: 'requests-per-month', limit: 1000, expiresAt, reason: 'launch' });
      assert.deepEqual(
        [set.status, set.body.quota.source, set.body.quota.override.reason],
        [200, 'override', 'launch'],
      );
      assert.equal((await invoke()).status, 202);
      const { body } = await put({ quota: 'cpu-ms-per-day', limit: 5, function: 'echo' });
      assert.deepEqual([body.quota.function, body.quota.source], ['echo', 'tenant']);
      assert.deepEqual(
        (await list()).map((status: { function: string | null }) => status.function),
        [null, 'echo'],
      );
      assert.equal((await list('?function=echo')).length, 2);
      const { headers } = await invoke();
      assert.match(headers.get('ratelimit') ?? '', /"cpu-ms-per-day\/echo";r=5;t=\d+/);
      assert.equal((await put({ quota: 'requests-per-month', limit: null })).body.quota, null);
      const acts = (await h.ask(`/v1/audit?tenant=${TENANT}`)).body.entries;
      assert.deepEqual([acts[0].action, acts[0].target], ['quota.set', 'requests-per-month']);
    });

    it('an invalid limit is refused and changes nothing', async () => {
      const h = get();
      const before = await list('?function=echo');
      const putForTenant = (tenant: string, change: object) =>
        h.ask(`/v1/quotas?tenant=${tenant}`, { method: 'PUT', body: JSON.stringify(change), headers: JSON_TYPE });
      const limit = { quota: 'tokens-per-month', limit: 7 };
      h.refused(await putForTenant('default', { ...limit, tenant: TENANT }), 'invalid-input', 'tenant');
      h.refused(await putForTenant('nobody', limit), 'unknown-tenant');
      // The tenant may be in the query, and also in the body if both agree. The second change removes the limit again.
      for (const change of [limit, { ...limit, limit: null, tenant: TENANT }])
        assert.equal((await putForTenant(TENANT, change)).body.tenant, TENANT);
      const wrongChanges: [object, string][] = [
        [{ quota: 'dreams-per-day', limit: 1 }, '/quota'],
        [{ quota: 'requests-per-day', limit: 1.5 }, '/limit'],
        [{ quota: 'requests-per-day', limit: -1 }, '/limit'],
        [{ quota: 'requests-per-day', limit: 1e15 }, '/limit'],
        [{ quota: 'requests-per-day', limit: 1, expiresAt: '2020-01-01T00:00:00Z' }, '/expiresAt'],
        [{ quota: 'requests-per-day', limit: null, expiresAt: '2999-01-01T00:00:00Z' }, '/limit'],
        [{ quota: 'requests-per-day', limit: 1, expiresAt: '2999-01-01T00:00:00Z' }, '/expiresAt'],
        [{ quota: 'storage-bytes', limit: 1, function: 'echo' }, '/function'],
        [{ quota: 'requests-per-day', limit: 1, function: 'No Name' }, '/function'],
      ];
      for (const [change, field] of wrongChanges) h.refused(await put(change), 'invalid-quota', field);
      h.refused(
        await put({ quota: 'requests-per-day', limit: 1, function: 'nothing' }),
        'unknown-function',
        '/function',
      );
      h.refused(await h.ask('/v1/quotas?function=nothing', { headers: ownHeaders }), 'unknown-function', 'function');
      h.refused(await put({ quota: 'requests-per-day', limit: '1' }), 'invalid-input', '/limit');
      h.refused(await put({ quota: 'requests-per-day', limit: 1, tenant: 'nobody' }), 'unknown-tenant');
      h.refused(await h.ask('/v1/quotas?tenant=default', { headers: ownHeaders }), 'forbidden');
      h.refused(await h.ask('/v1/quotas?tenant=nobody'), 'unknown-tenant');
      h.refused(await h.ask('/v1/usage?from=yesterday', { headers: ownHeaders }), 'invalid-input', 'from');
      assert.deepEqual(await list('?function=echo'), before);
    });

    it('usage counts finished work, as JSON and as CSV', async () => {
      const h = get();
      const { id } = (await invoke()).body;
      const attempt = await h.platform.attempt(id);
      await attempt.succeed('done', { inputTokens: 7, outputTokens: 3, cachedTokens: 2, cpuMs: 1.5, gpuMs: 4.25 });
      const { body } = await h.ask('/v1/usage?by=month', { headers: ownHeaders });
      const [row] = body.usage;
      assert.deepEqual(
        [row.tenant, row.function, row.succeeded, row.inputTokens, row.outputTokens, row.cpuMs, row.gpuMs],
        [TENANT, null, 1, 7, 3, 1.5, 4.25],
      );
      assert.ok(row.requests === row.invocations && row.requests > 1);
      const csv = await h.ask('/v1/usage?by=month&per-function=true', {
        headers: { ...ownHeaders, accept: 'text/csv' },
      });
      assert.match(csv.headers.get('content-type') ?? '', /^text\/csv/);
      const [head = '', line = '', end] = csv.body.split('\r\n');
      const cells = Object.fromEntries(head.split(',').map((name: string, i: number) => [name, line.split(',')[i]]));
      assert.deepEqual([cells.function, cells.gpuMs, cells.pageSeconds, end], ['echo', '4.25', '0', '']);
      assert.deepEqual(
        (await h.ask('/v1/usage?from=2020-01-01T00:00:00Z&to=2020-02-01T00:00:00Z', { headers: ownHeaders })).body
          .usage,
        [],
      );
    });

    it('a limit bounds stored bytes', async () => {
      const h = get();
      const { id } = (await invoke()).body;
      const file = (bytes: number) =>
        h.ask(`/v1/invocations/${id}/files/f.bin`, { method: 'PUT', body: new Uint8Array(bytes), headers: ownHeaders });
      assert.equal((await file(1000)).status, 200);
      const { body } = await put({ quota: 'storage-bytes', limit: 1100 });
      assert.ok(body.quota.used > 1000);
      const refused = await file(2000);
      h.refused(refused, 'quota-storage');
      assert.deepEqual([refused.body.used, refused.headers.get('retry-after')], [body.quota.used, null]);
      assert.equal(refused.headers.get('x-should-retry'), 'false');
    });
  });
}
