import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { after, afterEach, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { END_RECORDS } from '../invocations/endings.ts';
import type { MachineLooks, ProcessState } from '../policies/silence.ts';
import { openScheduler, type Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { durably } from '../store/testing/lost-writes.ts';
import {
  beginAttempt,
  collect,
  eventually,
  openTestScheduler,
  registerRuntime,
  submission,
} from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { LEASE_MS as REAPER_LEASE_MS } from './lease.ts';

/** Shorter than in production, to shorten the tests. */
const LEASE_MS = 1200;
/** Does not run out, however slow the machine is. */
const LONG_LEASE_MS = 120_000;
const CHILD = fileURLToPath(new URL('../testing/runtime-child.ts', import.meta.url));

describe('runtimes', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  const children = new Set<ChildProcess>();
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
  });
  afterEach(async () => {
    for (const child of children) child.kill('SIGKILL');
    children.clear();
    await scheduler.close();
  });
  after(() => redis.stop());

  async function startChild(name: string, leaseMs = LONG_LEASE_MS, machine = '') {
    const lines: string[] = [];
    const args = [redis.socket, scheduler.store.keys.prefix, name, `${leaseMs}`, machine];
    const child = spawn(process.execPath, [CHILD, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
    children.add(child);
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
    const saw = (start: string) =>
      eventually(() => lines.some((line) => line.startsWith(start)), `${name} says ${start}`);
    await saw('ready');
    const [, id = ''] = lines.find((line) => line.startsWith('ready'))?.split(' ') ?? [];
    /** Ends the lease as if it had run out. */
    const runOut = () => scheduler.store.redis.del(scheduler.store.keys.alive(id));
    return { child, id, lines, saw, runOut };
  }

  async function kill(child: ChildProcess): Promise<void> {
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    children.delete(child);
  }

  const submit = async (options: Parameters<typeof submission>[0] = {}) =>
    (await scheduler.submit(submission(options))).id;

  test('a lease is renewed and cancels arrive although the other connections are blocked or lost', async () => {
    const connections: ReturnType<typeof redis.connect>[] = [];
    const connect = () => {
      const connection = redis.connect();
      connections.push(connection);
      return connection;
    };
    scheduler = openTestScheduler(redis, { connect, leaseMs: LEASE_MS });
    const other = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix, leaseMs: LEASE_MS });
    const lease = await scheduler.runtimes.acquire({ name: 'busy', slots: 1 });
    const cancels: string[] = [];
    const stop = await scheduler.control.onCancel(lease.id, (id, reason) => cancels.push(`${id}: ${reason}`));
    const [commands, subscriber] = connections;
    // Later commands wait behind one that is never answered.
    void commands?.blpop('nothing', 0).catch(() => undefined);
    subscriber?.disconnect();
    let renewals = 0;
    let isLost = false;
    lease.onLost(() => {
      isLost = true;
    });
    lease.reportLoad(() => ({ running: ++renewals }));
    const running = async () => (await other.runtimes.alive()).map(({ load }) => load?.running);
    await eventually(async () => Number((await running())[0]) >= 3, 'the lease is renewed');
    await other.control.tellCancel(lease.id, 'job', 'enough');
    await eventually(() => cancels.includes('job: enough'), 'the cancel arrives');
    assert.ok(!isLost, 'the lease holds');
    stop();
    await lease.release();
    assert.deepEqual(await running(), []);
    await other.close();
  });

  test('after a runtime is killed, its plain invocation fails once and its restartable one runs elsewhere', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    const observer = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix, leaseMs: LEASE_MS });
    // Two reapers run, and both detect the death.
    scheduler.reaper.start();
    observer.reaper.start();
    const first = await startChild('runtime-1');
    const plain = await submit();
    const restartable = await submit({ restartable: true, input: '"finish"' });
    await first.saw(`begun ${plain}`);
    await first.saw(`begun ${restartable}`);
    const following = [collect(scheduler.events.follow(plain, 0)), collect(scheduler.events.follow(restartable, 0))];
    const second = await startChild('runtime-2');
    await kill(first.child);
    const leftMs = await scheduler.store.redis.pttl(scheduler.store.keys.alive(first.id));
    assert.ok(leftMs > 0 && leftMs <= LONG_LEASE_MS, `${leftMs} ms`);
    await first.runOut();
    const [failed = [], finished = []] = await Promise.all(following);
    assert.deepEqual(
      failed.map(({ seq, event }) => [seq, event]),
      [
        [1, 'message'],
        [2, 'error'],
      ],
    );
    assert.equal(JSON.parse(failed[1]?.data ?? '').code, 'runtime-lost');
    assert.deepEqual(
      finished.map(({ event, data }) => [event, JSON.parse(data).text]),
      [
        ['message', 'runtime-1'],
        ['log', undefined],
        ['message', 'runtime-2'],
        ['result', undefined],
      ],
    );
    await second.saw(`begun ${restartable} 2`);
    assert.deepEqual(
      second.lines.filter((line) => line.startsWith('begun')),
      [`begun ${restartable} 2`],
    );
    assert.deepEqual(
      (await scheduler.runtimes.list()).map(({ name }) => name),
      ['runtime-2'],
    );
    await observer.close();
  });

  test('a restarted runtime recovers the invocations of its predecessor before the lease expires', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    // Without a reaper, only the successor can recover the invocations.
    const first = await startChild('runtime-1');
    const ids = await Promise.all(
      Array.from({ length: 50 }, (_, i) => submit({ restartable: i % 2 === 0, input: '"finish"' })),
    );
    await Promise.all(ids.map((id) => first.saw(`begun ${id}`)));
    await kill(first.child);
    const second = await startChild('runtime-1');
    const restarted = ids.filter((_, i) => i % 2 === 0);
    await Promise.all(ids.map(async (id) => collect(scheduler.events.follow(id, 0))));
    await Promise.all(restarted.map((id) => second.saw(`begun ${id} 2`)));
    // The restarted invocations are back at their places in the queue, in order of arrival.
    assert.deepEqual(
      second.lines.filter((line) => line.startsWith('begun')).map((line) => line.split(' ')[1]),
      restarted,
    );
    const codes = await Promise.all(
      ids.map(async (id) => (await scheduler.invocations.get(id))?.failure?.code ?? 'succeeded'),
    );
    assert.deepEqual(
      codes,
      ids.map((_, i) => (i % 2 === 0 ? 'succeeded' : 'runtime-lost')),
    );
  });

  test('a runtime that stood still for longer than its lease can write no more events, and takes new work', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    scheduler.reaper.start();
    const { child, saw } = await startChild('runtime-1', LEASE_MS);
    const id = await submit();
    await saw(`begun ${id}`);
    child.kill('SIGSTOP');
    const events = await collect(scheduler.events.follow(id, 0));
    assert.equal(JSON.parse(events.at(-1)?.data ?? '{}').code, 'runtime-lost');
    child.kill('SIGCONT');
    await saw('lost');
    await saw(`stopped ${id} runtime-lost ended`);
    assert.equal((await scheduler.events.read(id, 0)).length, events.length, 'no event follows the terminal one');
    const next = await submit();
    await saw(`begun ${next}`);
  });

  test('a late runtime keeps its invocations while its supervisor sees its process, and loses them with a record when it has ended', async () => {
    const log = new CollectedLog();
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS, log });
    const { store, invocations, events } = scheduler;
    const { child, id: runtime, lines, saw } = await startChild('runtime-1', LEASE_MS, 'east');
    const { pid = 0 } = child;
    const process = { name: 'runtime-1', pid };
    const look = (state: ProcessState) => ({ running: [{ ...process, state, silentMs: 2000 }], ended: [] });
    const publish = (looks: MachineLooks) =>
      store.redis.set(store.keys.machineLooks('east'), JSON.stringify(looks), 'PX', LONG_LEASE_MS);
    const recorded = (state: ProcessState) =>
      eventually(() => log.records.some(({ fields }) => fields.runtime === runtime && fields.look === state), state);
    await publish(look('starved'));
    const id = await submit({ tenant: 'acme' });
    await saw(`begun ${id}`);
    scheduler.reaper.start();
    child.kill('SIGSTOP');
    await recorded('starved');
    await publish(look('stopped'));
    await recorded('stopped');
    child.kill('SIGCONT');
    await eventually(async () => (await scheduler.runtimes.alive()).length === 1, 'the lease holds again');
    assert.equal((await invocations.get(id))?.status, 'running');
    assert.ok(!lines.includes('lost'));

    child.kill('SIGSTOP');
    const why = 'its event loop stood still for 3.0 s, so it was killed';
    await publish({ running: [], ended: [{ ...process, why, silentMs: 3000 }] });
    const followed = await collect(events.follow(id, 0));
    const { code, message } = JSON.parse(followed.at(-1)?.data ?? '{}');
    assert.equal(code, 'runtime-lost');
    assert.ok(
      message.startsWith(`The runtime that ran this invocation was lost (runtime-1): it ended: ${why}. `),
      message,
    );
    const ofLoss = () => log.records.filter(({ fields }) => JSON.stringify(fields).includes(id));
    await eventually(() => ofLoss().length >= 2, 'the records of the runtime and of the end');
    const [ofRuntime, ofEnd, ...more] = ofLoss();
    assert.deepEqual(more, [], 'one record of the end');
    const { silentMs, ...fields } = ofRuntime?.fields ?? {};
    assert.ok(Number(silentMs) >= REAPER_LEASE_MS, `${silentMs} ms`);
    assert.deepEqual(fields, {
      runtime,
      why: `it ended: ${why}`,
      leaseMs: REAPER_LEASE_MS,
      count: 1,
      invocations: [id],
    });
    assert.equal(ofEnd?.message, END_RECORDS.ended);
    const { cause, ...end } = ofEnd?.fields ?? {};
    assert.ok(message.startsWith(String(cause)));
    assert.deepEqual(end, {
      tenant: 'acme',
      function: 'story',
      invocation: id,
      code: 'runtime-lost',
      figures: { runtime, silentMs, leaseMs: REAPER_LEASE_MS },
    });
  });

  test('a runtime whose lease holds again before a reaper recovers it keeps its invocations', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    const { invocations, runtimes, store } = scheduler;
    const owner = openTestScheduler(redis, { prefix: store.keys.prefix, leaseMs: LONG_LEASE_MS });
    const lease = await owner.runtimes.acquire({ name: 'slow', slots: 1 });
    const id = await submit();
    assert.ok('epoch' in (await beginAttempt(scheduler, id, lease.id)));
    const alive = store.keys.alive(lease.id);
    const recovered = Promise.withResolvers<object>();
    const recover = runtimes.recover.bind(runtimes);
    // The renewal reaches Redis between the two calls of the reaper.
    runtimes.recover = async (...found) => {
      await store.redis.set(alive, '{"running":1}', 'PX', LONG_LEASE_MS);
      const recovery = await recover(...found);
      recovered.resolve(recovery);
      return recovery;
    };
    await store.redis.del(alive);
    scheduler.reaper.start();
    assert.deepEqual(await recovered.promise, { waiting: 0, failed: 0, cancelled: 0, dropped: 0 });
    assert.deepEqual(
      (await runtimes.alive()).map((runtime) => runtime.id),
      [lease.id],
    );
    assert.equal((await invocations.get(id))?.status, 'running');
    await lease.release();
    await owner.close();
  });

  test('children that a slow runtime launches during its recovery end as runtime-lost or are refused', async () => {
    scheduler = openTestScheduler(redis);
    const { prefix } = scheduler.store.keys;
    const lease = await scheduler.runtimes.acquire({ name: 'slow', slots: 1 });
    const begun = Promise.withResolvers<number>();
    const worker = scheduler.createWorker({
      lease,
      slots: 1,
      run: async (job, signal) => {
        const attempt = await scheduler.invocations.beginAttempt(job.id, lease.id);
        begun.resolve('epoch' in attempt ? attempt.epoch : 0);
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
      },
    });
    await worker.start();
    const root = await submit();
    const epoch = await begun.promise;
    const launch = async (parent: string, parentEpoch: number) => {
      const child = { ...submission(), parent, parentEpoch, root, arrival: 1, runtimeId: lease.id };
      return { id: child.id, outcome: await scheduler.invocations.beginChild(child, child.id) };
    };
    const first = await launch(root, epoch);
    assert.ok('epoch' in first.outcome);
    const laterChildren: { id: string; outcome: object }[] = [];
    // Each time the observer has read the children, the slow runtime launches two more.
    const launching = async (parentEpoch: number) => {
      laterChildren.push(await launch(root, epoch), await launch(first.id, parentEpoch));
    };
    const observer = openScheduler({
      log: silentLog,
      prefix,
      connect: () => {
        const client = redis.connect();
        const { hgetall } = client;
        client.hgetall = async (...args: Parameters<typeof hgetall>) => {
          const all = await hgetall.apply(client, args);
          if (args[0] === `${prefix}:children` && 'epoch' in first.outcome) await launching(first.outcome.epoch);
          return all;
        };
        return client;
      },
    });
    assert.equal((await observer.runtimes.recover(lease.id)).failed, 1);
    assert.equal((await scheduler.invocations.children()).size, 0);
    const [ofRoot, ofChild, ...more] = laterChildren;
    assert.ok(ofRoot && ofChild);
    assert.deepEqual(ofRoot.outcome, { refused: 'parent-ended' }, 'the root ended earlier');
    assert.ok('epoch' in ofChild.outcome, 'the first child had not ended yet');
    for (const { outcome } of more) assert.deepEqual(outcome, { refused: 'parent-ended' });
    for (const { id } of [first, ofChild]) {
      assert.equal((await scheduler.invocations.get(id))?.failure?.code, 'runtime-lost');
    }
    await observer.close();
    await worker.drain(0);
    await lease.release();
  });

  test('a recovery that breaks off ends the children of all jobs that it took; a later search ends the others', async () => {
    scheduler = openTestScheduler(redis);
    const { active, invocations, runtimes } = scheduler;
    const lease = await runtimes.acquire({ name: 'slow', slots: 1 });
    try {
      const family = async () => {
        const root = await submit();
        const begun = await beginAttempt(scheduler, root, lease.id);
        assert.ok('epoch' in begun);
        const childFields = { parent: root, parentEpoch: begun.epoch, root, arrival: 1, runtimeId: lease.id };
        const child = { ...submission(), ...childFields };
        assert.ok('epoch' in (await invocations.beginChild(child, child.id)));
        return { root, child: child.id };
      };
      const failureCodes = (ids: readonly string[]) =>
        Promise.all(ids.map(async (id) => (await invocations.get(id))?.failure?.code ?? null));
      const [missed, taken] = [await family(), await family()];
      const lost = active.lost.bind(active);
      active.lost = (id, ...job) =>
        id === missed.root ? Promise.reject(new StoreError('store-unavailable', 'no answer')) : lost(id, ...job);
      await assert.rejects(runtimes.recover(lease.id), /no answer/);
      assert.deepEqual(await failureCodes([taken.child, missed.child]), ['runtime-lost', null]);
      // The runtime wakes, registers again, and settles the job.
      await lease.describe({});
      await lost(missed.root, lease.id);
      const living = await family();
      await runtimes.recoverOrphans();
      assert.deepEqual(await failureCodes([missed.child, living.child]), ['runtime-lost', null]);
    } finally {
      await lease.release();
    }
  });

  test('an outage of Redis longer than a lease loses no runtime', async () => {
    // After Redis returns, the reaper trusts leases only once `graceMs` have passed. The runtime renews its lease several times in this time, so the
    // test also passes on a slow machine.
    const graceMs = 3 * LEASE_MS;
    scheduler = openTestScheduler(redis, { leaseMs: graceMs });
    const { child, lines, saw, runOut } = await startChild('runtime-1', LEASE_MS);
    const id = await durably(redis, async () => {
      const id = await submit();
      await saw(`begun ${id}`);
      return id;
    });
    scheduler.reaper.start();
    // The stopped runtime cannot renew its lease before Redis is gone.
    child.kill('SIGSTOP');
    await runOut();
    await redis.kill();
    child.kill('SIGCONT');
    await redis.restart();
    const { store } = scheduler;
    const { runtimes } = store.keys;
    // The reaper removes this dead runtime as soon as it trusts leases again.
    await store.call((client) => client.hset(runtimes, 'dead', JSON.stringify({ id: 'dead', name: 'dead', slots: 1 })));
    const isKnown = () => store.call((client) => client.hexists(runtimes, 'dead'));
    await eventually(async () => (await isKnown()) === 0, 'leases count again');
    assert.equal((await scheduler.invocations.get(id))?.status, 'running');
    assert.ok(!lines.includes('lost'));
    await eventually(async () => (await scheduler.runtimes.alive()).length === 1, 'the runtime is alive');
  });

  test('a reaper that was suspended with the runtime gives it time to renew its lease', async () => {
    const graceMs = 3 * LEASE_MS;
    scheduler = openTestScheduler(redis, { leaseMs: graceMs });
    const { child, lines, saw } = await startChild('runtime-1', LEASE_MS);
    const id = await submit();
    await saw(`begun ${id}`);
    scheduler.reaper.start();
    const { redis: client, keys } = scheduler.store;
    const idOf = async (name: string) => (await scheduler.runtimes.list()).find((each) => each.name === name)?.id ?? '';
    const untilForgotten = async (name: string) => {
      await client.hset(keys.runtimes, name, JSON.stringify({ id: name, name, slots: 1 }));
      await eventually(async () => (await client.hexists(keys.runtimes, name)) === 0, 'leases count');
    };
    await untilForgotten('dead before');
    child.kill('SIGSTOP');
    // Blocks this thread, and the reaper's timer with it, until the lease has run out.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * LEASE_MS);
    assert.equal(await client.exists(keys.alive(await idOf('runtime-1'))), 0);
    // A round handles overdue invocations after the leases: once this entry is gone, the reaper has checked the leases.
    await client.zadd(keys.deadlines, 0, 'unknown');
    await eventually(async () => (await client.zscore(keys.deadlines, 'unknown')) === null, 'a round of the reaper');
    child.kill('SIGCONT');
    await untilForgotten('dead after');
    assert.equal((await scheduler.invocations.get(id))?.status, 'running');
    assert.ok(!lines.includes('lost'));
  });

  test('steps of the clock of Redis, an hour back and an hour forward, end no living runtime and hide no dead one', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: 3 * LEASE_MS });
    const { child, lines, saw, runOut } = await startChild('runtime-1', LEASE_MS);
    const id = await submit();
    await saw(`begun ${id}`);
    scheduler.reaper.start();
    const { redis: client, keys } = scheduler.store;
    const untilForgotten = async (name: string) => {
      await client.hset(keys.runtimes, name, JSON.stringify({ id: name, name, slots: 1 }));
      await eventually(async () => (await client.hexists(keys.runtimes, name)) === 0, `${name} is forgotten`);
    };
    await untilForgotten('dead before');
    // An hour back, then an hour forward.
    for (const step of [-3_600_000, 3_600_000]) {
      // A test cannot set the clock of Redis, so it moves the stored times the other way. After a step forward, leases
      // have run out.
      await client.eval(
        `for _, field in ipairs({'at', 'since', 'orphansAt'}) do redis.call('HINCRBY', KEYS[1], field, -ARGV[1]) end
        for _, id in ipairs(redis.call('ZRANGE', KEYS[1] .. ':checks', 0, -1)) do
          redis.call('ZINCRBY', KEYS[1] .. ':checks', -ARGV[1], id)
        end`,
        ...[1, keys.looks, step],
      );
      if (step > 0) await runOut();
      await untilForgotten(`dead after ${step}`);
      assert.equal((await scheduler.invocations.get(id))?.status, 'running');
      assert.ok(!lines.includes('lost'));
    }
    child.kill('SIGKILL');
  });

  test('a single reaper recovers invocations after the 200 runtimes of a large platform died at once', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: 400 });
    const { store, invocations } = scheduler;
    const id = await submit();
    await beginAttempt(scheduler, id, 'dead-0');
    await Promise.all(Array.from({ length: 200 }, (_, i) => registerRuntime(store, `dead-${i}`)));
    scheduler.reaper.start();
    await eventually(
      async () => (await invocations.get(id))?.status === 'failed',
      'the reaper recovers the invocation',
    );
  });

  test('a dead runtime that replaced another one between two checks of the leases is found', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: 400 });
    const { redis: client, keys } = scheduler.store;
    await registerRuntime(scheduler.store, 'earlier');
    await client.set(keys.alive('earlier'), '{"running":0}');
    scheduler.reaper.start();
    await eventually(async () => (await client.zcard(`${keys.looks}:checks`)) === 1, 'a check of the leases');
    const later = JSON.stringify({ id: 'later', name: 'later', slots: 1 });
    const removal = client.multi().hdel(keys.runtimes, 'earlier').del(keys.alive('earlier'));
    await removal.hset(keys.runtimes, 'later', later).exec();
    await eventually(async () => (await client.hexists(keys.runtimes, 'later')) === 0, '`later` is found dead');
  });

  test('an invocation that waits past its deadline without a runtime fails, despite broken entries before it', async () => {
    const log = new CollectedLog();
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS, log });
    const { store } = scheduler;
    await store.redis.set(store.keys.invocation('broken'), 'no record');
    await store.redis.zadd(store.keys.deadlines, 1, 'broken');
    await store.redis.hset(store.keys.runtimes, 'broken', 'no JSON');
    scheduler.reaper.start();
    const id = await submit({ deadlineMs: 100 });
    const events = await collect(scheduler.events.follow(id, 0));
    assert.equal(JSON.parse(events[0]?.data ?? '{}').code, 'deadline-exceeded');
    await eventually(async () => (await scheduler.queue.depth()).waiting === 0, 'an empty queue');
    await eventually(async () => (await store.redis.hlen(store.keys.runtimes)) === 0, 'the broken runtime is removed');
    assert.match(log.errors.join(), /WRONGTYPE/);
    await store.redis.del(store.keys.invocation('broken'));
  });
});
