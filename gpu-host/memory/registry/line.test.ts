import assert from 'node:assert/strict';
import test from 'node:test';
import { TenantLines } from './line.ts';

test('tenants take turns, and a failure passes the turn on', async () => {
  const line = new TenantLines(1);
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
  const results = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map((name) => line.run(name.slice(0, 1), task(name)));
  const settled = await Promise.allSettled(results);
  assert.deepEqual(order, ['a1', 'a2', 'b1', 'c1', 'a3', 'b2']);
  assert.deepEqual(
    settled.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled', 'fulfilled', 'fulfilled', 'fulfilled'],
  );
  assert.equal(await line.run('a', task('a4')), 'a4');
});

test("a tenant's tasks run one after the other, beside those of as many tenants as may run", async () => {
  const lines = new TenantLines(2);
  const running = new Set<string>();
  const ends: (() => void)[] = [];
  const task = (tenant: string) => async () => {
    assert.ok(!running.has(tenant));
    running.add(tenant);
    assert.ok(running.size <= 2);
    await new Promise<void>((end) => ends.push(end));
    running.delete(tenant);
  };
  const works = ['a', 'a', 'b', 'c', 'c'].map((tenant) => lines.run(tenant, task(tenant)));
  const seen: string[] = [];
  for (let i = 0; i < works.length; i++) {
    await new Promise((resolve) => setImmediate(resolve));
    seen.push([...running].join(''));
    ends.shift()?.();
  }
  await Promise.all(works);
  assert.deepEqual(seen, ['ab', 'ba', 'ac', 'c', 'c']);
});
