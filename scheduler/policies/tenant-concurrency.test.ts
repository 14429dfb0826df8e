import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TenantTurns } from './tenant-turns.ts';

test('each tenant runs a bounded number of calls, in order, and a failed call frees its place', async () => {
  const turns = new TenantTurns({ tenant: 2, all: Number.POSITIVE_INFINITY });
  const begun: string[] = [];
  const calls = new Map<string, PromiseWithResolvers<string>>();
  const run = (tenant: string, name: string): Promise<string> =>
    turns.run(tenant, () => {
      begun.push(name);
      const call = Promise.withResolvers<string>();
      calls.set(name, call);
      return call.promise;
    });
  const flood = ['a', 'b', 'c', 'd', 'e'].map((name) => run('flood', name));
  const other = run('other', 'x');
  assert.deepEqual(begun, ['a', 'b', 'x'], 'no call waits for another tenant');

  calls.get('b')?.resolve('b is done');
  assert.equal(await flood[1], 'b is done');
  assert.deepEqual(begun.slice(3), ['c']);
  calls.get('a')?.reject(new Error('a failed'));
  await assert.rejects(flood[0] as Promise<string>, /a failed/);
  assert.deepEqual(begun.slice(3), ['c', 'd']);

  for (const name of ['x', 'c', 'd']) calls.get(name)?.resolve(name);
  assert.deepEqual(await Promise.all([other, flood[2], flood[3]]), ['x', 'c', 'd']);
  calls.get('e')?.resolve('e');
  assert.equal(await flood[4], 'e');
  assert.equal(turns.size, 0, 'no state is kept for idle tenants');
});
