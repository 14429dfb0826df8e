import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import type { Scheduler } from '../scheduler.ts';
import { loadScript } from '../store/lua-script.ts';
import { eventually, openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { type BuildReply, MAX_TENANT_BUILDS } from './builds.ts';
import { type BuildTurn, nextTurn } from './testing/build-turns.ts';

const SEED = 20_261_121;
const DONE: BuildReply = { ok: true, artifact: {} };
const TAKE = loadScript(new URL('./builds.lua', import.meta.url), 'take-turn');
const BEGIN = loadScript(new URL('./builds.lua', import.meta.url), 'begin-turn');

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

/** A random event. `begin` concerns the build whose turn it is, and `end` the oldest running build, so these two name no tenant. */
const event = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant('ask' as const), tenant: fc.constantFrom('a', 'b', 'c', 'd') }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constantFrom('begin' as const, 'end' as const), tenant: fc.constant('') }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('give-up' as const), tenant: fc.constantFrom('a', 'b') }) },
);

test('between two builds of a waiting tenant, each other tenant begins at most two, plus one for each build that the waiting tenant has running', () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 200, size: 'max' }), (events) => {
      let waiting: Waiting[] = [];
      let running: Waiting[] = [];
      /** The largest turn that has begun. */
      let begunTurn = 0;
      let order = 0;
      /** The last build that each tenant began. */
      const lastBegun = new Map<string, Waiting>();
      /**
       * For each waiting tenant, the number of builds that each other tenant has begun meanwhile. Counting restarts when the waiting tenant begins a
       * build. It begins when a tenant asks for a build while none of its builds waits.
       */
      const passed = new Map<string, Map<string, number>>();
      for (const { kind, tenant } of events) {
        if (kind === 'ask') {
          order += 1;
          const turn = nextTurn([...waiting, ...running, ...lastBegun.values()], tenant, begunTurn);
          if (!waiting.some((other) => other.tenant === tenant)) passed.set(tenant, new Map());
          waiting.push({ id: `${order}`, tenant, turn, order });
        } else if (kind === 'end') {
          running = running.slice(1);
        } else if (kind === 'give-up') {
          waiting = waiting.filter((other) => other.tenant !== tenant);
          passed.delete(tenant);
        } else {
          const chosen = nextBuild(waiting);
          if (chosen === undefined) continue;
          waiting = waiting.filter((other) => other !== chosen);
          running.push(chosen);
          lastBegun.set(chosen.tenant, chosen);
          begunTurn = Math.max(begunTurn, chosen.turn);
          for (const [waitingTenant, counts] of passed) {
            if (waitingTenant === chosen.tenant) continue;
            const count: number = (counts.get(chosen.tenant) ?? 0) + 1;
            counts.set(chosen.tenant, count);
            // Each running build of the waiting tenant moves the turn of its next build back by one, so it allows the other tenant one more build.
            const runningBuilds: number = running.filter((build) => build.tenant === waitingTenant).length;
            assert.ok(count <= 2 + runningBuilds, `${waitingTenant} waited for ${count} builds of ${chosen.tenant}`);
          }
          if (waiting.some((other) => other.tenant === chosen.tenant)) passed.set(chosen.tenant, new Map());
          else passed.delete(chosen.tenant);
        }
      }
    }),
    { numRuns: 500, seed: SEED },
  );
});

test('`take-turn` of builds.lua assigns the same turns as `nextTurn`', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 40, size: 'max' }), async (events) => {
      const scheduler = openTestScheduler(redis);
      const { store } = scheduler;
      const turns = [store.keys.buildTurns];
      const nowMs = 1000;
      const deadlineMs = 2000;
      /** The builds that wait or run. */
      let outstanding: Waiting[] = [];
      let running: Waiting[] = [];
      const lastBegun = new Map<string, Waiting>();
      let begunTurn = 0;
      let order = 0;
      try {
        for (const { kind, tenant } of events) {
          const [oldest] = running;
          const chosen = nextBuild(outstanding.filter((one) => !running.includes(one)));
          if (kind === 'ask') {
            order += 1;
            // The script restarts the turns when no build waits or runs.
            if (outstanding.length === 0) {
              begunTurn = 0;
              lastBegun.clear();
            }
            const turn = nextTurn([...outstanding, ...lastBegun.values()], tenant, begunTurn);
            const args = [`${order}`, tenant, nowMs, deadlineMs, MAX_TENANT_BUILDS];
            assert.equal(await store.script(TAKE, turns, args), turn);
            assert.equal(await store.script(TAKE, turns, args), turn, 'a repeated request gets the same turn');
            outstanding.push({ id: `${order}`, tenant, turn, order });
          } else if (kind === 'begin' && chosen !== undefined) {
            assert.equal(await store.script(BEGIN, turns, [chosen.id]), 1);
            begunTurn = Math.max(begunTurn, chosen.turn);
            running.push(chosen);
            lastBegun.set(chosen.tenant, chosen);
          } else if (kind === 'end' && oldest !== undefined) {
            await store.redis.hdel(store.keys.buildTurns, oldest.id);
            running = running.slice(1);
            outstanding = outstanding.filter((one) => one !== oldest);
          } else if (kind === 'give-up') {
            const abandoned = outstanding.filter((one) => one.tenant === tenant && !running.includes(one));
            outstanding = outstanding.filter((one) => !abandoned.includes(one));
            for (const { id } of abandoned) {
              await store.redis.hdel(store.keys.buildTurns, id);
              assert.equal(await store.script(BEGIN, turns, [id]), 0, 'a build that was given up does not begin');
            }
          }
        }
        // After the deadline of all turns above, the script removes those that a lost gateway would have left, so the turns restart at 0.
        const [afterDeadlineMs, nextDeadlineMs] = [deadlineMs + 1000, deadlineMs + 2000];
        const args = ['late', 'a', afterDeadlineMs, nextDeadlineMs, MAX_TENANT_BUILDS];
        assert.equal(await store.script(TAKE, turns, args), 0);
        assert.equal(await store.script(BEGIN, turns, ['unknown']), 0);
      } finally {
        await scheduler.close();
      }
    }),
    { numRuns: 40, seed: SEED },
  );
});

/** Number of builds that wait or run. Other fields of the hash keep the turns that began last: `time`, and `began <tenant>` for each tenant. */
async function unfinishedBuilds({ store }: Scheduler): Promise<number> {
  const fields = await store.redis.hkeys(store.keys.buildTurns);
  return fields.filter((field) => field !== 'time' && !field.startsWith('began ')).length;
}

test('builds that other tenants request after 100 builds of one tenant are among the first ten to begin', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
  const concurrency = 2;
  /** The tenant of each build that has begun, in order. */
  const begun: string[] = [];
  const mayEnd = Promise.withResolvers<void>();
  const worker = scheduler.createBuildWorker({
    runtimeId: 'runtime',
    concurrency,
    build: async ({ tenant }) => {
      begun.push(tenant);
      await mayEnd.promise;
      return DONE;
    },
  });
  const ask = (tenant: string) => scheduler.builds.request({ tenant, name: 'story', componentHash: 'x', memoryMb: 1 });
  try {
    worker.start();
    const flood = Array.from({ length: 100 }, () => ask('flood'));
    await eventually(() => begun.length === concurrency, 'two builds run');
    await eventually(async () => (await unfinishedBuilds(scheduler)) === flood.length, 'each build has a turn');
    const others = [ask('acme'), ask('acme'), ask('other')];
    const total = flood.length + others.length;
    await eventually(async () => (await unfinishedBuilds(scheduler)) === total, 'the builds of the others have turns');
    const { redis: client, keys } = scheduler.store;
    await eventually(
      async () => (await client.zcard(`${keys.bull}:builds:prioritized`)) === total - concurrency,
      'all builds except the two that run are queued in BullMQ',
    );
    mayEnd.resolve();
    assert.deepEqual(await Promise.all(others), [DONE, DONE, DONE]);
    // In order of turn, these builds take the places 2, 3 and 5. The bound leaves room for builds that begin slightly out of order.
    const places = begun.flatMap((tenant, i) => (tenant === 'flood' ? [] : [i]));
    assert.equal(places.length, others.length);
    assert.ok(Math.max(...places) < 10, `the other tenants are among the first: ${places}`);
    assert.ok((await Promise.all(flood)).every(({ ok }) => ok));
    assert.equal(await unfinishedBuilds(scheduler), 0);
  } finally {
    await worker.close();
    await lease.release();
    await scheduler.close();
  }
});

test('a tenant with the maximum number of unfinished builds gets no further build until one of them ends', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
  const worker = scheduler.createBuildWorker({ runtimeId: 'runtime', build: async () => DONE });
  const ask = (tenant: string) => scheduler.builds.request({ tenant, name: 'story', componentHash: 'x', memoryMb: 1 });
  const { redis: client, keys } = scheduler.store;
  const deadlineMs = scheduler.store.clock() + 60_000;
  // Fields as `take-turn` of builds.lua stores them. The value is tenant, turn, and the time until which the requester waits.
  const floodFields = Array.from(
    { length: MAX_TENANT_BUILDS },
    (_, i) => [`flood-${i}`, `flood ${i} ${deadlineMs}`] as const,
  );
  try {
    worker.start();
    await client.hset(keys.buildTurns, Object.fromEntries(floodFields));
    const refused = await ask('flood');
    assert.equal(!refused.ok && refused.code, 'too-many-requests');
    assert.equal(await client.hlen(keys.buildTurns), MAX_TENANT_BUILDS, 'the refused request stored no turn');
    assert.deepEqual(await ask('acme'), DONE);
    // Removes a turn, as the end of its build does.
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
    runtimeId: 'runtime',
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
    const lostReply = ask('lost', requester.signal);
    const queued = async () => (await client.zcard(`${keys.bull}:builds:prioritized`)) === 1;
    await eventually(queued, 'the build is queued');
    // The turn that a dead gateway leaves is removed after the turn's deadline. The test removes it at once.
    await client.del(keys.buildTurns);
    worker.start();
    assert.deepEqual(await ask('acme'), DONE);
    assert.deepEqual(begun, ['acme']);
    requester.abort();
    await lostReply;
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
  const dyingLease = await dying.runtimes.acquire({ name: 'runtime-2', slots: 1 });
  const dyingWorker = dying.createBuildWorker({
    runtimeId: dyingLease.id,
    build: () => {
      begun.resolve();
      return new Promise(() => undefined);
    },
  });
  const nextWorker = scheduler.createBuildWorker({ runtimeId: lease.id, build: async () => DONE });
  try {
    dyingWorker.start();
    const reply = scheduler.builds.request({ tenant: 'acme', name: 'story', componentHash: 'x', memoryMb: 1 });
    await begun.promise;
    // To Redis, a killed runtime looks like closed connections.
    for (const connection of connections) connection.disconnect();
    nextWorker.start();
    await scheduler.runtimes.recover(dyingLease.id);
    assert.deepEqual(await reply, DONE);
  } finally {
    await Promise.all([dyingWorker.close(), nextWorker.close()]);
    // Ends the renewals; its connection is closed.
    await dyingLease.release().catch(() => undefined);
    await lease.release();
    await Promise.all([dying.close(), scheduler.close()]);
  }
});

test('another runtime takes over the builds of a runtime that shuts down, even those that end as soon as they are aborted', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: 1 });
  const begun: string[] = [];
  // The name of each build is the number of microtasks that it takes to end after the abort. Build `0` ends within the event `abort` itself.
  const names = Array.from({ length: 12 }, (_, i) => `${i}`);
  const closingWorker = scheduler.createBuildWorker({
    runtimeId: 'closing',
    concurrency: names.length,
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
  const nextWorker = scheduler.createBuildWorker({
    runtimeId: lease.id,
    concurrency: names.length,
    build: async () => DONE,
  });
  try {
    closingWorker.start();
    const replies = names.map((name) =>
      scheduler.builds.request({ tenant: 'acme', name, componentHash: 'x', memoryMb: 1 }),
    );
    await eventually(() => begun.length === names.length, 'all builds are under way');
    await closingWorker.close();
    nextWorker.start();
    assert.deepEqual(
      await Promise.all(replies),
      names.map(() => DONE),
    );
  } finally {
    await Promise.all([closingWorker.close(), nextWorker.close()]);
    await lease.release();
    await scheduler.close();
  }
});
