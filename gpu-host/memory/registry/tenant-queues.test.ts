import assert from 'node:assert/strict';
import test from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TenantQueues, type Waiter } from './restores.ts';

/** An inferlet of a tenant, which waits for a resource: by default, one that belongs to the tenant. */
const waiterOf = (tenant: string, resource = tenant): Waiter => ({
  tenant,
  resource,
  whenEnded: () => () => undefined,
});

test('tenants take turns, and the next task starts after a task that fails', async () => {
  const queue = new TenantQueues(1);
  const order: string[] = [];
  let running = 0;
  const task = (name: string) => async () => {
    assert.equal(++running, 1);
    order.push(name);
    await Promise.resolve();
    running--;
    if (name === 'a2') throw new Error(name);
    return name;
  };
  const results = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map((name) => queue.run(waiterOf(name.slice(0, 1)), task(name)));
  const settled = await Promise.allSettled(results);
  assert.deepEqual(order, ['a1', 'a2', 'b1', 'c1', 'a3', 'b2']);
  assert.deepEqual(
    settled.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled', 'fulfilled', 'fulfilled', 'fulfilled'],
  );
  assert.equal(await queue.run(waiterOf('a'), task('a4')), 'a4');
});

/** Tasks that run until the test ends them, oldest first. */
function openTasks() {
  const running: string[] = [];
  const ends: (() => void)[] = [];
  return {
    running,
    task: (name: string) => async () => {
      assert.ok(!running.includes(name));
      running.push(name);
      await new Promise<void>((end) => ends.push(end));
      running.splice(running.indexOf(name), 1);
    },
    /** Ends the task that began first. */
    async endFirst() {
      ends.shift()?.();
      await nextTurn();
    },
  };
}

test('tasks of one tenant run one after the other, and two resources are in use at once when two is the maximum', async () => {
  const queues = new TenantQueues(2);
  const { running, task, endFirst } = openTasks();
  const works = ['a', 'a', 'b', 'c', 'c'].map((tenant) => queues.run(waiterOf(tenant), task(tenant)));
  await nextTurn();
  const runningBeforeEachEnd: string[] = [];
  for (let i = 0; i < works.length; i++) {
    runningBeforeEachEnd.push(running.join(''));
    await endFirst();
  }
  await Promise.all(works);
  assert.deepEqual(runningBeforeEachEnd, ['ab', 'ba', 'ac', 'c', 'c']);
});

test('tenants that want the same resource take turns, and a task that wants another resource starts as soon as that resource is free', async () => {
  const queues = new TenantQueues(3);
  const { running, task, endFirst } = openTasks();
  // The tasks "a's" and "b's" use the resource `shared`; the tasks "a", "b" and "c" use a resource of their tenant.
  const works = ['a', 'a', 'a', 'b'].map((tenant) => queues.run(waiterOf(tenant, 'shared'), task(`${tenant}'s`)));
  for (const tenant of ['b', 'c', 'a']) works.push(queues.run(waiterOf(tenant), task(tenant)));
  await nextTurn();
  const runningBeforeEachEnd: string[] = [];
  for (let i = 0; i < works.length; i++) {
    runningBeforeEachEnd.push(running.join(' '));
    await endFirst();
  }
  await Promise.all(works);
  assert.deepEqual(runningBeforeEachEnd, ["a's b c", "b c a's", "c a's", "a's", "b's", "a's a", 'a']);
});

test('a waiter whose inferlet ends leaves the queue and takes no turn', async () => {
  const queues = new TenantQueues(1);
  const { running, task, endFirst } = openTasks();
  const registered = new Set<(cause: unknown) => void>();
  const leaving: Waiter = {
    ...waiterOf('a'),
    whenEnded: (leave) => {
      registered.add(leave);
      return () => registered.delete(leave);
    },
  };
  const first = queues.run(leaving, task('first'));
  assert.equal(registered.size, 0, 'a task that starts at once registers nothing');
  const abandoned = queues.run(leaving, () => assert.fail('it has left'));
  for (const leave of registered) leave(new Error('it has ended'));
  await assert.rejects(abandoned, /it has ended/);
  registered.clear();
  const other = queues.run(waiterOf('b'), task('other'));
  const next = queues.run(leaving, task('next'));
  await endFirst();
  assert.deepEqual(running, ['other'], 'the tenant that left comes after those that waited meanwhile');
  await endFirst();
  assert.deepEqual([running, registered.size], [['next'], 0]);
  await endFirst();
  await Promise.all([first, other, next]);
});

test('when an inferlet ends, none of its waiting tasks starts, and the task behind them starts', async () => {
  const queues = new TenantQueues(2);
  const { running, task, endFirst } = openTasks();
  const leaves: ((cause: unknown) => void)[] = [];
  const ending = (resource: string): Waiter => ({
    ...waiterOf('a', resource),
    whenEnded: (leave) => {
      leaves.push(leave);
      return () => undefined;
    },
  });
  const other = queues.run(waiterOf('c'), task('other'));
  const shared = queues.run(waiterOf('b', 'shared'), task('shared'));
  const leaving = ['shared', 'own'].map((resource) => queues.run(ending(resource), () => assert.fail('it has ended')));
  const behind = queues.run(waiterOf('a'), task('behind'));
  await endFirst();
  assert.deepEqual(running, ['shared'], 'the oldest task of the tenant still waits');
  for (const leave of leaves) leave(new Error('it has ended'));
  for (const each of leaving) await assert.rejects(each, /it has ended/);
  assert.deepEqual(running, ['shared', 'behind']);
  for (let i = 0; i < 2; i++) await endFirst();
  await Promise.all([other, shared, behind]);
});
