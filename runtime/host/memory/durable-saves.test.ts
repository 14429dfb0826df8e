import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FileInfo } from '#gpu-host/protocol/calls.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';
import type { KvFile } from './kv-files.ts';
import { list, load, MODEL, makeDurable, pages, refused, remove, save } from './testing/calls.ts';
import { DurableHosts } from './testing/durable-hosts.ts';

describe('saves of names that have, or had, durable copies', () => {
  let hosts: DurableHosts;
  before(async () => {
    hosts = await DurableHosts.start('east', 'west');
  });
  after(() => hosts.stop());
  afterEach(() => hosts.endTest());

  const open = (guest: TestInferlet, name?: string, access = 'read') =>
    guest.call<KvFile>('kv-files', '[constructor]file', guest.queue, name, access);
  const files = async (guest: TestInferlet) =>
    value(await guest.call<Promise<Outcome<readonly FileInfo[]>>>('kv-files', 'files', guest.queue, ''));
  const names = async (guest: TestInferlet) => (await list(guest)).map(({ name }) => name);

  it('a save may take a name that was removed while its host was away, and lists omit such a name', async () => {
    hosts.fresh();
    for (const name of ['n', 'm']) {
      const first = await hosts.at('east');
      value(await save(first, pages(first, 1), name));
      value(await makeDurable(first, name));
    }
    await hosts.kill('east');
    for (const name of ['n', 'm']) value(await remove(await hosts.at('west'), name));
    await hosts.restart('east');
    // Without the shared names, this inferlet lists what the host itself has.
    const alone = await hosts.at('east');
    Object.assign(alone.inferlet.services, { names: undefined });
    const maker = await hosts.at('east');
    const savedPages = pages(maker, 1);
    assert.match(
      await refused(save(maker, savedPages, 'n')),
      /^unavailable: .*removed while its GPU host was away.*try again/,
    );
    value(await save(maker, savedPages, 'n'));
    assert.deepEqual(await names(alone), ['m', 'n'], 'the host still has the removed name `m`');
    assert.deepEqual(await names(await hosts.at('east')), ['n']);
    assert.deepEqual(await names(alone), ['n'], 'the list before has removed `m` from the host');
    const { removals } = await hosts.scheduler.durableNames.list(hosts.tenant, 'east');
    assert.deepEqual(removals, []);
  });

  it('a save that follows a removal at once keeps the name', async () => {
    hosts.fresh();
    const saving = Promise.withResolvers<{ readonly pending: Promise<Outcome<undefined>> }>();
    const maker = await hosts.at('east', {
      records: {
        // Delays the removal until the save ends, 200 ms at most. A save that did not wait for the removal would still find the copy.
        remove: async (...args) => {
          const { pending } = await saving.promise;
          await Promise.race([pending, sleep(200)]);
          return hosts.scheduler.durableNames.remove(...args);
        },
      },
    });
    const savedPages = pages(maker, 1);
    value(await save(maker, savedPages, 'n'));
    value(await makeDurable(maker, 'n'));
    const removing = remove(maker, 'n');
    const savedAgain = save(maker, savedPages, 'n');
    saving.resolve({ pending: savedAgain });
    value(await removing);
    value(await savedAgain);
    assert.deepEqual(await hosts.files(), []);
    value(await load(await hosts.at('west'), 'n'));
  });

  it('a save counts although its content was made durable before the store noted the save', async () => {
    hosts.fresh();
    const maker = await hosts.at('east');
    const savedPages = pages(maker, 1);
    const device = maker.queue.device!;
    const [stored, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const ask = device.ask.bind(device);
    device.ask = (async (queue: number, operation: { op: string }) => {
      const outcome = await ask(queue, operation as never);
      if (operation.op !== 'export-pages') return outcome;
      stored.resolve();
      await go.promise;
      return outcome;
    }) as typeof device.ask;
    const saving = save(maker, savedPages, 'n');
    await stored.promise;
    const other = await hosts.at('east');
    value(await makeDurable(other, 'n'));
    go.resolve();
    value(await saving);
    for (const host of ['east', 'west']) value(await load(await hosts.at(host), 'n'));
    // The save was noted after the durable copy, so its content counts as newer and has ended the copy.
    assert.deepEqual(await hosts.files(), []);
    value(await makeDurable(other, 'n'));
    await hosts.kill('east');
    value(await load(await hosts.at('west'), 'n'));
  });

  it('making a name durable leaves no pages at another host that answered too late', async (t) => {
    hosts.fresh();
    const maker = await hosts.at('east');
    value(await save(maker, pages(maker, 2), 'n'));
    const guest = await hosts.at('west');
    const { device } = guest.inferlet.otherHosts.at(hosts.connection('east'), MODEL);
    const importPages = device.importPages.bind(device);
    const go = Promise.withResolvers<void>();
    let answer: ReturnType<typeof importPages> | undefined;
    device.importPages = (...args) => {
      const { setTimeout: realSetTimeout } = globalThis;
      // The next timer bounds the wait for the answer. The test lets it fire at once.
      t.mock.method(globalThis, 'setTimeout', (end: () => void) => realSetTimeout(end, 0), { times: 1 });
      answer = go.promise.then(() => importPages(...args));
      return answer;
    };
    assert.match(await refused(makeDurable(guest, 'n')), /^unavailable: .*did not answer within/);
    go.resolve();
    assert.equal(value(await answer!).pages.length, 2);
    assert.equal(device.heldPages, 0);
  });

  it('when the store cannot note a save, a replaced file remains and a new name stays free', async () => {
    hosts.fresh();
    const maker = await hosts.at('east');
    value(await open(maker).save('f', true, 'writable'));
    const claim = () => Promise.reject(new Error('the store is away'));
    const writer = await hosts.at('east', { claim });
    const lockedFile = open(writer, 'f', 'write');
    value(await lockedFile.ready());
    assert.match(await refused(lockedFile.save('f', true, 'writable')), /the store is away/);
    // A failed save of a new name leaves nothing.
    assert.match(await refused(lockedFile.save('g', true, 'writable')), /the store is away/);
    assert.match(await refused(lockedFile.save('f', true, 'writable')), /the store is away/);
    for (const host of ['east', 'west']) {
      const reader = await hosts.at(host);
      value(await open(reader, 'f').ready());
      assert.deepEqual(
        (await files(reader)).map(({ name }) => name),
        ['f'],
      );
    }
  });

  it('an inferlet whose names are too large to be made durable leaves no transfer of them at its GPU host', async () => {
    hosts.fresh();
    const maker = await hosts.at('east');
    for (const [name, count] of [
      ['one', 1],
      ['three', 3],
    ] as const)
      value(await save(maker, pages(maker, count), name));
    value(await makeDurable(maker, 'one'));
    const [copy] = await hosts.files();
    // The file of a copy has a header of 4,096 bytes.
    const guest = await hosts.at('east', { largestBytes: (await stat(copy!)).size - 4096 });
    // A GPU host lets an inferlet have at most four transfers at once.
    for (let tries = 0; tries < 5; tries++)
      assert.match(await refused(makeDurable(guest, 'three')), /^limit-exceeded: .*can be made durable/);
    value(await makeDurable(guest, 'one'));
  });

  it('a list has the files of the tenant and those under `system/`, but no other files of the operators', async () => {
    hosts.fresh();
    const operator = await hosts.at('east', { tenant: 'system', functionName: 'operator' });
    const operatorNames = ['both', 'operators', 'system/shared'];
    for (const name of operatorNames) {
      value(await open(operator).save(name, true, 'writable'));
      value(await makeDurable(operator, name, 'kv-files'));
    }
    value(await open(await hosts.at('west')).save('both', true, 'writable'));
    for (const host of ['east', 'west'])
      assert.deepEqual(
        (await files(await hosts.at(host))).map(({ name, owner }) => [name, owner]),
        [
          ['both', 'maker'],
          ['system/shared', 'operator'],
        ],
        host,
      );
    // All tests share the operators' tenant, and would list these names.
    for (const name of operatorNames)
      value(await operator.call<Promise<Outcome<undefined>>>('kv-files', 'remove', operator.queue, name));
  });
});
