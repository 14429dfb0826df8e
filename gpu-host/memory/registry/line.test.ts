import assert from 'node:assert/strict';
import test from 'node:test';
import { TenantLine } from './line.ts';

test('tasks run one at a time, tenants take turns, and a failure passes the turn on', async () => {
  const line = new TenantLine();
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
