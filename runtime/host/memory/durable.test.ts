import assert from 'node:assert/strict';
import { appendFile, readFile, rm, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import type { Distribution, FileInfo, Imported } from '#gpu-host/protocol/calls.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';
import type { KvFile } from './kv-files.ts';
import { IoTurns } from './shared-directory.ts';
import {
  list,
  load,
  MODEL,
  makeDurable,
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
import { DurableHosts } from './testing/durable-hosts.ts';

describe('durable names', () => {
  let hosts: DurableHosts;
  before(async () => {
    hosts = await DurableHosts.start('east', 'west');
  });
  after(() => hosts.stop());
  afterEach(() => hosts.endTest());

  /** Saves the KV pages of a text under a name, from an inferlet of a host. */
  const saveAt = async (
    host: string,
    name: string,
    tokens = someTokens(40),
    persistent = true,
  ): Promise<TestInferlet> => {
    const maker = await hosts.at(host);
    const newPages = pages(maker, Math.ceil(tokens.length / PAGE_SIZE));
    await step(maker, tokens, 0, none, newPages);
    value(await save(maker, newPages, name, persistent));
    return maker;
  };
  /** The distribution after token 41 of the text, whose first 40 tokens are in the imported pages. */
  const after40 = async (guest: TestInferlet, { pages: held }: Imported): Promise<Distribution | undefined> =>
    (await step(guest, someTokens(41).slice(40), 40, held, none))[0];
  const open = (guest: TestInferlet, name?: string, access = 'read') =>
    guest.call<KvFile>('kv-files', '[constructor]file', guest.queue, name, access);
  const files = async (guest: TestInferlet) =>
    value(await guest.call<Promise<Outcome<readonly FileInfo[]>>>('kv-files', 'files', guest.queue, ''));
  const removeFile = (guest: TestInferlet, name: string) =>
    guest.call<Promise<Outcome<undefined>>>('kv-files', 'remove', guest.queue, name);
  const names = async (guest: TestInferlet) => (await list(guest)).map(({ name }) => name);
  const freePages = async (host: string) => (await hosts.connection(host).stats()).models[0]!.pages.free;
  /** Makes the guest's next call of an operation at a host wait for `work`. */
  const beforeOp = (guest: TestInferlet, host: string, op: string, work: () => Promise<void>): void => {
    const isOwn = guest.queue.model?.connection.name === host;
    const device = isOwn ? guest.queue.device! : guest.inferlet.otherHosts.at(hosts.connection(host), MODEL).device;
    const ask = device.ask.bind(device);
    device.ask = (async (queue: number, operation: { op: string }) => {
      if (operation.op === op) {
        device.ask = ask;
        await work();
      }
      return ask(queue, operation as never);
    }) as typeof device.ask;
  };

  it('a durable name gives equal results while its host is away, unknown to the runtime, or without its disk', async () => {
    hosts.fresh();
    const maker = await saveAt('east', 'a/b');
    value(await makeDurable(maker, 'a/b'));
    const expected = await after40(maker, value(await load(maker, 'a/b')));
    await saveAt('east', 'plain');
    await hosts.kill('east');
    const guest = await hosts.at('west');
    const imported = value(await load(guest, 'a/b'));
    value(await guest.queue.synchronize());
    assert.deepEqual([imported.pages.length, imported.tokens, imported.nextPosition], [3, 40, 40]);
    assert.deepEqual(await after40(guest, imported), expected);
    assert.match(await refused(load(guest, 'plain')), /^unavailable: .*kept by GPU host east/);
    assert.deepEqual(await list(guest), [{ name: 'a/b', pages: 3, tokens: 40, nextPosition: 40, persistent: true }]);
    // The host `new` joined later. The inferlet's runtime knows `west` and `new`, but not the owner, `east`.
    await hosts.add('new');
    const later = await hosts.at('new', { hosts: ['west', 'new'] });
    assert.deepEqual(await after40(later, value(await load(later, 'a/b'))), expected);
    assert.match(await refused(load(later, 'plain')), /^not-found/);
    // An inferlet without the shared names saves other content under this name at `new`. That content does not count.
    const stray = await hosts.at('new');
    Object.assign(stray.inferlet.services, { names: undefined });
    value(await save(stray, pages(stray, 1), 'a/b'));
    assert.equal(value(await load(later, 'a/b')).tokens, 40);
    await hosts.add('east');
    for (const host of ['east', 'west', 'new']) {
      const reader = await hosts.at(host);
      assert.deepEqual(await after40(reader, value(await load(reader, 'a/b'))), expected, host);
      value(await reader.queue.synchronize());
      assert.deepEqual(await names(reader), ['a/b'], host);
      // The name is still taken.
      const newPages = pages(reader, 1);
      assert.match(await refused(save(reader, newPages, 'a/b')), /^invalid-argument.*taken/, host);
    }
    value(await remove(await hosts.at('new'), 'a/b'));
    assert.deepEqual(await hosts.files(), []);
    assert.match(await refused(load(await hosts.at('east'), 'a/b')), /^not-found/);
    assert.match(await refused(load(await hosts.at('west', { hosts: ['west'] }), 'a/b')), /^not-found/);
  });

  it('a durable name that was not persistent survives the process of its host', async () => {
    hosts.fresh();
    const maker = await saveAt('east', 'n', someTokens(20), false);
    value(await makeDurable(maker, 'n'));
    await hosts.kill('east');
    await hosts.restart('east');
    for (const host of ['west', 'east']) assert.equal(value(await load(await hosts.at(host), 'n')).tokens, 20, host);
    value(await remove(await hosts.at('east'), 'n'));
    assert.match(await refused(load(await hosts.at('west'), 'n')), /^not-found/);
  });

  it('an inferlet makes a name of another host durable, and the copy replaces a transfer when that host dies', async () => {
    hosts.fresh();
    await saveAt('east', 'n', someTokens(200));
    value(await makeDurable(await hosts.at('west'), 'n'));
    const guest = await hosts.at('west');
    beforeOp(guest, 'east', 'send-piece', () => hosts.kill('east'));
    assert.equal(value(await load(guest, 'n')).tokens, 200, 'the copy takes the place of the transfer');
    await hosts.restart('east');
  });

  it('a durable name that was removed while its host was away stays removed when the host is back', async () => {
    hosts.fresh();
    for (const name of ['n', 'm']) value(await makeDurable(await saveAt('east', name), name));
    await hosts.kill('east');
    for (const name of ['n', 'm']) {
      value(await remove(await hosts.at('west'), name));
      assert.match(await refused(remove(await hosts.at('west'), name)), /^not-found/);
    }
    assert.deepEqual(await hosts.files(), []);
    await hosts.restart('east');
    const home = await hosts.at('east');
    assert.deepEqual(await names(home), []);
    assert.match(await refused(load(home, 'n')), /^not-found/);
    assert.match(await refused(remove(home, 'm')), /^not-found/);
    assert.match(await refused(makeDurable(home, 'n')), /^not-found/);
    assert.match(await refused(load(await hosts.at('west'), 'n')), /^not-found/);
    // A host that lost its disk in between takes new content. The recorded removal does not apply to that content.
    const entry = { tenant: hosts.tenant, model: MODEL, kind: 'export', name: 'k' } as const;
    await hosts.add('east');
    value(await makeDurable(await saveAt('east', 'k'), 'k'));
    await hosts.kill('east');
    value(await remove(await hosts.at('west'), 'k'));
    await hosts.add('east');
    await saveAt('east', 'k', someTokens(7));
    assert.ok((await hosts.scheduler.durableNames.look(entry, 'east')).removal);
    for (const host of ['east', 'west']) assert.equal(value(await load(await hosts.at(host), 'k')).tokens, 7, host);
    // New content under the removed names counts, whichever host has it.
    await saveAt('west', 'n', someTokens(9));
    await saveAt('east', 'm', someTokens(8));
    for (const host of ['east', 'west']) {
      const reader = await hosts.at(host);
      assert.deepEqual([value(await load(reader, 'n')).tokens, value(await load(reader, 'm')).tokens], [9, 8], host);
    }
  });

  it('a durable name whose file is damaged is refused, and nothing is mapped', async () => {
    hosts.fresh();
    const makeDurableFile = async (name: string, tokens = someTokens(40)): Promise<string> => {
      const before = await hosts.files();
      value(await makeDurable(await saveAt('east', name, tokens), name));
      return (await hosts.files()).find((file) => !before.includes(file))!;
    };
    const change = async (file: string, at: number) => {
      const bytes = await readFile(file);
      bytes[at]! ^= 1;
      await writeFile(file, bytes);
    };
    const other = await makeDurableFile('other', someTokens(40, 2));
    // The header has 4,096 bytes: byte 60 is in it, and byte 5000 in the content.
    const damages: readonly [(file: string) => Promise<void>, RegExp][] = [
      [(file) => change(file, 5000), /changed/],
      [(file) => change(file, 60), /another one/],
      [(file) => truncate(file, 4200), /another length/],
      [(file) => appendFile(file, 'x'), /another length/],
      [(file) => rm(file), /missing/],
      [async (file) => writeFile(file, await readFile(other)), /another one/],
    ];
    for (const [i, [damage]] of damages.entries()) await damage(await makeDurableFile(`n${i}`));
    await hosts.kill('east');
    for (const [i, [, why]] of damages.entries()) {
      const guest = await hosts.at('west');
      const before = await freePages('west');
      const refusal = new RegExp(`^internal: the durable copy of "n${i}".*${why.source}`);
      assert.match(await refused(load(guest, `n${i}`)), refusal);
      // `make-durable` checks the length and the header of the file, but does not read the content.
      if (why.source !== 'changed')
        assert.match(await refused(makeDurable(guest, `n${i}`)), /^internal: the durable copy/);
      assert.equal(guest.queue.device!.heldPages, 0);
      assert.equal(await freePages('west'), before);
      await guest.end();
    }
  });

  it('the copies of a tenant are bounded, and a copy that replaces another takes no more room', async () => {
    hosts.fresh();
    const bounds = { copies: 2, bytes: 2 ** 20 };
    for (const name of ['a', 'b', 'c']) await saveAt('east', name, someTokens(20));
    const maker = await hosts.at('east', { bounds });
    for (const name of ['a', 'b', 'a', 'b']) value(await makeDurable(maker, name));
    assert.match(await refused(makeDurable(maker, 'c')), /^limit-exceeded: .*2 of 2/);
    const copyFiles = await hosts.files();
    assert.equal(copyFiles.length, 2);
    // The bounds count the content of a file, without its header of 4,096 bytes.
    const contentBytes = (await stat(copyFiles[0]!)).size - 4096;
    // Two copies exist. A third one of the same length needs one byte more than this bound.
    const tight = await hosts.at('east', { bounds: { copies: 8, bytes: 3 * contentBytes - 1 } });
    assert.match(await refused(makeDurable(tight, 'c')), /^limit-exceeded: .*no room/);
    const small = await hosts.at('east', { largestBytes: contentBytes - 1 });
    assert.match(await refused(makeDurable(small, 'c')), /^limit-exceeded: .*can be made durable/);
    // Only the entry of the name is released. The copy that is left takes no room.
    const { nameOwners } = hosts.scheduler;
    const owned = { tenant: hosts.tenant, model: MODEL, kind: 'export', name: 'a' } as const;
    await nameOwners.release(owned, (await nameOwners.of(owned))!);
    assert.match(await refused(load(await hosts.at('west'), 'a')), /^not-found/);
    value(await makeDurable(maker, 'c'));
    value(await remove(maker, 'c'));
    // When two calls at once both find room for one copy, one of them is refused.
    value(await remove(maker, 'a'));
    value(await remove(maker, 'b'));
    for (const name of ['a', 'b']) await saveAt('east', name, someTokens(20));
    const oneCopy = { copies: 1, bytes: 2 ** 20 };
    const makers = await Promise.all(['a', 'b'].map(() => hosts.at('east', { bounds: oneCopy })));
    const ends = await Promise.all(makers.map((each, i) => refused(makeDurable(each, ['a', 'b'][i]!))));
    assert.equal(ends.filter((end) => end === 'ok').length, 1, ends.join('; '));
    assert.equal((await hosts.files()).length, 1);
  });

  it('a copy whose write fails leaves no file and no entry', async () => {
    hosts.fresh();
    await saveAt('east', 'n', someTokens(200));
    const assertFails = async (guest: TestInferlet, why: RegExp) => {
      assert.match(await refused(makeDurable(guest, 'n')), why);
      assert.deepEqual(await hosts.files(), []);
      const look = await hosts.scheduler.durableNames.list(hosts.tenant, '');
      assert.deepEqual(look.copies, []);
      assert.equal(guest.queue.device!.heldPages, 0);
    };
    const keep = () => Promise.reject(new Error('the store is away'));
    await assertFails(await hosts.at('east', { records: { keep } }), /the store is away/);
    // The store notes the copy, but its answer is lost.
    const withLostAnswer = await hosts.at('east', {
      records: { keep: async (...args) => hosts.scheduler.durableNames.keep(...args).then(keep) },
    });
    value(await makeDurable(withLostAnswer, 'n'));
    assert.equal((await hosts.files()).length, 1, 'the entry names the file');
    value(await remove(withLostAnswer, 'n'));
    await saveAt('east', 'n', someTokens(200));
    // The name is removed and saved again while its earlier content is copied.
    const copier = await hosts.at('east');
    beforeOp(copier, 'east', 'send-end', async () => {
      value(await remove(await hosts.at('east'), 'n'));
      await saveAt('east', 'n', someTokens(200));
    });
    await assertFails(copier, /^unavailable: .*saved anew/);
    for (const op of ['send-begin', 'send-piece', 'send-end']) {
      const guest = await hosts.at('west');
      beforeOp(guest, 'east', op, () => hosts.kill('east'));
      await assertFails(guest, /^(unavailable|device-lost|terminated|closed)/);
      await hosts.restart('east');
    }
  });

  it('an inferlet that ends while it makes a name durable leaves no file', async () => {
    hosts.fresh();
    await saveAt('east', 'n', someTokens(200));
    const guest = await hosts.at('east');
    const [reached, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    beforeOp(guest, 'east', 'send-piece', () => {
      reached.resolve();
      return go.promise;
    });
    const making = makeDurable(guest, 'n');
    await reached.promise;
    assert.equal((await hosts.files()).length, 1);
    const ended = guest.end();
    assert.match(await refused(making), /^terminated/);
    go.resolve();
    await ended;
    await until(() => guest.inferlet.services.names!.durableTurns.size === 0);
    assert.deepEqual(await hosts.files(), []);
  });

  it('transfers between hosts go on while the shared directory hangs', async () => {
    hosts.fresh();
    for (const name of ['a', 'b', 'plain']) await saveAt('east', name);
    const turns = new IoTurns();
    const guest = await hosts.at('west', { turns });
    const hung = Promise.withResolvers<void>();
    const hanging = [0, 1].map(() => turns.during(() => hung.promise));
    const made = ['a', 'b'].map((name) => makeDurable(guest, name));
    await until(() => guest.inferlet.services.names!.durableTurns.size === 2);
    assert.equal(value(await load(guest, 'plain')).tokens, 40);
    hung.resolve();
    await Promise.all(hanging);
    for (const each of made) value(await each);
  });

  it('making a name durable removes files that a killed runtime left, but no file that is young or in use', async () => {
    hosts.fresh();
    const maker = await saveAt('east', 'n');
    value(await makeDurable(maker, 'n'));
    const [usedFile] = await hosts.files();
    const folder = path.dirname(usedFile!);
    const old = ['0', '1'].map((digit) => path.join(folder, `${'a'.repeat(40)}-${digit.repeat(32)}.kv`));
    const young = path.join(folder, `${'a'.repeat(40)}-${'3'.repeat(32)}.kv`);
    const strange = path.join(folder, 'notes.txt');
    for (const file of [...old, young, strange]) await writeFile(file, '');
    const twoHoursAgo = Date.now() / 1000 - 7200;
    for (const file of [...old, usedFile!, strange]) await utimes(file, twoHoursAgo, twoHoursAgo);
    await saveAt('east', 'm');
    value(await makeDurable(maker, 'm'));
    const remainingFiles = await hosts.files();
    assert.ok(remainingFiles.includes(usedFile!) && remainingFiles.includes(young) && remainingFiles.includes(strange));
    // The fourth file is the new copy of `m`.
    assert.equal(remainingFiles.length, 4);
  });

  describe('durable KV files', () => {
    const make = async (name: string, rights: string, tokens = 20) => {
      const maker = await hosts.at('east');
      const file = open(maker);
      value(await file.pred(someTokens(tokens), range(tokens), 1));
      value(await file.save(name, true, rights as 'private'));
      return maker;
    };

    it('keep their rights while their GPU host is away', async () => {
      hosts.fresh();
      for (const rights of ['private', 'readable', 'writable']) {
        await make(rights, rights);
        const other = await hosts.at('west', { functionName: 'reader' });
        if (rights !== 'writable') assert.match(await refused(makeDurable(other, rights, 'kv-files')), /^unsupported/);
        value(await makeDurable(await hosts.at('west'), rights, 'kv-files'));
      }
      await hosts.kill('east');
      const reader = await hosts.at('west', { functionName: 'reader' });
      assert.match(await refused(open(reader, 'private').ready()), /^unsupported.*private to the function "maker"/);
      for (const name of ['readable', 'writable']) {
        value(await open(reader, name).ready());
        assert.match(await refused(open(reader, name, 'write').ready()), /^unavailable: .*only be read now/);
      }
      assert.deepEqual(
        (await files(reader)).map(({ name, rights, owner, tokens }) => [name, rights, owner, tokens]),
        ['readable', 'writable'].map((rights) => [rights, rights, 'maker', 20]),
      );
      for (const name of ['private', 'readable']) assert.match(await refused(removeFile(reader, name)), /^unsupported/);
      value(await removeFile(reader, 'writable'));
      const maker = await hosts.at('west');
      assert.equal((await files(maker)).length, 2);
      value(await open(maker, 'private').ready());
      const other = await hosts.at('west', { tenant: 'another' });
      assert.match(await refused(open(other, 'readable').ready()), /^not-found/);
      value(await removeFile(maker, 'private'));
      await hosts.restart('east');
      // The host forgets the removed files when any function asks for them.
      const third = await hosts.at('east', { functionName: 'third' });
      for (const name of ['private', 'writable']) {
        assert.match(await refused(open(third, name).ready()), /^not-found/);
        value(await open(await hosts.at('east')).save(name, true, 'private'));
      }
    });

    it('lose their copy with a later save, also with one from an inferlet on another host', async () => {
      hosts.fresh();
      // Each file has the name of the host where it is saved again. Its owner is `east`.
      const both = ['east', 'west'];
      for (const host of both) {
        value(await makeDurable(await make(host, 'writable'), host, 'kv-files'));
        const writer = await hosts.at(host);
        const lockedFile = open(writer, host, 'write');
        value(await lockedFile.ready());
        value(await lockedFile.pred(someTokens(24).slice(20), range(4, 20), 1));
        value(await lockedFile.save(host, true, 'writable'));
        await writer.end();
        assert.deepEqual(await hosts.files(), []);
      }
      await hosts.kill('east');
      for (const host of both) {
        const reader = open(await hosts.at('west'), host);
        assert.match(await refused(reader.ready()), /^unavailable: .*kept by GPU host east/);
      }
      await hosts.restart('east');
      for (const host of both) value(await makeDurable(await hosts.at('east'), host, 'kv-files'));
      await hosts.kill('east');
      for (const host of both) {
        const reader = open(await hosts.at('west'), host);
        value(await reader.ready());
        assert.equal(reader.tokens, 24);
      }
      await hosts.restart('east');
      for (const host of both) value(await removeFile(await hosts.at('east'), host));
    });
  });

  it('a read fails with `unavailable` when the name is made durable again or removed meanwhile', async () => {
    hosts.fresh();
    for (const change of [makeDurable, remove]) {
      const maker = await saveAt('east', 'n');
      value(await makeDurable(maker, 'n'));
      const guest = await hosts.at('west', { hosts: ['west'] });
      const { durable } = guest.inferlet.services.names!;
      const bring = durable!.bring.bind(durable);
      durable!.bring = async (...args) => {
        value(await change(maker, 'n'));
        return bring(...args);
      };
      assert.match(await refused(load(guest, 'n')), /^unavailable: the name was saved anew or removed/);
      durable!.bring = bring;
      if (change === remove) assert.match(await refused(load(guest, 'n')), /^not-found/);
      else assert.equal(value(await load(guest, 'n')).tokens, 40);
      if (change === makeDurable) value(await remove(maker, 'n'));
    }
  });

  it('making a name durable needs a shared directory, and is refused for names of operators', async () => {
    hosts.fresh();
    const guest = await hosts.at('east');
    assert.match(await refused(makeDurable(guest, 'system/n')), /^unsupported.*operators/);
    assert.match(await refused(makeDurable(guest, 'absent')), /^not-found/);
    await hosts.kill('east');
    assert.match(await refused(makeDurable(guest, 'n')), /^unavailable/);
    await hosts.restart('east');
    Object.assign(guest.inferlet.services.names!, { durable: undefined });
    assert.match(await refused(makeDurable(guest, 'n')), /^unsupported: .*shared_directory below \[storage\]/);
  });
});
