import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import type { FileInfo, Residency } from '#gpu-host/protocol/calls.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { NameOwners } from '#scheduler/exports/exports.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';
import type { KvFile } from './kv-files.ts';
import { SharedNames, TransferTurns } from './shared-names.ts';
import {
  list,
  load,
  MODEL,
  none,
  pages,
  range,
  refused,
  remove,
  save,
  someTokens,
  step,
  until,
} from './testing/calls.ts';

describe('saves of names that two GPU hosts share', () => {
  const tenant = 'acme';
  let redis: TestRedis;
  let scheduler: Scheduler;
  let hosts: TestGpuHost[] = [];
  let connections: GpuHostConnection[] = [];
  let opened: TestInferlet[] = [];

  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
    for (const name of ['east', 'west']) {
      const host = await TestGpuHost.start({ name });
      hosts = [...hosts, host];
      connections = [...connections, await GpuHostConnection.connect(host.address, { name })];
    }
  });
  after(async () => {
    for (const connection of connections) connection.close();
    for (const host of hosts) await host.stop();
    await scheduler.close();
    await redis.stop();
  });
  afterEach(async () => {
    await Promise.all(opened.map((inferlet) => inferlet.end()));
    opened = [];
  });

  const [EAST, WEST] = [0, 1];
  const at = (host: number, functionName = 'maker', owners: SharedNames['owners'] = scheduler.nameOwners) => {
    const names = new SharedNames(owners, { list: connections });
    const id = `inferlet-${opened.length}`;
    const made = new TestInferlet(connections[host]!, { id, tenant, functionName, services: { names } });
    opened.push(made);
    return made;
  };
  const open = (guest: TestInferlet, name?: string, access = 'read') =>
    guest.call<KvFile>('kv-files', '[constructor]file', guest.queue, name, access);
  const owner = (name: string, kind: 'export' | 'file') =>
    scheduler.nameOwners.of({ tenant, model: MODEL, kind, name });

  it('a file that an inferlet on another host makes persistent at its owner is found after the owner restarts', async () => {
    const transientFile = open(at(EAST));
    value(await transientFile.pred(someTokens(20), range(20), 1));
    value(await transientFile.save('n', false, 'writable'));
    const writer = at(WEST, 'writer');
    const lockedFile = open(writer, 'n', 'write');
    value(await lockedFile.ready());
    value(await lockedFile.pred(someTokens(24).slice(20), range(4, 20), 1));
    value(await lockedFile.save('n', true, 'writable'));
    const [host, connection] = [hosts[EAST]!, connections[EAST]!];
    await host.kill();
    await until(() => !connection.connected);
    await host.restart();
    await until(() => connection.connected);
    const reader = open(at(WEST, 'reader'), 'n');
    value(await reader.ready());
    assert.equal(reader.tokens, 24);
    assert.match(await refused(open(at(WEST)).save('n', true, 'writable')), /^invalid-argument.*taken/);
    assert.equal((await owner('n', 'file'))?.persistent, true);
  });

  it('using and removing a name of another host leaves no error in the queue', async () => {
    const savedFile = open(at(EAST));
    value(await savedFile.pred(someTokens(20), range(20), 1));
    value(await savedFile.save('elsewhere', false, 'writable'));
    const reader = at(WEST, 'reader');
    const file = open(reader, 'elsewhere');
    value(await file.ready());
    const tail = file.extract(range(10, 5), 0);
    value(await tail.ready());
    assert.equal(tail.tokens, 10);
    value(await reader.call<Promise<Outcome<undefined>>>('kv-files', 'remove', reader.queue, 'elsewhere'));
    value(await reader.queue.settle());
    assert.match(await refused(open(reader, 'elsewhere').ready()), /^not-found/);
    value(await reader.queue.settle());
  });

  it('an inferlet on one host pins, moves and inspects an export of the other host', async () => {
    const maker = at(EAST);
    const savedPages = pages(maker, 2);
    await step(maker, someTokens(20), 0, none, savedPages);
    value(await save(maker, savedPages, 'pinned'));
    await maker.end();
    const control = async (guest: TestInferlet, call: string, ...more: readonly unknown[]) =>
      value(await guest.call<Promise<Outcome<Residency>>>('allocate', call, guest.queue, 'pinned', ...more));
    const [there, here] = [at(WEST), at(EAST)];
    assert.ok((await control(there, 'pin-export', 60_000)).leaseMs > 0);
    assert.ok((await control(here, 'export-residency')).leaseMs > 0);
    assert.equal((await control(there, 'unpin-export')).leaseMs, 0);
    assert.equal((await control(here, 'export-residency')).leaseMs, 0);
    assert.equal((await control(there, 'demote-export', 'disk')).diskPages, 2);
    assert.equal((await control(here, 'export-residency')).tier, 'disk');
    await control(there, 'retain-export', 1000);
    assert.equal((await control(there, 'prefetch-export')).devicePages, 2);
    assert.equal((await control(here, 'export-residency')).tier, 'device');
    const unknown = there.call<Promise<Outcome<Residency>>>('allocate', 'pin-export', there.queue, 'unknown', 1);
    assert.match(await refused(unknown), /^not-found/);
  });

  it('a save whose inferlet ends before the name is claimed leaves nothing under the name', async () => {
    const maker = at(EAST);
    const makerPages = pages(maker, 1);
    const [claimReached, claimReleased] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    await step(maker, someTokens(9), 0, none, makerPages);
    value(await save(maker, makerPages, 'm'));
    const { nameOwners } = scheduler;
    const claim: NameOwners['claim'] = async (...args) => {
      claimReached.resolve();
      await claimReleased.promise;
      return nameOwners.claim(...args);
    };
    const release: NameOwners['release'] = (...args) => nameOwners.release(...args);
    const saver = at(WEST, 'saver', {
      of: (name) => nameOwners.of(name),
      list: (names) => nameOwners.list(names),
      claim,
      release,
    });
    const savedPages = pages(saver, 1);
    await step(saver, someTokens(5), 0, none, savedPages);
    const saving = save(saver, savedPages, 'm');
    await claimReached.promise;
    const ended = saver.end();
    assert.match(await refused(saving), /^terminated/);
    claimReleased.resolve();
    await ended;
    value(await remove(at(EAST), 'm'));
    assert.equal(await owner('m', 'export'), null);
    assert.match(await refused(load(at(WEST), 'm')), /^not-found/);
  });

  it("an inferlet's usage includes its usage of a host that it dropped", async () => {
    const guest = at(WEST);
    const { otherHosts } = guest.inferlet;
    const { device, queue } = otherHosts.at(connections[EAST]!, MODEL);
    const held = device.allocatePages(queue, 1);
    const tokens = someTokens(9);
    const request = {
      tokens,
      positions: range(tokens.length),
      inPages: none,
      outPages: value(held),
      mask: undefined,
      rows: tokens.length,
      output: { tag: 'distributions', val: 1 } as const,
    };
    value(await device.ask(queue, { op: 'step', request }));
    otherHosts.drop(connections[EAST]!);
    await guest.end();
    assert.ok(guest.inferlet.deviceUsage.gpuUs > 0);
  });

  it('a save that gets no transfer turn at the owner leaves no pages', async () => {
    const maker = open(at(EAST));
    value(await maker.pred(someTokens(20), range(20), 1));
    value(await maker.save('t', true, 'writable'));
    const writer = at(WEST, 'writer');
    const lockedFile = open(writer, 't', 'write');
    value(await lockedFile.ready());
    const names = writer.inferlet.services.names!;
    // A transfer waits at most 1 ms for a turn, and both turns of the tenant are taken.
    const turns = new TransferTurns(1);
    Object.assign(names, { turns });
    const busy = Promise.withResolvers<Outcome<undefined>>();
    for (let turn = 0; turn < 2; turn++) void turns.during(tenant, new AbortController().signal, () => busy.promise);
    assert.match(await refused(lockedFile.save('t', true, 'writable')), /^unavailable: too many/);
    lockedFile.drop();
    assert.equal(writer.queue.device!.heldPages, 0);
    busy.resolve({ tag: 'ok', val: undefined });
  });

  it('opening a file of another host for writing leaves no lock there when the own host has no room for its pages', async () => {
    const savedFile = open(at(EAST));
    value(await savedFile.pred(someTokens(20), range(20), 1));
    value(await savedFile.save('roomless', false, 'writable'));
    const writer = at(WEST, 'writer');
    // The file has 2 pages. At its owner, the inferlet may map all of its 128 pages; at its own host, it has one page left.
    pages(writer, 127);
    assert.match(await refused(open(writer, 'roomless', 'write').ready()), /^limit-exceeded/);
    // The list is asked on the queue on which the runtime has given the lock back, so it comes after that call.
    const listed = writer.call<Promise<Outcome<readonly FileInfo[]>>>('kv-files', 'files', writer.queue, 'roomless');
    assert.deepEqual(
      value(await listed).map(({ name, locked }) => [name, locked]),
      [['roomless', false]],
    );
    value(await open(at(EAST, 'other'), 'roomless', 'write').ready());
  });

  it('a list has each name from the host that owns it, and no names that another host has without owning them', async () => {
    const saveNamed = async (maker: TestInferlet, name: string, tokens: number) => {
      const savedPages = pages(maker, 1);
      await step(maker, someTokens(tokens), 0, none, savedPages);
      value(await save(maker, savedPages, name));
    };
    // Without the shared names, this inferlet's saves claim no names.
    const stray = at(WEST);
    Object.assign(stray.inferlet.services, { names: undefined });
    for (const name of ['list/unowned', 'list/east']) await saveNamed(stray, name, 5);
    await saveNamed(at(WEST), 'list/west', 6);
    await saveNamed(at(EAST), 'list/east', 7);
    const listed = (await list(at(EAST))).filter(({ name }) => name.startsWith('list/'));
    assert.deepEqual(
      listed.map(({ name, tokens }) => [name, tokens]),
      [
        ['list/east', 7],
        ['list/west', 6],
      ],
    );
  });

  it('a transfer that the own host refuses leaves nothing open at the host that owns the name', async () => {
    const maker = at(EAST);
    value(await save(maker, pages(maker, 1), 'waiting'));
    const guest = at(WEST);
    const { device, id } = guest.queue;
    assert.ok(device);
    const sent = value(await device.ask(id, { op: 'send-begin', pages: pages(guest, 1) }));
    const { fingerprint, pageSize, pageBytes } = sent;
    const beginCopy = (version: string) =>
      device.ask(id, { op: 'copy-begin', version, pages: 1, fingerprint, pageSize, pageBytes });
    // A GPU host lets an inferlet have at most four transfers at once in each direction.
    const copies = await Promise.all(['a', 'b', 'c', 'd'].map(beginCopy));
    for (let tries = 0; tries < 5; tries++)
      assert.match(await refused(load(guest, 'waiting')), /^limit-exceeded: .*4 copies on their way/);
    device.send(id, { op: 'copy-drop', copy: value(copies[0]!) });
    value(await load(guest, 'waiting'));
  });
});
