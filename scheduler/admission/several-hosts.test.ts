import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { newInvocationId } from '../invocations/submission.ts';
import { affinityKey } from '../policies/placement.ts';
import { chosenKey } from '../policies/testing/chosen-key.ts';
import type { PlacementPolicy, RuntimeLoad, RuntimeModel } from '../runtimes/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

const PAGES = 100;

/** The host that serves a key, computed without the runtime's code. */
function hostOf(key: string, hosts: readonly string[]): string {
  if (key.startsWith('@') && hosts.includes(key.slice(1, key.lastIndexOf('/'))))
    return key.slice(1, key.lastIndexOf('/'));
  const weight = (host: string) => createHash('sha1').update(`${host}\0${key}`).digest('hex');
  return hosts.reduce((best, host) => (weight(host) > weight(best) ? host : best));
}

/** Finds an id whose invocation the policy places on `host` while the hosts hold these pages. */
function idFor(host: string, hosts: readonly string[], pagesByHost: ReadonlyMap<string, number>): string {
  const crowding = (key: string) => (pagesByHost.get(hostOf(key, hosts)) ?? 0) / PAGES;
  for (;;) {
    const id = newInvocationId();
    if (chosenKey({ id }, hosts, crowding) === `@${host}/${id}`) return id;
  }
}

describe('admission over several GPU hosts', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let lease: Awaited<ReturnType<Scheduler['runtimes']['acquire']>>;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  const model = (host: string, pageCount = PAGES): RuntimeModel => ({
    name: 'm',
    contextLength: 256,
    vocabularySize: 100,
    pageSize: 16,
    pageCount,
    traits: [],
    host,
    hostId: `life-of-${host}`,
  });
  async function open(hosts: readonly string[], placement: PlacementPolicy): Promise<void> {
    scheduler = openTestScheduler(redis);
    lease = await scheduler.runtimes.acquire({
      name: 'runtime-1',
      slots: 1000,
      placement,
      reserve: 0,
      starts: 1000,
    });
    await lease.describe({ models: hosts.map((host) => model(host)), accepting: true });
  }
  async function close(): Promise<void> {
    await lease.release();
    await scheduler.store.redis.flushall();
    await scheduler.close();
  }
  async function submitSeveral(tenant: string, count: number, pages: number): Promise<string[]> {
    const ids: string[] = [];
    for (let i = 0; i < count; i++) {
      const record = submission({ tenant, expectedPages: pages });
      await scheduler.submit(record);
      ids.push(record.id);
    }
    return ids;
  }
  const admittedIds = async () =>
    Object.keys(await scheduler.store.redis.hgetall(`${scheduler.store.keys.admission}:ledger`));

  test('invocations of a tenant count on the host that serves it, and capacity is the sum of the hosts', async () => {
    await open(['0', '1'], 'tenant');
    try {
      const tenants = Array.from({ length: 20 }, (_, i) => `t${i}`);
      for (const tenant of tenants) await submitSeveral(tenant, 3, 60);
      const records = await Promise.all((await admittedIds()).map((id) => scheduler.invocations.get(id)));
      const pagesByHost = new Map<string, number>();
      for (const record of records) {
        const host = hostOf(record?.tenant ?? '', ['0', '1']);
        pagesByHost.set(host, (pagesByHost.get(host) ?? 0) + 60);
      }
      // Each host of 100 pages has room for one invocation of 60, which is more than the share of one of several tenants.
      assert.deepEqual([...pagesByHost.values()], [60, 60]);
      const { models } = await scheduler.admission.capacity();
      assert.deepEqual(models, [{ model: 'm', pages: 2 * PAGES, usedPages: 120 }]);
    } finally {
      await close();
    }
  });

  test('with placement by invocation, one tenant fills each host up to its pages', async () => {
    await open(['0', '1', '2'], 'invocation');
    try {
      // Submit for the hosts in turn: with random ids, a head whose two hosts are full could block the rest of its queue.
      const hosts = ['0', '1', '2'];
      const pagesByHost = new Map<string, number>();
      for (let i = 0; i < 12; i++) {
        const host = hosts[i % 3] as string;
        const id = idFor(host, hosts, pagesByHost);
        await scheduler.submit(submission({ id, tenant: 'only', expectedPages: 30 }));
        // Each host has room for three invocations; the last three invocations wait.
        if (i < 9) pagesByHost.set(host, (pagesByHost.get(host) ?? 0) + 30);
      }
      const placements = await Promise.all((await admittedIds()).map((id) => scheduler.invocations.get(id)));
      assert.deepEqual(placements.map((record) => record?.placement?.split('/')[0]).sort(), [
        '@0',
        '@0',
        '@0',
        '@1',
        '@1',
        '@1',
        '@2',
        '@2',
        '@2',
      ]);
    } finally {
      await close();
    }
  });

  test('an affinity gathers invocations of a tenant on one host; once that host is full, the others start elsewhere', async () => {
    await open(['0', '1', '2'], 'invocation');
    try {
      const { redis, keys } = scheduler.store;
      const key = createHash('sha1').update('only\0talk').digest('hex');
      const hosts = ['0', '1', '2'];
      const preferred = hostOf(key, hosts);
      const pagesByHost = new Map<string, number>();
      for (let i = 0; i < 8; i++) {
        // Once the preferred host is full, a hash of the id draws the candidate hosts.
        const other = hosts.filter((host) => host !== preferred)[i % 2] as string;
        const id = idFor(other, hosts, pagesByHost);
        await scheduler.submit(submission({ id, tenant: 'only', expectedPages: 30, affinity: 'talk' }));
        const placement = await redis.hget(keys.invocation(id), 'placement');
        assert.equal(await redis.hget(`${keys.jobs}:${id}`, 'placement'), placement);
        assert.equal((await scheduler.invocations.get(id))?.placement, placement);
        assert.equal(placement, i < 3 ? key : `@${other}/${id}`, `invocation ${i}`);
        const host = hostOf(placement ?? '', hosts);
        pagesByHost.set(host, (pagesByHost.get(host) ?? 0) + 30);
      }
      assert.equal((await admittedIds()).length, 8);
      assert.equal(pagesByHost.get(preferred), 90);
      const { models } = await scheduler.admission.capacity();
      assert.deepEqual(models, [{ model: 'm', pages: 3 * PAGES, usedPages: 240 }]);
      const state = await redis.hgetall(`${keys.admission}:state`);
      for (const [host, pages] of pagesByHost) assert.equal(Number(state[`pages:m@${host}`]), pages);
    } finally {
      await close();
    }
  });

  test('the scripts place as the policy does, on hosts of unlike size and up to their last pages', async () => {
    const sizes: Readonly<Record<string, number>> = { 0: PAGES, 1: 2 * PAGES, 2: PAGES / 2 };
    const hosts = Object.keys(sizes);
    await open(hosts, 'invocation');
    try {
      await lease.describe({ models: hosts.map((host) => model(host, sizes[host])) });
      const { redis, keys } = scheduler.store;
      const chosen = { affinity: 0, first: 0, second: 0 };
      for (let i = 0; i < 48; i++) {
        const pages = 1 + ((i * 7) % 13);
        const used = await redis.hgetall(`${keys.admission}:state`);
        const crowding = (key: string) => {
          const host = hostOf(key, hosts);
          const heldPages = Number(used[`pages:m@${host}`] ?? 0);
          const part = (heldPages + pages) / (sizes[host] ?? 0);
          return heldPages === 0 ? Math.min(1, part) : part;
        };
        // Each invocation has its own tenant, so that it becomes the head of a queue at once.
        const record = submission({ tenant: `t${i}`, expectedPages: pages, ...(i % 3 === 0 && { affinity: 'talk' }) });
        const affinity = i % 3 === 0 ? affinityKey(`t${i}`, 'talk') : undefined;
        const key = chosenKey({ id: record.id, affinity }, hosts, crowding);
        await scheduler.submit(record);
        const recordedPlacement = (await scheduler.invocations.get(record.id))?.placement;
        assert.equal(recordedPlacement, key, `invocation ${i}`);
        assert.equal(await redis.hget(`${keys.jobs}:${record.id}`, 'placement'), recordedPlacement);
        const digits = createHash('sha1').update(record.id).digest('hex');
        const first = hosts[Number.parseInt(digits.slice(0, 8), 16) % hosts.length];
        if (key === affinity) chosen.affinity++;
        else if (key === `@${first}/${record.id}`) chosen.first++;
        else chosen.second++;
      }
      for (const [kind, count] of Object.entries(chosen)) assert.ok(count > 0, `${kind}: ${JSON.stringify(chosen)}`);
    } finally {
      await close();
    }
  });

  test('invocations of two models on unlike sets of hosts spread over all hosts of both', async () => {
    await open(['0'], 'invocation');
    try {
      const large = ['1', '2', '3', '4'];
      const small = ['0', '5'];
      const modelOn = (name: string, host: string) => ({ ...model(host), name });
      const models = [...small.map((host) => modelOn('a', host)), ...large.map((host) => modelOn('b', host))];
      await lease.describe({ models });
      const expected = new Map<string, number>();
      const add = (name: string, host: string, pages: number) =>
        expected.set(`pages:${name}@${host}`, (expected.get(`pages:${name}@${host}`) ?? 0) + pages);
      for (let i = 0; i < 60; i++) {
        const expectedPages = i % 2 === 0 ? { a: 1, b: 4 } : { a: 2, b: 1 };
        // A hash of the id draws the candidate hosts.
        const record = submission({ id: `inv-${i}`, tenant: `t${i}`, expectedPages });
        await scheduler.submit(record);
        const key = (await scheduler.invocations.get(record.id))?.placement ?? '';
        // The key names a host of the model with the most expected pages.
        assert.ok((i % 2 === 0 ? large : small).includes(key.slice(1, key.indexOf('/'))), key);
        add('a', hostOf(key, small), i % 2 === 0 ? 1 : 2);
        add('b', hostOf(key, large), i % 2 === 0 ? 4 : 1);
      }
      assert.equal((await admittedIds()).length, 60);
      const state = await scheduler.store.redis.hgetall(`${scheduler.store.keys.admission}:state`);
      for (const [field, pages] of expected) assert.equal(Number(state[field]), pages, field);
      assert.equal(expected.size, 6);
      const used = large.map((host) => expected.get(`pages:b@${host}`) ?? 0);
      assert.ok(Math.max(...used) < 2 * Math.min(...used), `${used}`);
    } finally {
      await close();
    }
  });

  test('two tenants with the same affinity have different keys, and placement by tenant ignores affinities', async () => {
    await open(['0', '1'], 'tenant');
    try {
      const record = submission({ tenant: 'one', expectedPages: 1, affinity: 'talk' });
      await scheduler.submit(record);
      assert.equal((await scheduler.invocations.get(record.id))?.placement, null);
      assert.notEqual(affinityKey('one', 'talk'), affinityKey('two', 'talk'));
    } finally {
      await close();
    }
  });

  test('a tenant stays on its host, or moves to one that it prefers, as hosts come and go', async () => {
    await open(['0', '1'], 'tenant');
    try {
      const { redis, keys } = scheduler.store;
      const tenants = Array.from({ length: 12 }, (_, i) => `t${i}`);
      for (const hosts of [['0', '1'], ['0', '1', '2'], ['1', '2'], ['0', '1', '2', '3'], ['3'], ['3', '0']]) {
        await lease.describe({ models: hosts.map((host) => model(host)) });
        for (const tenant of tenants) {
          const id = (await submitSeveral(tenant, 1, 1))[0] ?? '';
          const entry = JSON.parse((await redis.hget(`${keys.admission}:ledger`, id)) ?? '{}');
          assert.equal(entry.pages[`m@${hostOf(tenant, hosts)}`], 1, `${tenant} among ${hosts}`);
        }
      }
    } finally {
      await close();
    }
  });

  test('when a host leaves, its waiting invocations are admitted for the next host', async () => {
    await open(['0', '1'], 'tenant');
    try {
      const tenant =
        Array.from({ length: 50 }, (_, i) => `t${i}`).find((name) => hostOf(name, ['0', '1']) === '1') ?? '';
      const ids = await submitSeveral(tenant, 5, 40);
      assert.deepEqual((await admittedIds()).sort(), ids.slice(0, 2).sort());
      await lease.describe({ models: [model('0')] });
      assert.deepEqual((await admittedIds()).sort(), ids.slice(0, 4).sort());
    } finally {
      await close();
    }
  });

  test('a head that waits for memory waits for the memory of a new host once its tenant moves there', async () => {
    const hosts = ['0', '1'];
    const moreHosts = [...hosts, '2'];
    await open(hosts, 'tenant');
    try {
      const { invocations, store } = scheduler;
      const names = Array.from({ length: 99 }, (_, i) => `t${i}`);
      const tenant = names.find((name) => hostOf(name, hosts) === '0' && hostOf(name, moreHosts) === '2') ?? '';
      // Newer than the end of the attempt.
      const readAt = Date.now() + 60_000;
      const reading = (host: string, freePages: number) => ({
        model: 'm',
        hostId: `life-of-${host}`,
        freePages,
        cachedPages: 0,
        idlePages: 0,
        readAt,
      });
      const models = [reading('0', 0), reading('1', PAGES), reading('2', PAGES)];
      lease.reportLoad(() => ({ running: 1, models }) as unknown as RuntimeLoad);
      await lease.describe({});
      // While nothing else is admitted, the invocation would start anyway.
      await submitSeveral('other', 1, 1);
      const { id } = await scheduler.submit(submission({ tenant, expectedPages: 10, restartable: true }));
      const attempt = await beginAttempt(scheduler, id, lease.id);
      assert.ok('epoch' in attempt);
      const { epoch, nextSeq } = attempt;
      // `true`: the attempt ended for lack of memory.
      assert.equal(await invocations.requeue(id, epoch, nextSeq, 'no memory', null, { m: 60 }, true), 'requeued');
      assert.equal(await store.redis.hget(`${store.keys.admission}:ledger`, id), null, 'host 0 has no memory');
      await lease.describe({ models: moreHosts.map((host) => model(host)) });
      const entry = await store.redis.hget(`${store.keys.admission}:ledger`, id);
      assert.equal(JSON.parse(entry ?? '{}').pages?.['m@2'], 60);
    } finally {
      await close();
    }
  });

  test('heads that wait for memory share one reading of a load, and find the memory of a later load', async () => {
    await open(['0', '1'], 'tenant');
    try {
      const { admission, invocations, store } = scheduler;
      const report = (freePages: number) => {
        const models = ['0', '1'].map((host) => ({
          model: 'm',
          hostId: `life-of-${host}`,
          freePages,
          cachedPages: 0,
          idlePages: 0,
          // Newer than the ends of the attempts.
          readAt: Date.now() + 60_000,
        }));
        lease.reportLoad(() => ({ running: 1, models }) as unknown as RuntimeLoad);
        return lease.describe({});
      };
      const reads = async () =>
        Number(/cmdstat_get:calls=(\d+)/.exec(await store.redis.info('commandstats'))?.[1] ?? 0);
      await report(0);
      // While nothing else is admitted, the invocations would start anyway.
      await submitSeveral('other', 1, 1);
      for (let i = 0; i < 16; i += 1) {
        const { id } = await scheduler.submit(submission({ tenant: `t${i}`, expectedPages: 1, restartable: true }));
        const attempt = await beginAttempt(scheduler, id, lease.id);
        assert.ok('epoch' in attempt);
        const { epoch, nextSeq } = attempt;
        // `true`: the attempt ended for lack of memory. It needs more than the share of one of two tenants.
        assert.equal(await invocations.requeue(id, epoch, nextSeq, 'no memory', null, { m: 60 }, true), 'requeued');
      }
      const before = await reads();
      await admission.admit();
      const readsMade = (await reads()) - before;
      assert.ok(readsMade <= 4, `16 heads read the load and its stored readings ${readsMade} times`);
      assert.equal((await admittedIds()).length, 1, 'none of them has found memory');
      await report(PAGES);
      assert.equal((await admittedIds()).length, 3, 'each host has room for one of them');
    } finally {
      await close();
    }
  });
});
