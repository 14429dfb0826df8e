import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import type { FileInfo, Imported } from '#gpu-host/protocol/calls.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet, type TestInferletOptions } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';
import type { KvFile } from './kv-files.ts';
import { SharedNames } from './shared-names.ts';
import {
  list,
  load,
  MODEL,
  none,
  PAGE_SIZE,
  pages,
  range,
  refused,
  remove,
  save,
  someTokens,
  step,
  until,
} from './testing/calls.ts';

describe('names of two GPU hosts', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  const hosts = new Map<string, TestGpuHost>();
  const connections: GpuHostConnection[] = [];
  let names: SharedNames;
  let opened: TestInferlet[] = [];
  let testCount = 0;
  let tenant = '';

  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
    for (const [name, seed] of [
      ['east', 7],
      ['west', 7],
      ['strange', 8],
    ] as const) {
      const host = await TestGpuHost.start({ name, seed });
      hosts.set(name, host);
      connections.push(await GpuHostConnection.connect(host.address, { name }));
    }
    names = new SharedNames(scheduler.nameOwners, { list: connections });
  });
  after(async () => {
    for (const connection of connections) connection.close();
    for (const host of hosts.values()) await host.stop();
    await scheduler.close();
    await redis.stop();
  });
  afterEach(async () => {
    await Promise.all(opened.map((inferlet) => inferlet.end()));
    opened = [];
    assert.equal(names.turns.size, 0, 'no transfer is left');
    for (const connection of connections) {
      const { models, tenants } = await connection.stats();
      const [model] = models;
      assert.ok(model);
      const { free, cached, owned, total } = model.pages;
      assert.equal(free + cached + owned, total);
      assert.equal(model.inferlets, 0, 'no inferlet is left');
      // When the host has no exports, it holds nothing of the tenant.
      assert.deepEqual(
        tenants.filter((each) => each.tenant === tenant && model.exports === 0),
        [],
      );
    }
  });

  const connectionOf = (name: string) => connections.find((each) => each.name === name)!;
  const useNewTenant = () => {
    tenant = `tenant-${++testCount}`;
  };
  const at = (host: string, options: TestInferletOptions = {}) => {
    const made = new TestInferlet(connectionOf(host), {
      id: `inferlet-${opened.length}-${testCount}`,
      tenant,
      ...options,
      services: { names, ...options.services },
    });
    opened.push(made);
    return made;
  };
  const owner = (name: string, kind: 'export' | 'file' = 'export') =>
    scheduler.nameOwners.of({ tenant, model: MODEL, kind, name });
  const namesOf = (entries: readonly { readonly name: string }[]) => entries.map(({ name }) => name);
  /** Saves the KV pages of a text under a name, from an inferlet of a host. */
  const saveAt = async (host: string, name: string, tokens = someTokens(40), persistent = true) => {
    const maker = at(host);
    const newPages = pages(maker, Math.ceil(tokens.length / PAGE_SIZE));
    await step(maker, tokens, 0, none, newPages);
    value(await save(maker, newPages, name, persistent));
    await maker.end();
  };
  /** The distribution after one more token of the text. */
  const after40 = async (guest: TestInferlet, imported: Imported, seed = 1) =>
    (await step(guest, someTokens(41, seed).slice(40), 40, imported.pages, none))[0];

  /** Makes the guest's next call of an operation at another host wait for `work`; resolves when `work` is done. */
  const beforeOp = (guest: TestInferlet, host: string, op: string, work: () => Promise<void>): Promise<void> => {
    const { device } = guest.inferlet.otherHosts.at(connectionOf(host), MODEL);
    const done = Promise.withResolvers<void>();
    const waiting = async () => {
      device.ask = ask;
      device.importPages = importPages;
      await work();
      done.resolve();
    };
    const [ask, importPages] = [device.ask.bind(device), device.importPages.bind(device)];
    device.ask = (async (queue: number, operation: { op: string }) => {
      if (operation.op === op) await waiting();
      return ask(queue, operation as never);
    }) as typeof device.ask;
    device.importPages = async (queue, name) => {
      if (op === 'import-pages') await waiting();
      return importPages(queue, name);
    };
    return done.promise;
  };

  it('an export is found from the other host, with equal results, and fetched once for each version', async () => {
    useNewTenant();
    await saveAt('east', 'a/b');
    const home = at('east');
    const expected = await after40(home, value(await load(home, 'a/b')));
    const guest = at('west');
    const device = guest.queue.device!;
    const mapCopy = device.mapCopy.bind(device);
    device.mapCopy = (...args) => {
      assert.equal(names.turns.size, 0, 'no transfer turn is taken while the host may hold this call');
      return mapCopy(...args);
    };
    const imported = value(await load(guest, 'a/b'));
    assert.deepEqual([imported.pages.length, imported.tokens, imported.nextPosition], [3, 40, 40]);
    assert.equal(guest.inferlet.otherHosts.at(connectionOf('east'), MODEL).device.heldPages, 0);
    assert.deepEqual(await after40(guest, imported), expected);
    assert.equal((await owner('a/b'))?.host, 'east');
    let transfers = 0;
    void beforeOp(guest, 'east', 'send-begin', async () => void transfers++);
    const again = value(await load(guest, 'a/b'));
    assert.deepEqual(await after40(guest, again), expected);
    assert.equal(transfers, 0);
  });

  it('a name that was replaced or removed at its owner is not served from a copy', async () => {
    useNewTenant();
    await saveAt('east', 'n');
    const guest = at('west');
    value(await load(guest, 'n'));
    value(await remove(at('east', { services: { names: undefined } }), 'n'));
    assert.equal((await owner('n'))?.host, 'east', 'a removal without the shared names leaves the entry');
    assert.match(await refused(load(guest, 'n')), /^not-found/);
    assert.equal(await owner('n'), null);
    await saveAt('east', 'n', someTokens(40, 2));
    const imported = value(await load(guest, 'n'));
    const home = at('east');
    assert.deepEqual(await after40(guest, imported, 2), await after40(home, value(await load(home, 'n')), 2));
  });

  it('a name is listed, removed and saved as on one host', async () => {
    useNewTenant();
    await saveAt('east', 'b');
    await saveAt('west', 'a', someTokens(20), false);
    for (const host of ['east', 'west']) {
      const guest = at(host);
      assert.deepEqual(
        (await list(guest)).map(({ name, tokens, persistent }) => [name, tokens, persistent]),
        [
          ['a', 20, false],
          ['b', 40, true],
        ],
      );
      const newPages = pages(guest, 1);
      for (const name of ['a', 'b'])
        assert.match(await refused(save(guest, newPages, name)), /^invalid-argument.*taken/);
      assert.equal((await list(guest)).length, 2, 'nothing of the refused saves is left');
    }
    value(await remove(at('west'), 'b'));
    assert.match(await refused(remove(at('west'), 'b')), /^not-found/);
    assert.match(await refused(load(at('east'), 'b')), /^not-found/);
    value(await remove(at('east'), 'a'));
    assert.deepEqual(await list(at('west')), []);
    await saveAt('west', 'b', someTokens(20));
    assert.equal(value(await load(at('east'), 'b')).tokens, 20);
    assert.equal((await owner('b'))?.host, 'west');
    value(await remove(at('west'), 'b'));
    assert.equal(await owner('b'), null);
  });

  it('when two hosts save one name at once, exactly one gets it', async () => {
    useNewTenant();
    for (let round = 0; round < 8; round++) {
      const name = `race-${round}`;
      const makers = [at('east'), at('west')];
      const pagesOfMakers = makers.map((maker) => pages(maker, 1));
      for (const [i, maker] of makers.entries()) await step(maker, someTokens(4 + i), 0, none, pagesOfMakers[i]!);
      const ends = await Promise.all(
        makers.map((maker, i) => refused(save(maker, pagesOfMakers[i]!, name, round % 2 === 0))),
      );
      assert.match(ends.toSorted().join('; '), /^invalid-argument.*taken.*; ok$/);
      const winner = ends.indexOf('ok');
      assert.equal((await owner(name))?.host, ['east', 'west'][winner]);
      for (const maker of makers) assert.equal(value(await load(maker, name)).tokens, 4 + winner);
    }
    assert.equal((await list(at('west'))).length, 8);
  });

  it('another tenant finds nothing, and another model refuses the pages', async () => {
    useNewTenant();
    await saveAt('east', 'secret');
    value(await load(at('west'), 'secret'));
    const other = at('west', { tenant: 'another' });
    assert.match(await refused(load(other, 'secret')), /^not-found/);
    assert.match(await refused(remove(other, 'secret')), /^not-found/);
    assert.deepEqual(await list(other), []);
    const stranger = at('strange');
    assert.match(await refused(load(stranger, 'secret')), /^invalid-argument.*another model made these pages/);
    assert.equal(stranger.queue.device?.heldPages, 0);
    assert.equal((await list(at('east'))).length, 1);
  });

  it('a name is unavailable while its owner is away, and comes back with the owner if it is persistent', async () => {
    useNewTenant();
    await saveAt('east', 'kept');
    await saveAt('east', 'passing', someTokens(20), false);
    const guest = at('west');
    const [host, connection] = [hosts.get('east')!, connectionOf('east')];
    await host.kill();
    await until(() => !connection.connected);
    for (const name of ['kept', 'passing']) {
      assert.match(await refused(load(guest, name)), /^unavailable: .*kept by GPU host east.*try again/);
      assert.match(await refused(save(guest, pages(guest, 1), name)), /^unavailable/);
      assert.match(await refused(remove(guest, name)), /^unavailable/);
    }
    assert.deepEqual(await list(guest), []);
    await host.restart();
    await until(() => connection.connected);
    assert.equal(value(await load(guest, 'kept')).tokens, 40);
    assert.match(await refused(load(guest, 'passing')), /^not-found/);
    value(await save(guest, pages(guest, 1), 'passing', false));
    assert.equal((await owner('passing'))?.host, 'west');
  });

  for (const op of ['name-version', 'import-pages', 'send-begin', 'send-piece', 'send-end'] as const)
    it(`an owner that dies at ${op} gives one error and leaves nothing`, async () => {
      useNewTenant();
      await saveAt('east', 'n', someTokens(200));
      const guest = at('west');
      const [host, connection] = [hosts.get('east')!, connectionOf('east')];
      const free = async () => (await connectionOf('west').stats()).models[0]!.pages.free;
      const before = await free();
      const killed = beforeOp(guest, 'east', op, () => host.kill());
      assert.match(await refused(load(guest, 'n')), /^unavailable: the GPU host that keeps "n" was lost.*Try again/);
      await killed;
      assert.equal(guest.inferlet.lostDevice, undefined, 'the inferlet goes on');
      assert.equal(await free(), before);
      await host.restart();
      await until(() => connection.connected);
      assert.equal(value(await load(guest, 'n')).tokens, 200);
    });

  it('a name that changes in the middle of a transfer is not kept as its earlier version', async () => {
    useNewTenant();
    await saveAt('east', 'n');
    const guest = at('west');
    const changed = beforeOp(guest, 'east', 'import-pages', async () => {
      value(await remove(at('east'), 'n'));
      await saveAt('east', 'n', someTokens(20, 2));
    });
    assert.equal(value(await load(guest, 'n')).tokens, 20);
    await changed;
    assert.equal(value(await load(guest, 'n')).tokens, 20);
    // The host `west` drops the copy that it is receiving: the load fails, and the name stays.
    const receiver = at('west');
    void beforeOp(receiver, 'east', 'send-end', async () =>
      receiver.queue.device!.send(receiver.queue.id, { op: 'copy-drop', copy: 1 }),
    );
    value(await remove(at('east'), 'n'));
    await saveAt('east', 'n', someTokens(9));
    assert.match(await refused(load(receiver, 'n')), /^unavailable: .*stood still/);
    assert.equal(value(await load(receiver, 'n')).tokens, 9);
  });

  it('an inferlet that is stopped during a transfer leaves nothing', async () => {
    useNewTenant();
    await saveAt('east', 'n', someTokens(200));
    const guest = at('west');
    const host = hosts.get('east')!;
    const paused = beforeOp(guest, 'east', 'send-begin', async () => host.pause());
    const loading = load(guest, 'n');
    await paused;
    assert.equal(names.turns.size, 1);
    const waiting = [load(guest, 'n'), load(guest, 'n')];
    guest.inferlet.stop({ tag: 'cancelled', val: 'the client cancelled' });
    assert.match(await refused(loading), /^cancelled: the client cancelled/);
    for (const each of waiting) assert.match(await refused(each), /^cancelled/);
    host.resume();
    await guest.end();
    await until(() => names.turns.size === 0);
  });

  it('an entry of a host that the platform no longer has is ignored', async () => {
    useNewTenant();
    await saveAt('east', 'n');
    const west = connectionOf('west');
    const fewer = new SharedNames(scheduler.nameOwners, { list: [west, connectionOf('strange')] });
    const guest = at('west', { services: { names: fewer } });
    assert.match(await refused(load(guest, 'n')), /^not-found/);
    const newPages = pages(guest, 1);
    await step(guest, someTokens(9), 0, none, newPages);
    value(await save(guest, newPages, 'n'));
    assert.equal((await owner('n'))?.host, 'west');
    // When the host returns, the later owner counts, at that host as well.
    assert.equal(value(await load(at('east'), 'n')).tokens, 9);
  });

  it('the first use of a name that was saved before hosts shared names notes its owner', async () => {
    useNewTenant();
    const maker = at('east', { services: { names: undefined } });
    const newPages = pages(maker, 1);
    await step(maker, someTokens(9), 0, none, newPages);
    value(await save(maker, newPages, 'old'));
    value(await load(at('east'), 'old'));
    await until(async () => (await owner('old'))?.host === 'east');
    assert.equal(value(await load(at('west'), 'old')).tokens, 9);
  });

  it('without the store a host still serves its own names', async () => {
    useNewTenant();
    await saveAt('east', 'n');
    const lost = { ...scheduler.nameOwners, of: () => Promise.reject(new Error('the store is away')) };
    const owners = Object.assign(Object.create(scheduler.nameOwners), lost) as typeof scheduler.nameOwners;
    const away = new SharedNames(owners, { list: connections });
    assert.equal(value(await load(at('east', { services: { names: away } }), 'n')).tokens, 40);
    assert.match(await refused(load(at('west', { services: { names: away } }), 'n')), /the store is away/);
  });

  describe('KV files', () => {
    const open = (guest: TestInferlet, name: string | undefined, access = 'read') =>
      guest.call<KvFile>('kv-files', '[constructor]file', guest.queue, name, access);
    const files = async (guest: TestInferlet, prefix = '') =>
      value(await guest.call<Promise<Outcome<readonly FileInfo[]>>>('kv-files', 'files', guest.queue, prefix));
    const removeFile = (guest: TestInferlet, name: string) =>
      guest.call<Promise<Outcome<undefined>>>('kv-files', 'remove', guest.queue, name);
    const make = async (host: string, name: string, rights = 'writable') => {
      const maker = at(host, { functionName: 'maker' });
      const file = open(maker, undefined);
      value(await file.pred(someTokens(20), range(20), 1));
      value(await file.save(name, true, rights as 'writable'));
      await maker.end();
    };

    it('are read from the other host with the rights of their owner', async () => {
      useNewTenant();
      await make('east', 'open');
      await make('east', 'closed', 'private');
      const reader = at('west', { functionName: 'reader' });
      assert.match(await refused(open(reader, 'closed').ready()), /^unsupported.*private to the function "maker"/);
      assert.deepEqual(namesOf(await files(reader)), ['open']);
      const [there, here] = [open(reader, 'open'), open(at('east', { functionName: 'reader' }), 'open')];
      const row = async (file: KvFile) => value(await file.pred(someTokens(21).slice(20), range(1, 20), 4));
      assert.deepEqual(await row(there), await row(here));
      assert.match(await refused(open(reader, 'absent').ready()), /^not-found/);
    });

    it('keep their lock at their owner, where an inferlet on another host can save them', async () => {
      useNewTenant();
      await make('east', 'n');
      const writer = at('west', { functionName: 'writer' });
      const lockedFile = open(writer, 'n', 'write');
      value(await lockedFile.ready());
      // The inferlet that holds the lock may open the file again; other inferlets may not, on either host.
      const openedAgain = open(writer, 'n', 'write');
      value(await openedAgain.ready());
      for (const host of ['east', 'west'])
        assert.match(await refused(open(at(host), 'n', 'write').ready()), /^unavailable.*locked/);
      const locks = (await files(writer)).map(({ name, locked }) => [name, locked]);
      assert.deepEqual(locks, [['n', true]]);
      value(await lockedFile.pred(someTokens(24).slice(20), range(4, 20), 1));
      // Both turns of the tenant are taken, so that the save waits.
      const busy = Promise.withResolvers<Outcome<undefined>>();
      for (let turn = 0; turn < 2; turn++)
        void names.turns.during(tenant, new AbortController().signal, () => busy.promise);
      const earlier = await owner('n', 'file');
      const saving = lockedFile.save('n', true, 'writable');
      // The file gets this token after the call of `save`, so the saved content lacks it.
      value(await lockedFile.pred(someTokens(25).slice(24), range(1, 24), 1));
      busy.resolve({ tag: 'ok', val: undefined });
      value(await saving);
      for (const host of ['east', 'west']) {
        const reader = open(at(host), 'n');
        value(await reader.ready());
        assert.equal(reader.tokens, 24, host);
      }
      const later = await owner('n', 'file');
      assert.deepEqual([later?.host, later?.claim === earlier?.claim], ['east', false], 'the save is recorded');
      lockedFile.drop();
      assert.match(await refused(open(at('east'), 'n', 'write').ready()), /locked/);
      openedAgain.drop();
      const next = at('east', { functionName: 'writer' });
      value(await open(next, 'n', 'write').ready());
      assert.match(await refused(removeFile(writer, 'n')), /^unavailable.*locked/);
      await next.end();
      assert.match(await refused(open(writer, undefined).save('n', true, 'private')), /^invalid-argument.*taken/);
      value(await removeFile(writer, 'n'));
      assert.match(await refused(open(at('east'), 'n').ready()), /^not-found/);
    });

    it('lose their lock at another host when the inferlet that holds it ends', async () => {
      useNewTenant();
      await make('east', 'n');
      const writer = at('west', { functionName: 'writer' });
      value(await open(writer, 'n', 'write').ready());
      await writer.end();
      value(await open(at('east', { functionName: 'writer' }), 'n', 'write').ready());
    });
  });
});
