import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { NameOwner, OwnedName } from './exports.ts';

describe('owners of names', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  const named = (name: string, rest: Partial<OwnedName> = {}): OwnedName => ({
    tenant: 'acme',
    model: 'story',
    kind: 'export',
    name,
    ...rest,
  });
  const owner = (host: string, claim: string): NameOwner => ({ host, hostId: `${host} 1`, persistent: true, claim });

  test('the first claim of a name succeeds; a later claim succeeds only if it names the present entry as the one to replace', async () => {
    const { nameOwners } = scheduler;
    const [first, second, third] = [owner('east', '1'), owner('west', '2'), owner('east', '3')];
    assert.equal(await nameOwners.of(named('n')), null);
    assert.equal(await nameOwners.claim(named('n'), first, null), null);
    assert.deepEqual(await nameOwners.claim(named('n'), second, null), first);
    assert.equal(await nameOwners.claim(named('n'), second, first), null);
    assert.deepEqual(await nameOwners.claim(named('n'), third, first), second);
    assert.deepEqual(await nameOwners.of(named('n')), second);
    await nameOwners.release(named('n'), first);
    assert.deepEqual(await nameOwners.of(named('n')), second, 'a release of another entry changes nothing');
    await nameOwners.release(named('n'), second);
    assert.equal(await nameOwners.of(named('n')), null);
  });

  test('of several claims made at once, exactly one succeeds', async () => {
    const claims = Array.from({ length: 16 }, (_, i) => owner(`host-${i}`, `${i}`));
    const others = await Promise.all(claims.map((claim) => scheduler.nameOwners.claim(named('race'), claim, null)));
    assert.equal(others.filter((other) => other === null).length, 1);
    const winner = await scheduler.nameOwners.of(named('race'));
    for (const other of others) assert.ok(other === null || other.claim === winner?.claim);
  });

  test('the same name has a separate owner for each tenant, model and kind', async () => {
    const { nameOwners } = scheduler;
    const scopes: Partial<OwnedName>[] = [{}, { tenant: 'other' }, { model: 'large' }, { kind: 'file' }];
    for (const [i, scope] of scopes.entries())
      assert.equal(await nameOwners.claim(named('a/b', scope), owner('east', `${i}`), null), null);
    for (const [i, scope] of scopes.entries()) {
      const listed = await nameOwners.list(named('', scope));
      assert.equal(listed.get('a/b')?.claim, `${i}`);
    }
    assert.deepEqual([...(await nameOwners.list(named('', { kind: 'file' }))).keys()], ['a/b']);
  });
});
