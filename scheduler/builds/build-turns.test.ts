import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import type { Scheduler } from '../scheduler.ts';
import { loadScript } from '../store/lua-script.ts';
import { eventually, openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { type BuildTurn, nextTurn } from './build-turns.ts';
import { MAX_TENANT_BUILDS } from './builds.ts';
import type { BuildReply } from './types.ts';

const SEED = 20_261_121;
const DONE: BuildReply = { ok: true, artifact: {} };
const TAKE = loadScript(new URL('./scripts/take-turn.lua', import.meta.url));
const BEGIN = loadScript(new URL('./scripts/begin-turn.lua', import.meta.url));

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

interface Waiting extends BuildTurn {
  readonly id: string;
  readonly order: number;
}

/** The build that the builders begin next: the smallest turn, and within one turn the earliest request. */
const nextBuild = (waiting: readonly Waiting[]): Waiting | undefined =>
  waiting.toSorted((a, b) => a.turn - b.turn || a.order - b.order)[0];

const act = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ act: fc.constant('ask' as const), tenant: fc.constantFrom('a', 'b', 'c', 'd') }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ act: fc.constantFrom('begin' as const, 'end' as const), tenant: fc.constant('') }),
  },
  { weight: 1, arbitrary: fc.record({ act: fc.constant('give-up' as const), tenant: fc.constantFrom('a', 'b') }) },
);

test('between two builds of a tenant that waits, every other tenant begins at most two', () => {
  fc.assert(
    fc.property(fc.array(act, { maxLength: 200, size: 'max' }), (acts) => {
      let waiting: Waiting[] = [];
      let running: Waiting[] = [];
      let time = 0;
      let order = 0;
      const begun = new Map<string, Waiting>();
      /** For each waiting tenant, by other tenant: number of builds that began since the waiting tenant's last begun build, or since its request. */
      const passed = new Map<string, Map<string, number>>();
      for (const { act: what, tenant } of acts) {
        if (what === 'ask') {
          order += 1;
          const turn = nextTurn([...waiting, ...running, ...begun.values()], tenant, time);
          if (!waiting.some((other) => other.tenant === tenant)) passed.set(tenant, new Map());
          waiting.push({ id: `${order}`, tenant, turn, order });
        } else if (what === 'end') {
          running = running.slice(1);
        } else if (what === 'give-up') {
          waiting = waiting.filter((other) => other.tenant !== tenant);
          passed.delete(tenant);
        } else {
          const chosen = nextBuild(waiting);
          if (chosen === undefined) continue;
          waiting = waiting.filter((other) => other !== chosen);
          running.push(chosen);
          begun.set(chosen.tenant, chosen);
          time = Math.max(time, chosen.turn);
          for (const [other, counts] of passed) {
            if (other === chosen.tenant) continue;
            const count: number = (counts.get(chosen.tenant) ?? 0) + 1;
            counts.set(chosen.tenant, count);
            // Running builds of the waiting tenant delay its next build, so each of them allows one more.
            const runningBuilds: number = running.filter((one) => one.tenant === other).length;
            assert.ok(count <= 2 + runningBuilds, `${other} waited for ${count} builds of ${chosen.tenant}`);
          }
          if (waiting.some((other) => other.tenant === chosen.tenant)) passed.set(chosen.tenant, new Map());
          else passed.delete(chosen.tenant);
        }
      }
    }),
    { numRuns: 500, seed: SEED },
  );
});

test('the script assigns the same turns as the policy', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { maxLength: 40, size: 'max' }), async (acts) => {
      const scheduler = openTestScheduler(redis);
      const { store } = scheduler;
      const turns = [store.keys.buildTurns];
      const nowMs = 1000;
      const deadlineMs = 2000;
      let outstanding: Waiting[] = [];
      let running: Waiting[] = [];
      const lastBegun = new Map<string, Waiting>();
      let time = 0;
      let order = 0;
      try {
        for (const { act: what, tenant } of acts) {
          const [oldest] = running;
          const chosen = nextBuild(outstanding.filter((one) => !running.includes(one)));
          if (what === 'ask') {
            order += 1;
            if (outstanding.length === 0) {
              time = 0;
              lastBegun.clear();
            }
            const turn = nextTurn([...outstanding, ...lastBegun.values()], tenant, time);
            const args = [`${order}`, tenant, nowMs, deadlineMs, MAX_TENANT_BUILDS];
            assert.equal(await store.script(TAKE, turns, args), turn);
            assert.equal(await store.script(TAKE, turns, args), turn, 'sent twice');
            outstanding.push({ id: `${order}`, tenant, turn, order });
          } else if (what === 'begin' && chosen !== undefined) {
            assert.equal(await store.script(BEGIN, turns, [chosen.id]), 1);
            time = Math.max(time, chosen.turn);
            running.push(chosen);
            lastBegun.set(chosen.tenant, chosen);
          } else if (what === 'end' && oldest !== undefined) {
            await store.redis.hdel(store.keys.buildTurns, oldest.id);
            running = running.slice(1);
            outstanding = outstanding.filter((one) => one !== oldest);
          } else if (what === 'give-up') {
            const abandoned = outstanding.filter((one) => one.tenant === tenant && !running.includes(one));
            outstanding = outstanding.filter((one) => !abandoned.includes(one));
            for (const { id } of abandoned) {
              await store.redis.hdel(store.keys.buildTurns, id);
              assert.equal(await store.script(BEGIN, turns, [id]), 0, 'a build that was given up does not begin');
            }
          }
        }
        // The turns of a lost gateway expire with their deadlines.
        const late = [deadlineMs + 1000, deadlineMs + 2000];
        assert.equal(await store.script(TAKE, turns, ['late', 'a', ...late, MAX_TENANT_BUILDS]), 0);
        assert.equal(await store.script(BEGIN, turns, ['unknown']), 0);
      } finally {
        await scheduler.close();
      }
    }),
    { numRuns: 40, seed: SEED },
  );
});

/** The builds that have a turn, without the fields that keep the last turns. */
async function unfinishedBuilds({ store }: Scheduler): Promise<number> {
  const fields = await store.redis.hkeys(store.keys.buildTurns);
  return fields.filter((field) => field !== 'time' && !field.startsWith('began ')).length;
}

test('100 builds of one tenant delay the builds of other tenants by a few places only', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
  const begun: string[] = [];
  const go = Promise.withResolvers<void>();
  const worker = scheduler.createBuildWorker({
    concurrency: 2,
    build: async ({ tenant }) => {
      begun.push(tenant);
      await go.promise;
      return DONE;
    },
  });
  const ask = (tenant: string) => scheduler.builds.request({ tenant, name: 'story', componentHash: 'x', memoryMb: 1 });
  try {
    worker.start();
    const flood = Array.from({ length: 100 }, () => ask('flood'));
    await eventually(() => begun.length === 2, 'two builds are under way');
    await eventually(async () => (await unfinishedBuilds(scheduler)) === 100, 'all builds wait');
    const others = [ask('acme'), ask('acme'), ask('other')];
    await eventually(async () => (await unfinishedBuilds(scheduler)) === 103, 'the builds of the others wait too');
    await eventually(
      async () => (await scheduler.store.redis.zcard(`${scheduler.store.keys.bull}:builds:prioritized`)) === 101,
      'all builds except the two that run are queued in BullMQ',
    );
    go.resolve();
    assert.deepEqual(await Promise.all(others), [DONE, DONE, DONE]);
    const places = begun.flatMap((tenant, i) => (tenant === 'flood' ? [] : [i]));
    assert.equal(places.length, 3);
    assert.ok(Math.max(...places) < 10, `the other tenants are among the first: ${places}`);
    assert.ok((await Promise.all(flood)).every(({ ok }) => ok));
    assert.equal(await unfinishedBuilds(scheduler), 0);
  } finally {
    await worker.close();
    await lease.release();
    await scheduler.close();
  }
});

test('a tenant with the maximum of unfinished builds is refused another one until one of them has ended', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
  const worker = scheduler.createBuildWorker({ build: async () => DONE });
  const ask = (tenant: string) => scheduler.builds.request({ tenant, name: 'story', componentHash: 'x', memoryMb: 1 });
  const { redis: client, keys } = scheduler.store;
  const until = scheduler.store.clock() + 60_000;
  // Turns as take-turn.lua stores them: tenant, turn, deadline of the requester.
  const flood = Array.from({ length: MAX_TENANT_BUILDS }, (_, i) => [`flood-${i}`, `flood ${i} ${until}`] as const);
  try {
    worker.start();
    await client.hset(keys.buildTurns, Object.fromEntries(flood));
    const refused = await ask('flood');
    assert.equal(!refused.ok && refused.code, 'too-many-requests');
    assert.equal(await client.hlen(keys.buildTurns), MAX_TENANT_BUILDS, 'the refused build has left nothing');
    assert.deepEqual(await ask('acme'), DONE);
    await client.hdel(keys.buildTurns, 'flood-0');
    assert.deepEqual(await ask('flood'), DONE);
  } finally {
    await worker.close();
    await lease.release();
    await scheduler.close();
  }
});

test('a build whose gateway has died does not begin', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
  const begun: string[] = [];
  const worker = scheduler.createBuildWorker({
    build: async ({ tenant }) => {
      begun.push(tenant);
      return DONE;
    },
  });
  const { redis: client, keys } = scheduler.store;
  const ask = (tenant: string, signal?: AbortSignal) =>
    scheduler.builds.request(
      { tenant, name: 'story', componentHash: 'x', memoryMb: 1 },
      signal === undefined ? {} : { signal },
    );
  const requester = new AbortController();
  try {
    const lost = ask('lost', requester.signal);
    const queued = async () => (await client.zcard(`${keys.bull}:builds:prioritized`)) === 1;
    await eventually(queued, 'the build is queued');
    // The turn of a dead gateway is removed after its deadline; the test removes it at once.
    await client.del(keys.buildTurns);
    worker.start();
    assert.deepEqual(await ask('acme'), DONE);
    assert.deepEqual(begun, ['acme']);
    requester.abort();
    await lost;
  } finally {
    await worker.close();
    await lease.release();
    await scheduler.close();
  }
});

test('another runtime takes over the build of a runtime that died', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
  const connections: ReturnType<TestRedis['connect']>[] = [];
  const dying = openTestScheduler(redis, {
    prefix: scheduler.store.keys.prefix,
    connect: () => {
      const connection = redis.connect();
      connections.push(connection);
      return connection;
    },
  });
  const begun = Promise.withResolvers<void>();
  const dyingWorker = dying.createBuildWorker({
    build: () => {
      begun.resolve();
      return new Promise(() => undefined);
    },
  });
  const nextWorker = scheduler.createBuildWorker({ build: async () => DONE });
  try {
    dyingWorker.start();
    const reply = scheduler.builds.request({ tenant: 'acme', name: 'story', componentHash: 'x', memoryMb: 1 });
    await begun.promise;
    // To Redis, a killed runtime looks like closed connections.
    for (const connection of connections) connection.disconnect();
    nextWorker.start();
    assert.deepEqual(await reply, DONE);
  } finally {
    await Promise.all([dyingWorker.close(), nextWorker.close()]);
    await lease.release();
    await Promise.all([dying.close(), scheduler.close()]);
  }
});

test('another runtime takes over the build of a runtime that shuts down, however soon the build ends', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
  const begun: string[] = [];
  // Each build takes a different number of microtasks to end; the first one ends in the abort itself.
  const delays = Array.from({ length: 12 }, (_, i) => `${i}`);
  const closingWorker = scheduler.createBuildWorker({
    concurrency: delays.length,
    build: ({ name }, signal) => {
      begun.push(name);
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', async () => {
          for (let i = 0; i < Number(name); i += 1) await undefined;
          reject(signal.reason);
        });
      });
    },
  });
  const nextWorker = scheduler.createBuildWorker({ concurrency: delays.length, build: async () => DONE });
  try {
    closingWorker.start();
    const replies = delays.map((name) =>
      scheduler.builds.request({ tenant: 'acme', name, componentHash: 'x', memoryMb: 1 }),
    );
    await eventually(() => begun.length === delays.length, 'all builds are under way');
    await closingWorker.close();
    nextWorker.start();
    assert.deepEqual(
      await Promise.all(replies),
      delays.map(() => DONE),
    );
  } finally {
    await Promise.all([closingWorker.close(), nextWorker.close()]);
    await lease.release();
    await scheduler.close();
  }
});
