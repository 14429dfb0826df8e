import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { directoryNameOf, fileNameOf } from './names.ts';
import type { Caller } from './rights.ts';
import { contentsOf, snapshotOf } from './testing/page-memory.ts';
import { assertRefused, assertRejected, Life, temporaryDirectory } from './testing/registries.ts';

const MAKER: Caller = { tenant: 't', inferlet: 'one', functionName: 'maker' };
const SAME: Caller = { ...MAKER, inferlet: 'two' };
const OTHER: Caller = { tenant: 't', inferlet: 'three', functionName: 'other' };
const STRANGER: Caller = { tenant: 'u', inferlet: 'four', functionName: 'maker' };
const OPERATOR: Caller = { tenant: 'system', inferlet: 'five', functionName: 'setup' };

const notNeeded = () => assert.fail('nothing had to come from disk');

test('an export keeps its pages until it is taken back', () => {
  const { memory, registry } = new Life(undefined);
  const snapshot = snapshotOf(1, 3);
  assert.equal(registry.exportPages('t', 'a', snapshot, false), undefined);
  assert.equal(memory.held.size, 3);
  assert.equal(registry.importPages('t', 'a', notNeeded), snapshot);
  const { tokens, nextPosition } = snapshot;
  assert.deepEqual(registry.listExports('t'), [{ name: 'a', pages: 3, tokens, nextPosition, persistent: false }]);
  assertRefused(() => registry.exportPages('t', 'a', snapshotOf(2, 1), false), 'invalid-argument', /taken/);
  registry.unexport('t', 'a');
  assert.equal(memory.held.size, 0);
  assertRefused(() => registry.importPages('t', 'a', notNeeded), 'not-found');
  assertRefused(() => registry.unexport('t', 'a'), 'not-found');
});

test('tenants have names of their own; those under system/ are read by all and written by one', async (t) => {
  const { registry } = new Life(temporaryDirectory(t));
  registry.exportPages('t', 'a', snapshotOf(1, 1), false);
  registry.exportPages('u', 'a', snapshotOf(2, 1), false);
  const shared = snapshotOf(3, 1);
  await registry.exportPages('system', 'system/prompt', shared, true);
  assert.equal(registry.importPages('t', 'system/prompt', notNeeded), shared);
  assertRefused(() => registry.exportPages('t', 'system/x', snapshotOf(1, 1), false), 'unsupported');
  assertRefused(() => registry.unexport('t', 'system/prompt'), 'unsupported');
  assert.deepEqual(
    registry.listExports('t').map(({ name }) => name),
    ['a'],
  );
  assert.notEqual(registry.importPages('t', 'a', notNeeded), registry.importPages('u', 'a', notNeeded));
  assertRefused(() => registry.importPages('system', 'a', notNeeded), 'not-found');
});

test('names are names and never paths', async (t) => {
  const root = temporaryDirectory(t);
  const { registry } = new Life(join(root, 'kv'));
  for (const name of ['', '\0', 'a\0b', 'ü', '名', '😀', 'a b', 'a\\b', 'a\nb', 'x'.repeat(129), 'x'.repeat(10_000)]) {
    assertRefused(() => registry.exportPages('t', name, snapshotOf(1, 1), true), 'invalid-argument', /is no name/);
    assertRefused(() => registry.importPages('t', name, notNeeded), 'invalid-argument', /is no name/);
    assertRefused(() => registry.unexport('t', name), 'invalid-argument');
    assertRefused(() => registry.openFile(MAKER, name, false, notNeeded), 'invalid-argument');
    assertRefused(
      () => registry.saveFile(MAKER, name, snapshotOf(1, 1), { persistent: true, rights: 'private' }),
      'invalid-argument',
    );
    assertRefused(() => registry.unlockFile(MAKER, name), 'invalid-argument');
    assertRefused(() => registry.removeFile(MAKER, name), 'invalid-argument');
    assert.deepEqual(registry.listFiles(MAKER, name === '' ? 'none' : name), []);
  }
  const names = ['../x', '..', '/etc/passwd', 'a/../../b', './a', 'x'.repeat(128)];
  for (const tenant of ['../../t', 't\0', '/']) {
    for (const name of names) await registry.exportPages(tenant, name, snapshotOf(1, 1), true);
    assert.equal(registry.listExports(tenant).length, names.length);
  }
  assert.deepEqual(readdirSync(root), ['kv']);
  for (const tenant of readdirSync(join(root, 'kv'))) {
    assert.match(tenant, /^[0-9a-f]{40}$/);
    for (const file of readdirSync(join(root, 'kv', tenant))) assert.match(file, /^export-[0-9a-f]{40}\.kv$/);
  }
});

test('what is persistent comes back bit for bit after a restart, what is not is gone', async (t) => {
  const directory = temporaryDirectory(t);
  const first = new Life(directory);
  const [kept, file] = [snapshotOf(1, 3), snapshotOf(2, 2)];
  await first.registry.exportPages('t', 'kept', kept, true);
  first.registry.exportPages('t', 'gone', snapshotOf(3, 1), false);
  await first.registry.saveFile(MAKER, 'file', file, { persistent: true, rights: 'readable' });
  const [exportsBefore, filesBefore] = [first.registry.listExports('t'), first.registry.listFiles(MAKER, '')];

  const second = new Life(directory);
  assert.deepEqual(
    second.registry.listExports('t'),
    exportsBefore.filter(({ persistent }) => persistent),
  );
  assert.deepEqual(second.registry.listFiles(MAKER, ''), filesBefore);
  assert.equal(second.memory.held.size, 0);
  const { restore } = second.memory;
  const imported = second.registry.importPages('t', 'kept', restore);
  assert.deepEqual(contentsOf(imported), contentsOf(kept));
  assert.equal(second.registry.importPages('t', 'kept', notNeeded), imported);
  assert.deepEqual(contentsOf(second.registry.openFile(OTHER, 'file', false, restore)), contentsOf(file));
  assertRefused(() => second.registry.importPages('t', 'gone', notNeeded), 'not-found');
  assert.equal(second.memory.held.size, 5);
  assert.equal(second.registry.stats().diskBytes, first.registry.stats().diskBytes);
});

test('a file of another model is refused by both names, and can be removed', async (t) => {
  const directory = temporaryDirectory(t);
  const first = new Life(directory);
  await first.registry.exportPages('t', 'a', snapshotOf(1, 1), true);
  await first.registry.exportPages('t', 'b', snapshotOf(2, 1), true);
  await first.registry.saveFile(MAKER, 'f', snapshotOf(3, 1), { persistent: true, rights: 'readable' });

  const { registry } = new Life(directory, 1);
  const both = /"a" was made by another model: by stories \(onnx.*fingerprint aaaaaaaaaaaa.*this is minimind/;
  assertRefused(() => registry.importPages('t', 'a', notNeeded), 'invalid-argument', both);
  assertRefused(() => registry.openFile(MAKER, 'f', false, notNeeded), 'invalid-argument', /stories.*minimind/);
  assert.deepEqual(registry.listExports('t'), []);
  assert.deepEqual(registry.listFiles(MAKER, ''), []);
  assertRefused(() => registry.exportPages('t', 'a', snapshotOf(4, 1), true), 'invalid-argument', /remove it first/);
  assertRefused(
    () => registry.saveFile(MAKER, 'f', snapshotOf(4, 1), { persistent: true, rights: 'private' }),
    'invalid-argument',
  );
  assertRefused(() => registry.removeFile(OTHER, 'f'), 'unsupported');
  registry.unexport('t', 'b');
  registry.removeFile(MAKER, 'f');
  await registry.exportPages('t', 'b', snapshotOf(5, 1), true);

  const again = new Life(directory);
  assert.deepEqual(
    again.registry.listExports('t').map(({ name }) => name),
    ['a'],
  );
  assertRefused(
    () => again.registry.importPages('t', 'b', notNeeded),
    'invalid-argument',
    /by minimind.*this is stories/,
  );
});

test('rights go by function', () => {
  const { registry } = new Life(undefined);
  const save = (name: string, rights: 'private' | 'readable' | 'writable') =>
    registry.saveFile(MAKER, name, snapshotOf(1, 1), { persistent: false, rights });
  save('private', 'private');
  save('readable', 'readable');
  save('writable', 'writable');
  registry.saveFile(OPERATOR, 'system/prompt', snapshotOf(2, 1), { persistent: false, rights: 'private' });

  const open = (caller: Caller, name: string, write: boolean) => () =>
    registry.openFile(caller, name, write, notNeeded);
  for (const name of ['private', 'readable', 'writable']) {
    open(SAME, name, true)();
    registry.unlockFile(SAME, name);
    assertRefused(open(STRANGER, name, false), 'not-found');
  }
  assertRefused(open(OTHER, 'private', false), 'unsupported', /private to the function "maker"/);
  open(OTHER, 'readable', false)();
  assertRefused(open(OTHER, 'readable', true), 'unsupported');
  assertRefused(() => registry.removeFile(OTHER, 'readable'), 'unsupported');
  open(OTHER, 'writable', true)();
  registry.saveFile(OTHER, 'writable', snapshotOf(3, 2), { persistent: false, rights: 'writable' });
  assertRefused(
    () => registry.saveFile(OTHER, 'writable', snapshotOf(3, 2), { persistent: false, rights: 'private' }),
    'unsupported',
    /may change the rights/,
  );
  open(STRANGER, 'system/prompt', false)();
  assertRefused(open(STRANGER, 'system/prompt', true), 'unsupported', /operators/);
  assertRefused(
    () => registry.saveFile(STRANGER, 'system/x', snapshotOf(1, 1), { persistent: false, rights: 'private' }),
    'unsupported',
  );
  assertRefused(() => registry.removeFile(STRANGER, 'system/prompt'), 'unsupported');

  const listed = (caller: Caller, prefix = '') => registry.listFiles(caller, prefix).map(({ name }) => name);
  assert.deepEqual(listed(MAKER), ['private', 'readable', 'system/prompt', 'writable']);
  assert.deepEqual(listed(OTHER), ['readable', 'system/prompt', 'writable']);
  assert.deepEqual(listed(STRANGER), ['system/prompt']);
  assert.deepEqual(listed(MAKER, 'w'), ['writable']);
  const writable = registry.listFiles(MAKER, 'writable')[0];
  assert.deepEqual(
    { owner: writable?.owner, rights: writable?.rights, locked: writable?.locked },
    { owner: 'maker', rights: 'writable', locked: true },
  );
});

test('a lock is held by one inferlet until it gives it back or goes', () => {
  const { memory, registry } = new Life(undefined);
  const options = { persistent: false, rights: 'writable' } as const;
  registry.saveFile(MAKER, 'f', snapshotOf(1, 1), options);
  assertRefused(() => registry.saveFile(MAKER, 'f', snapshotOf(2, 1), options), 'invalid-argument', /lock/);
  registry.openFile(MAKER, 'f', true, notNeeded);
  assertRefused(() => registry.openFile(SAME, 'f', true, notNeeded), 'unavailable', /locked/);
  assertRefused(() => registry.removeFile(SAME, 'f'), 'unavailable');
  registry.openFile(SAME, 'f', false, notNeeded);
  registry.unlockFile(SAME, 'f');
  const second = snapshotOf(2, 2);
  registry.saveFile(MAKER, 'f', second, options);
  assert.equal(registry.openFile(SAME, 'f', false, notNeeded), second);
  assert.equal(memory.held.size, 2);
  registry.releaseInferlet(MAKER.inferlet);
  registry.openFile(SAME, 'f', true, notNeeded);
  registry.releaseInferlet(MAKER.inferlet);
  assertRefused(() => registry.openFile(MAKER, 'f', true, notNeeded), 'unavailable');
  registry.unlockFile(SAME, 'f');
  registry.openFile(MAKER, 'f', true, notNeeded);
  registry.releaseInferlet(SAME.inferlet);
  assertRefused(() => registry.openFile(SAME, 'f', true, notNeeded), 'unavailable');
  registry.unlockFile(MAKER, 'f');
  registry.unlockFile(SAME, 'f');
  registry.unlockFile(SAME, 'nothing');
  registry.openFile(OTHER, 'f', true, notNeeded);
  registry.removeFile(OTHER, 'f');
  registry.releaseInferlet(OTHER.inferlet);
  assert.equal(memory.held.size, 0);
});

test('a version that is not persistent replaces the one on disk for good', async (t) => {
  const directory = temporaryDirectory(t);
  const { registry } = new Life(directory);
  await registry.saveFile(MAKER, 'f', snapshotOf(1, 1), { persistent: true, rights: 'private' });
  registry.openFile(MAKER, 'f', true, notNeeded);
  registry.saveFile(MAKER, 'f', snapshotOf(2, 1), { persistent: false, rights: 'private' });
  assert.equal(registry.stats().diskBytes, 0);
  assertRefused(() => new Life(directory).registry.openFile(MAKER, 'f', false, notNeeded), 'not-found');
});

test('every limit is refused before anything changes', async (t) => {
  const directory = temporaryDirectory(t);
  const limits = {
    maxTenantPages: 6,
    maxTenantEntries: 3,
    maxSnapshotPages: 4,
    maxDiskBytes: 1000,
    maxSavingBytes: 500,
  };
  const { memory, registry } = new Life(directory, 0, limits);
  const exported = (tenant: string, name: string, pages: number, persistent = false) =>
    registry.exportPages(tenant, name, snapshotOf(pages, pages), persistent);
  assertRefused(() => exported('t', 'a', 5), 'limit-exceeded', /at most 4/);
  exported('t', 'a', 4);
  assertRefused(() => exported('t', 'b', 3), 'limit-exceeded', /would hold 7 pages; it may hold 6/);
  exported('t', 'b', 0);
  registry.saveFile(MAKER, 'c', snapshotOf(1, 1), { persistent: false, rights: 'private' });
  assertRefused(() => exported('t', 'd', 0), 'limit-exceeded', /exports and files/);
  registry.openFile(MAKER, 'c', true, notNeeded);
  assertRefused(
    () => registry.saveFile(MAKER, 'c', snapshotOf(1, 3), { persistent: false, rights: 'private' }),
    'limit-exceeded',
  );
  registry.saveFile(MAKER, 'c', snapshotOf(1, 2), { persistent: false, rights: 'private' });

  // A page takes 80 bytes, and so does the file besides the header's text.
  const saving = exported('u', 'a', 4, true);
  assertRefused(() => exported('v', 'a', 3, true), 'unavailable', /being saved already/);
  await saving;
  assertRefused(() => exported('v', 'a', 4, true), 'limit-exceeded', /on disk/);
  registry.unexport('u', 'a');
  await exported('v', 'a', 4, true);
  assertRefused(
    () => new Life(undefined).registry.exportPages('t', 'a', snapshotOf(1, 1), true),
    'unsupported',
    /without a directory/,
  );
  assert.equal(memory.held.size, 4 + 2 + 4);
  assertRefused(
    () => new Life(directory, 0, { maxSavingBytes: 100 }).registry.exportPages('t', 'z', snapshotOf(1, 2), true),
    'limit-exceeded',
  );
});

test('pages that can be had from disk give way to others, least recently used first', async (t) => {
  const { memory, registry } = new Life(temporaryDirectory(t), 0, { maxMemoryPages: 8 });
  const [a, b] = [snapshotOf(1, 2), snapshotOf(2, 2)];
  const [contentsOfA, contentsOfB] = [contentsOf(a), contentsOf(b)];
  await registry.exportPages('t', 'a', a, true);
  await registry.exportPages('t', 'b', b, true);
  registry.importPages('t', 'a', notNeeded);
  for (const name of ['c', 'd']) registry.exportPages('u', name, snapshotOf(3, 2), false);
  registry.exportPages('v', 'e', snapshotOf(4, 2), false);
  assert.equal(memory.held.size, 8);
  assert.equal(registry.importPages('t', 'a', notNeeded), a);
  assert.deepEqual(contentsOf(registry.importPages('t', 'b', memory.restore)), contentsOfB);
  assert.equal(memory.held.size, 8);
  registry.exportPages('w', 'f', snapshotOf(5, 1), false);
  assert.equal(memory.held.size, 7);
  assertRefused(() => registry.importPages('t', 'a', notNeeded), 'unavailable', /8 pages in memory/);
  assert.equal(registry.stats().memoryPages, 7);
  registry.unexport('u', 'c');
  assert.deepEqual(contentsOf(registry.importPages('t', 'a', memory.restore)), contentsOfA);
});

test('a tenant may save half of what the others leave of the disk, saves under way and damaged files included', async (t) => {
  const directory = temporaryDirectory(t);
  // A file of four pages has 400 bytes, plus those of its header once it is written.
  const limits = { maxDiskBytes: 4000, maxSavingBytes: 4000 };
  const { registry } = new Life(directory, 0, limits);
  const save = (tenant: string, name: string, life = registry) =>
    life.exportPages(tenant, name, snapshotOf(4, 4), true);
  const names = ['a', 'b', 'c', 'd', 'e'];
  const saving = names.map((name) => save('t', name));
  assertRefused(() => save('t', 'f'), 'limit-exceeded', /take 2000 bytes on disk and 400 more .* it may have 2000/);
  await Promise.all(saving);
  assertRefused(() => save('t', 'f'), 'limit-exceeded', /bytes on disk and 400 more/);
  registry.unexport('t', 'e');
  await save('u', 'a');
  assertRefused(() => save('u', 'b'), 'limit-exceeded', /half of what other tenants leave/);
  for (const name of ['a', 'b', 'c']) registry.unexport('t', name);
  await save('u', 'b');
  const { registry: restarted } = new Life(directory, 0, { ...limits, maxDiskBytes: 2000 });
  assertRefused(() => save('u', 'c', restarted), 'limit-exceeded', /on disk/);
});

test('a tenant may keep half of what the others leave of the memory, so that there is room for the next one', async (t) => {
  const { memory, registry } = new Life(temporaryDirectory(t), 0, { maxMemoryPages: 16 });
  const keep = (tenant: string, name: string, pages: number, persistent = false) =>
    registry.exportPages(tenant, name, snapshotOf(pages, pages), persistent);
  assertRefused(() => keep('t', 'a', 9), 'limit-exceeded', /9 pages; a tenant may hold 8/);
  keep('t', 'a', 5);
  keep('t', 'b', 3);
  assertRefused(
    () => keep('t', 'c', 1),
    'unavailable',
    /other tenants hold 0 of them, so this one may hold 8.*holds 8/,
  );
  keep('u', 'a', 4);
  assertRefused(() => keep('u', 'b', 1), 'unavailable', /hold 8 of them, so this one may hold 4/);
  keep('v', 'a', 2);
  keep('w', 'a', 1);
  // Pages that are also on disk count in no tenant's share.
  registry.unexport('t', 'a');
  await keep('v', 'b', 1, true);
  assert.equal(memory.held.size, 11);
  keep('v', 'c', 1);
  // A file saved anew gives its own share back.
  const save = () => registry.saveFile(MAKER, 'f', snapshotOf(1, 1), { persistent: false, rights: 'private' });
  save();
  registry.openFile(MAKER, 'f', true, notNeeded);
  assertRefused(() => keep('t', 'd', 1), 'unavailable', /may hold 4, and it holds 4/);
  registry.unexport('t', 'b');
  keep('t', 'd', 3);
  save();
  assertRefused(() => keep('t', 'e', 1), 'unavailable');
});

test('a save that fails leaves what was there before, and is told to whoever asked', async (t) => {
  const directory = temporaryDirectory(t);
  const { memory, registry } = new Life(directory);
  const tenant = join(directory, directoryNameOf('t'));
  writeFileSync(tenant, '');
  await assertRejected(registry.exportPages('t', 'a', snapshotOf(1, 1), true), 'internal', /"a" could not be saved: E/);
  assertRefused(() => registry.importPages('t', 'a', notNeeded), 'not-found');
  assert.equal(memory.held.size, 0);
  rmSync(tenant);

  const options = { persistent: true, rights: 'private' } as const;
  const first = snapshotOf(1, 1);
  await registry.saveFile(MAKER, 'f', first, options);
  registry.openFile(MAKER, 'f', true, notNeeded);
  renameSync(tenant, `${tenant}-away`);
  writeFileSync(tenant, '');
  const second = snapshotOf(2, 2);
  const saving = registry.saveFile(MAKER, 'f', second, options);
  assert.equal(registry.openFile(MAKER, 'f', false, notNeeded), second);
  await assertRejected(saving, 'internal', /"f" could not be saved/);
  assert.equal(registry.openFile(MAKER, 'f', false, notNeeded), first);
  assert.equal(memory.held.size, 1);
  rmSync(tenant);
  renameSync(`${tenant}-away`, tenant);
  assert.equal(registry.listFiles(MAKER, '')[0]?.locked, true);
  await registry.saveFile(MAKER, 'f', second, options);
  const { memory: later, registry: restarted } = new Life(directory);
  assert.deepEqual(contentsOf(restarted.openFile(MAKER, 'f', false, later.restore)), contentsOf(second));
});

test('an export that is removed while it is being saved never comes back', async (t) => {
  const directory = temporaryDirectory(t);
  const { memory, registry } = new Life(directory);
  const saving = registry.exportPages('t', 'a', snapshotOf(1, 2), true);
  registry.unexport('t', 'a');
  assert.equal(memory.held.size, 0);
  await assertRejected(saving, 'cancelled', /was removed while it was being saved/);
  assert.deepEqual(readdirSync(join(directory, directoryNameOf('t'))), []);
});

test("damage found when pages are wanted is that call's error; the name can be cleared", async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 2), true);
  const path = join(directory, directoryNameOf('t'), fileNameOf('export', 'a'));
  const bytes = readFileSync(path);
  bytes[bytes.length - 1] = (bytes[bytes.length - 1] as number) ^ 1;
  writeFileSync(path, bytes);
  const { memory, registry } = new Life(directory);
  assert.equal(registry.listExports('t').length, 1);
  assertRefused(() => registry.importPages('t', 'a', memory.restore), 'internal', /"a" is damaged on disk.*page 1/);
  rmSync(path);
  assertRefused(
    () => registry.importPages('t', 'a', memory.restore),
    'internal',
    /"a" cannot be read from disk: ENOENT/,
  );
  registry.unexport('t', 'a');

  writeFileSync(path, bytes.subarray(0, 10));
  const later = new Life(directory);
  assert.deepEqual(later.registry.listExports('t'), []);
  assertRefused(() => later.registry.importPages('t', 'a', notNeeded), 'internal', /damaged on disk/);
  assertRefused(
    () => later.registry.exportPages('t', 'a', snapshotOf(1, 1), false),
    'invalid-argument',
    /remove it first/,
  );
  later.registry.unexport('t', 'a');
  assert.equal(existsSync(path), false);
  assert.equal(later.registry.stats().diskBytes, 0);
});

test('a file in the place of another name is refused', async (t) => {
  const directory = temporaryDirectory(t);
  const { registry } = new Life(directory);
  await registry.exportPages('t', 'a', snapshotOf(1, 1), true);
  await registry.exportPages('u', 'a', snapshotOf(2, 1), true);
  const path = (tenant: string) => join(directory, directoryNameOf(tenant), fileNameOf('export', 'a'));
  writeFileSync(path('t'), readFileSync(path('u')));
  const later = new Life(directory).registry;
  assertRefused(() => later.importPages('t', 'a', notNeeded), 'internal', /has the place of another name/);
});

test('a bug in a restore is not taken for a disk error, and keeps the entry', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 1), true);
  const { memory, registry } = new Life(directory);
  assert.throws(
    () =>
      registry.importPages('t', 'a', () => {
        throw new TypeError('a bug');
      }),
    TypeError,
  );
  registry.importPages('t', 'a', memory.restore);
});

test('files that a dead process left half written are cleared away', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 1), true);
  const tenant = join(directory, directoryNameOf('t'));
  // Process ids: above every possible one, this process's own (from before a restart), and a live one.
  for (const pid of [2 ** 30, process.pid, process.ppid]) writeFileSync(join(tenant, `tmp-${pid}-half`), 'PIEKV');
  const { registry } = new Life(directory);
  assert.deepEqual(readdirSync(tenant).sort(), [fileNameOf('export', 'a'), `tmp-${process.ppid}-half`].sort());
  assert.equal(registry.listExports('t').length, 1);
});
