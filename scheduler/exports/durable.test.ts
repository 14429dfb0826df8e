import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { DurableCopy, NameOwner, OwnedName } from './exports.ts';

describe('durable names', () => {
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

  const named = (tenant: string, name: string, rest: Partial<OwnedName> = {}): OwnedName => ({
    tenant,
    model: 'story',
    kind: 'export',
    name,
    ...rest,
  });
  const owner = (claim: string): NameOwner => ({ host: 'east', hostId: 'east 1', persistent: true, claim });
  const copy = (claim: string, bytes = 100, digit = claim): DurableCopy => ({
    claim,
    file: digit.padStart(32, '0'),
    bytes,
    checksum: 'c',
    fingerprint: 'f',
    pageSize: 16,
    pageBytes: 64,
    pages: 1,
    tokens: 2,
    nextPosition: 3,
    access: { owner: 'maker', rights: 'private' },
  });
  const bounds = { copies: 2, bytes: 1000 };

  test("a copy is kept only while the owner's entry is the one that the caller has read", async () => {
    const { durableNames: durable, nameOwners: owners } = scheduler;
    const name = named('a', 'n');
    assert.deepEqual(await durable.keep(name, owner('1'), copy('1'), bounds), { is: 'changed' });
    await owners.claim(name, owner('1'), null);
    assert.deepEqual(await durable.keep(name, owner('1'), copy('1'), bounds), { is: 'kept', replaced: null });
    const newerCopy = copy('1', 200, '2');
    assert.deepEqual(await durable.keep(name, owner('1'), newerCopy, bounds), { is: 'kept', replaced: copy('1') });
    await owners.claim(name, owner('2'), owner('1'));
    assert.deepEqual(await durable.keep(name, owner('1'), copy('1'), bounds), { is: 'changed' });
    assert.deepEqual(await durable.look(name, 'east'), { copy: newerCopy, removal: null });
    assert.equal(await durable.drop(name, copy('1')), false);
    assert.equal(await durable.drop(name, newerCopy), true);
    assert.deepEqual(await durable.look(name, 'east'), { copy: null, removal: null });
  });

  test('the bounds count the copies of all models and kinds of one tenant', async () => {
    const { durableNames: durable, nameOwners: owners } = scheduler;
    const keep = async (name: OwnedName, bytes: number) => {
      await owners.claim(name, owner('1'), null);
      return durable.keep(name, owner('1'), copy('1', bytes), bounds);
    };
    assert.equal((await keep(named('b', 'n'), 600)).is, 'kept');
    assert.deepEqual(await keep(named('b', 'n', { model: 'large' }), 401), { is: 'full', copies: 1, bytes: 600 });
    assert.equal((await keep(named('b', 'n', { model: 'large' }), 400)).is, 'kept');
    assert.deepEqual(await keep(named('b', 'n', { kind: 'file' }), 0), { is: 'full', copies: 2, bytes: 1000 });
    assert.equal((await keep(named('b', 'n'), 600)).is, 'kept', 'a copy may use the room of the copy that it replaces');
    assert.equal((await keep(named('c', 'n'), 1000)).is, 'kept');
    assert.equal((await durable.list('b', 'east')).copies.length, 2);
  });

  test('a removal deletes the entries of owner and copy in one step, and is noted for a host that is away', async () => {
    const { durableNames: durable, nameOwners: owners } = scheduler;
    const names = ['n', 'm'].map((name) => named('d', name));
    for (const name of names) {
      await owners.claim(name, owner('1'), null);
      await durable.keep(name, owner('1'), copy('1'), bounds);
      assert.equal(await durable.remove(name, owner('2'), copy('1'), true), false);
      assert.equal(await durable.remove(name, owner('1'), copy('2'), true), false);
      assert.equal((await owners.of(name))?.claim, '1');
      const isAway = name === names[0];
      assert.equal(await durable.remove(name, owner('1'), copy('1'), isAway), true);
      assert.equal(await owners.of(name), null);
    }
    const removal = { claim: '1', owner: 'maker' };
    assert.deepEqual(await durable.list('d', 'east'), { copies: [], removals: [{ name: names[0], removal }] });
    assert.deepEqual((await durable.list('d', 'west')).removals, []);
    await durable.forgotten(names[0]!, 'east', { ...removal, claim: '2' });
    assert.deepEqual(await durable.look(names[0]!, 'east'), { copy: null, removal });
    await durable.forgotten(names[0]!, 'east', removal);
    assert.deepEqual(await durable.look(names[0]!, 'east'), { copy: null, removal: null });
  });

  test('a claim and a removal that the connection sends twice get their first reply', async (t) => {
    const { durableNames: durable, nameOwners: owners, store } = scheduler;
    const script = store.script.bind(store);
    t.mock.method(store, 'script', async (...call: Parameters<typeof script>) => {
      await script(...call);
      return script(...call);
    });
    const name = named('e', 'n');
    assert.equal(await owners.claim(name, owner('1'), null), null);
    await durable.keep(name, owner('1'), copy('1'), bounds);
    assert.equal(await durable.remove(name, owner('1'), copy('1'), false), true);
    assert.equal(await durable.remove(name, owner('1'), copy('1'), false), false);
  });

  test('the platform has one folder for all processes', async () => {
    const opened = ['one', 'one', 'two'].map((prefix) => openTestScheduler(redis, { prefix }));
    const proposedFolders = ['a', 'b', 'c'].map((digit) => digit.repeat(32));
    assert.equal(await opened[0]!.durableNames.folder(), null);
    const folders = await Promise.all(
      opened.map(({ durableNames }, i) => durableNames.nameFolder(proposedFolders[i]!)),
    );
    assert.ok(proposedFolders.includes(folders[0]!));
    assert.equal(folders[1], folders[0]);
    assert.equal(folders[2], proposedFolders[2], 'a second platform has another folder in the shared directory');
    assert.deepEqual(await Promise.all(opened.map(({ durableNames }) => durableNames.folder())), folders);
    await Promise.all(opened.map((each) => each.close()));
  });
});
