import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Scheduler } from '../scheduler.ts';
import { collect, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

/** Shorter than in production, so that the tests need not wait as long. */
const LEASE_MS = 1200;
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

  async function startChild(name: string) {
    const lines: string[] = [];
    const child = spawn(process.execPath, [CHILD, redis.socket, scheduler.store.keys.prefix, name, `${LEASE_MS}`], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    children.add(child);
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
    const saw = (start: string) =>
      eventually(() => lines.some((line) => line.startsWith(start)), `${name} says ${start}`);
    await saw('ready');
    return { child, lines, saw };
  }

  async function kill(child: ChildProcess): Promise<void> {
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
    children.delete(child);
  }

  const submit = async (options: Parameters<typeof submission>[0] = {}) =>
    (await scheduler.submit(submission(options))).id;

  test('a killed runtime: what it ran fails once, what may be restarted runs again elsewhere, what waits is started', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    const observer = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix, leaseMs: LEASE_MS });
    // Two reapers: both notice.
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

  test('a restarted runtime recovers what its predecessor had at once, without waiting for the lease', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    // No reaper runs here: only the successor can have done it.
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
    // Back in line at their places: by arrival.
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

  test('a runtime that stood still is declared dead, cannot write any more, and goes on with new work', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    scheduler.reaper.start();
    const { child, saw } = await startChild('runtime-1');
    const id = await submit();
    await saw(`begun ${id}`);
    await sleep(LEASE_MS);
    child.stdin?.write(`block ${2 * LEASE_MS}\n`);
    const events = await collect(scheduler.events.follow(id, 0));
    assert.equal(JSON.parse(events.at(-1)?.data ?? '{}').code, 'runtime-lost');
    await saw('lost');
    await saw(`stopped ${id} runtime-lost ended`);
    assert.equal((await scheduler.events.read(id, 0)).length, events.length, 'nothing after the terminal event');
    const next = await submit();
    await saw(`begun ${next}`);
  });

  test('a Redis that was away longer than a lease takes nobody’s life', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    scheduler.reaper.start();
    const { lines, saw } = await startChild('runtime-1');
    const id = await submit();
    await saw(`begun ${id}`);
    await redis.kill();
    await sleep(LEASE_MS + 200);
    await redis.restart();
    await sleep(LEASE_MS);
    assert.equal((await scheduler.invocations.get(id))?.status, 'running');
    assert.ok(!lines.includes('lost'));
    assert.equal((await scheduler.runtimes.alive()).length, 1);
  });

  test('what waits past its deadline without any runtime fails, and leaves the line', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS });
    scheduler.reaper.start();
    const id = await submit({ deadlineMs: 100 });
    const events = await collect(scheduler.events.follow(id, 0));
    assert.equal(JSON.parse(events[0]?.data ?? '{}').code, 'deadline-exceeded');
    await eventually(async () => (await scheduler.queue.depth()).waiting === 0, 'an empty line');
  });
});
