import assert from 'node:assert/strict';
import { readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { Lease } from '../leases.ts';
import { type Caller, directoryNameOf } from './entry.ts';
import { contentsOf, snapshotOf } from './testing/page-memory.ts';
import { assertRefused, assertRejected, Life, memoryOnly, same, temporaryDirectory } from './testing/registries.ts';

const MAKER: Caller = { tenant: 't', inferlet: 'one', functionName: 'maker' };
const SAME_FUNCTION: Caller = { ...MAKER, inferlet: 'two' };
const OTHER_FUNCTION: Caller = { tenant: 't', inferlet: 'three', functionName: 'other' };
const STRANGER: Caller = { tenant: 'u', inferlet: 'four', functionName: 'maker' };
const OPERATOR: Caller = { tenant: 'system', inferlet: 'five', functionName: 'setup' };

test('an export keeps its pages until it is removed', () => {
  const { memory, registry } = new Life(undefined);
  const snapshot = snapshotOf(1, 3);
  assert.equal(registry.exportPages('t', 'a', snapshot, false, memoryOnly), undefined);
  assert.equal(memory.held.size, 3);
  assert.equal(registry.importPages('t', 'a', memoryOnly, same), snapshot);
  const { tokens, nextPosition } = snapshot;
  assert.deepEqual(registry.listExports('t'), [{ name: 'a', pages: 3, tokens, nextPosition, persistent: false }]);
  assertRefused(() => registry.exportPages('t', 'a', snapshotOf(2, 1), false, memoryOnly), 'invalid-argument', /taken/);
  registry.unexport('t', 'a');
  assert.equal(memory.held.size, 0);
  assertRefused(() => registry.importPages('t', 'a', memoryOnly, same), 'not-found');
  assertRefused(() => registry.unexport('t', 'a'), 'not-found');
});

test('each tenant has its own names; all tenants read names under system/, and only the tenant `system` writes them', async (t) => {
  const { registry } = new Life(temporaryDirectory(t));
  registry.exportPages('t', 'a', snapshotOf(1, 1), false, memoryOnly);
  registry.exportPages('u', 'a', snapshotOf(2, 1), false, memoryOnly);
  const shared = snapshotOf(3, 1);
  await registry.exportPages('system', 'system/prompt', shared, true, memoryOnly);
  assert.equal(registry.importPages('t', 'system/prompt', memoryOnly, same), shared);
  assertRefused(() => registry.exportPages('t', 'system/x', snapshotOf(1, 1), false, memoryOnly), 'unsupported');
  assertRefused(() => registry.unexport('t', 'system/prompt'), 'unsupported');
  assert.deepEqual(
    registry.listExports('t').map(({ name }) => name),
    ['a'],
  );
  assert.notEqual(registry.importPages('t', 'a', memoryOnly, same), registry.importPages('u', 'a', memoryOnly, same));
  assertRefused(() => registry.importPages('system', 'a', memoryOnly, same), 'not-found');
});

test('malformed names are refused, and no name becomes part of a path', async (t) => {
  const root = temporaryDirectory(t);
  const { registry } = new Life(join(root, 'kv'));
  for (const name of ['', '\0', 'a\0b', 'ü', '名', '😀', 'a b', 'a\\b', 'a\nb', 'x'.repeat(129), 'x'.repeat(10_000)]) {
    assertRefused(
      () => registry.exportPages('t', name, snapshotOf(1, 1), true, memoryOnly),
      'invalid-argument',
      /is not a name/,
    );
    assertRefused(() => registry.importPages('t', name, memoryOnly, same), 'invalid-argument', /is not a name/);
    assertRefused(() => registry.unexport('t', name), 'invalid-argument');
    assertRefused(() => registry.openFile(MAKER, name, false, memoryOnly, same), 'invalid-argument');
    assertRefused(
      () => registry.saveFile(MAKER, name, snapshotOf(1, 1), { persistent: true, rights: 'private' }, memoryOnly),
      'invalid-argument',
    );
    assertRefused(() => registry.unlockFile(MAKER, name), 'invalid-argument');
    assertRefused(() => registry.removeFile(MAKER, name), 'invalid-argument');
    assert.deepEqual(registry.listFiles(MAKER, name === '' ? 'none' : name), []);
  }
  const names = ['../x', '..', '/etc/passwd', 'a/../../b', './a', 'x'.repeat(128)];
  for (const tenant of ['../../t', 't\0', '/']) {
    for (const name of names) await registry.exportPages(tenant, name, snapshotOf(1, 1), true, memoryOnly);
    assert.equal(registry.listExports(tenant).length, names.length);
  }
  assert.deepEqual(readdirSync(root), ['kv']);
  for (const tenant of readdirSync(join(root, 'kv'))) {
    assert.match(tenant, /^[0-9a-f]{40}$/);
    for (const file of readdirSync(join(root, 'kv', tenant))) assert.match(file, /^export-[0-9a-f]{40}\.kv$/);
  }
});

test('persistent entries come back bit for bit after a restart, and the others are gone', async (t) => {
  const directory = temporaryDirectory(t);
  const first = new Life(directory);
  const [kept, file] = [snapshotOf(1, 3), snapshotOf(2, 2)];
  await first.registry.exportPages('t', 'kept', kept, true, memoryOnly);
  first.registry.exportPages('t', 'gone', snapshotOf(3, 1), false, memoryOnly);
  await first.registry.saveFile(MAKER, 'file', file, { persistent: true, rights: 'readable' }, memoryOnly);
  const [exportsBefore, filesBefore] = [first.registry.listExports('t'), first.registry.listFiles(MAKER, '')];

  const second = new Life(directory);
  assert.deepEqual(
    second.registry.listExports('t'),
    exportsBefore.filter(({ persistent }) => persistent),
  );
  assert.deepEqual(second.registry.listFiles(MAKER, ''), filesBefore);
  assert.equal(second.memory.held.size, 0);
  const { requester } = second;
  const imported = await second.registry.importPages('t', 'kept', requester, same);
  assert.deepEqual(contentsOf(imported), contentsOf(kept));
  assert.equal(second.registry.importPages('t', 'kept', memoryOnly, same), imported);
  assert.deepEqual(
    await second.registry.openFile(OTHER_FUNCTION, 'file', false, requester, contentsOf),
    contentsOf(file),
  );
  assertRefused(() => second.registry.importPages('t', 'gone', memoryOnly, same), 'not-found');
  assert.equal(second.memory.held.size, 5);
  assert.equal(second.registry.stats().diskBytes, first.registry.stats().diskBytes);
});

test('a snapshot of another model is refused with the names of both models, and can be removed', async (t) => {
  const directory = temporaryDirectory(t);
  const first = new Life(directory);
  await first.registry.exportPages('t', 'a', snapshotOf(1, 1), true, memoryOnly);
  await first.registry.exportPages('t', 'b', snapshotOf(2, 1), true, memoryOnly);
  await first.registry.saveFile(MAKER, 'f', snapshotOf(3, 1), { persistent: true, rights: 'readable' }, memoryOnly);

  const { registry } = new Life(directory, 1);
  const namesBoth = /"a" was made by another model: by stories \(onnx.*fingerprint aaaaaaaaaaaa.*this is minimind/;
  assertRefused(() => registry.importPages('t', 'a', memoryOnly, same), 'invalid-argument', namesBoth);
  assertRefused(() => registry.openFile(MAKER, 'f', false, memoryOnly, same), 'invalid-argument', /stories.*minimind/);
  assert.deepEqual(registry.listExports('t'), []);
  assert.deepEqual(registry.listFiles(MAKER, ''), []);
  assertRefused(
    () => registry.exportPages('t', 'a', snapshotOf(4, 1), true, memoryOnly),
    'invalid-argument',
    /remove it first/,
  );
  assertRefused(
    () => registry.saveFile(MAKER, 'f', snapshotOf(4, 1), { persistent: true, rights: 'private' }, memoryOnly),
    'invalid-argument',
  );
  assertRefused(() => registry.removeFile(OTHER_FUNCTION, 'f'), 'unsupported');
  registry.unexport('t', 'b');
  registry.removeFile(MAKER, 'f');
  await registry.exportPages('t', 'b', snapshotOf(5, 1), true, memoryOnly);

  const again = new Life(directory);
  assert.deepEqual(
    again.registry.listExports('t').map(({ name }) => name),
    ['a'],
  );
  assertRefused(
    () => again.registry.importPages('t', 'b', memoryOnly, same),
    'invalid-argument',
    /by minimind.*this is stories/,
  );
});

test("a caller's rights to a file depend on the function that its inferlet runs", () => {
  const { registry } = new Life(undefined);
  const save = (name: string, rights: 'private' | 'readable' | 'writable') =>
    registry.saveFile(MAKER, name, snapshotOf(1, 1), { persistent: false, rights }, memoryOnly);
  save('private', 'private');
  save('readable', 'readable');
  save('writable', 'writable');
  const long = { ...MAKER, functionName: 'f'.repeat(257) };
  const options = { persistent: false, rights: 'private' } as const;
  assertRefused(() => registry.saveFile(long, 'x', snapshotOf(1, 1), options, memoryOnly), 'invalid-argument', /256/);
  registry.saveFile(OPERATOR, 'system/prompt', snapshotOf(2, 1), { persistent: false, rights: 'private' }, memoryOnly);

  const open = (caller: Caller, name: string, write: boolean) =>
    registry.openFile(caller, name, write, memoryOnly, same);
  for (const name of ['private', 'readable', 'writable']) {
    open(SAME_FUNCTION, name, true);
    registry.unlockFile(SAME_FUNCTION, name);
    assertRefused(() => open(STRANGER, name, false), 'not-found');
  }
  assertRefused(() => open(OTHER_FUNCTION, 'private', false), 'unsupported', /private to the function "maker"/);
  open(OTHER_FUNCTION, 'readable', false);
  assertRefused(() => open(OTHER_FUNCTION, 'readable', true), 'unsupported');
  assertRefused(() => registry.removeFile(OTHER_FUNCTION, 'readable'), 'unsupported');
  open(OTHER_FUNCTION, 'writable', true);
  registry.saveFile(
    OTHER_FUNCTION,
    'writable',
    snapshotOf(3, 2),
    { persistent: false, rights: 'writable' },
    memoryOnly,
  );
  assertRefused(
    () =>
      registry.saveFile(
        OTHER_FUNCTION,
        'writable',
        snapshotOf(3, 2),
        { persistent: false, rights: 'private' },
        memoryOnly,
      ),
    'unsupported',
    /may change the rights/,
  );
  open(STRANGER, 'system/prompt', false);
  assertRefused(() => open(STRANGER, 'system/prompt', true), 'unsupported', /operators/);
  assertRefused(
    () =>
      registry.saveFile(STRANGER, 'system/x', snapshotOf(1, 1), { persistent: false, rights: 'private' }, memoryOnly),
    'unsupported',
  );
  assertRefused(() => registry.removeFile(STRANGER, 'system/prompt'), 'unsupported');

  const listed = (caller: Caller, prefix = '') => registry.listFiles(caller, prefix).map(({ name }) => name);
  assert.deepEqual(listed(MAKER), ['private', 'readable', 'system/prompt', 'writable']);
  assert.deepEqual(listed(OTHER_FUNCTION), ['readable', 'system/prompt', 'writable']);
  assert.deepEqual(listed(STRANGER), ['system/prompt']);
  assert.deepEqual(listed(MAKER, 'w'), ['writable']);
  const writable = registry.listFiles(MAKER, 'writable')[0];
  assert.deepEqual(
    { owner: writable?.owner, rights: writable?.rights, locked: writable?.locked },
    { owner: 'maker', rights: 'writable', locked: true },
  );
});

test('a lock is held by one inferlet until it releases the lock or ends', () => {
  const { memory, registry } = new Life(undefined);
  const options = { persistent: false, rights: 'writable' } as const;
  registry.saveFile(MAKER, 'f', snapshotOf(1, 1), options, memoryOnly);
  assertRefused(() => registry.saveFile(MAKER, 'f', snapshotOf(2, 1), options, memoryOnly), 'invalid-argument', /lock/);
  registry.openFile(MAKER, 'f', true, memoryOnly, same);
  assertRefused(() => registry.openFile(SAME_FUNCTION, 'f', true, memoryOnly, same), 'unavailable', /locked/);
  assertRefused(() => registry.removeFile(SAME_FUNCTION, 'f'), 'unavailable');
  registry.openFile(SAME_FUNCTION, 'f', false, memoryOnly, same);
  registry.unlockFile(SAME_FUNCTION, 'f');
  const second = snapshotOf(2, 2);
  registry.saveFile(MAKER, 'f', second, options, memoryOnly);
  assert.equal(registry.openFile(SAME_FUNCTION, 'f', false, memoryOnly, same), second);
  assert.equal(memory.held.size, 2);
  registry.releaseInferlet(MAKER.inferlet);
  registry.openFile(SAME_FUNCTION, 'f', true, memoryOnly, same);
  registry.releaseInferlet(MAKER.inferlet);
  assertRefused(() => registry.openFile(MAKER, 'f', true, memoryOnly, same), 'unavailable');
  registry.unlockFile(SAME_FUNCTION, 'f');
  registry.openFile(MAKER, 'f', true, memoryOnly, same);
  registry.releaseInferlet(SAME_FUNCTION.inferlet);
  assertRefused(() => registry.openFile(SAME_FUNCTION, 'f', true, memoryOnly, same), 'unavailable');
  registry.unlockFile(MAKER, 'f');
  registry.unlockFile(SAME_FUNCTION, 'f');
  registry.unlockFile(SAME_FUNCTION, 'nothing');
  registry.openFile(OTHER_FUNCTION, 'f', true, memoryOnly, same);
  registry.removeFile(OTHER_FUNCTION, 'f');
  registry.releaseInferlet(OTHER_FUNCTION.inferlet);
  assert.equal(memory.held.size, 0);
});

test('saving a version that is not persistent removes the version on disk', async (t) => {
  const directory = temporaryDirectory(t);
  const { registry } = new Life(directory);
  await registry.saveFile(MAKER, 'f', snapshotOf(1, 1), { persistent: true, rights: 'private' }, memoryOnly);
  registry.openFile(MAKER, 'f', true, memoryOnly, same);
  registry.saveFile(MAKER, 'f', snapshotOf(2, 1), { persistent: false, rights: 'private' }, memoryOnly);
  assert.equal(registry.stats().diskBytes, 0);
  assertRefused(() => new Life(directory).registry.openFile(MAKER, 'f', false, memoryOnly, same), 'not-found');
});

test('a call past any limit is refused before anything changes', async (t) => {
  const directory = temporaryDirectory(t);
  const limits = {
    maxTenantPages: 6,
    maxTenantEntries: 3,
    maxSnapshotPages: 4,
    maxDiskBytes: 1000,
    maxSavingBytes: 800,
  };
  const { memory, registry } = new Life(directory, 0, limits);
  const exportNew = (tenant: string, name: string, pages: number, persistent = false) =>
    registry.exportPages(tenant, name, snapshotOf(pages, pages), persistent, memoryOnly);
  assertRefused(() => exportNew('t', 'a', 5), 'limit-exceeded', /at most 4/);
  exportNew('t', 'a', 4);
  assertRefused(() => exportNew('t', 'b', 3), 'limit-exceeded', /would hold 7 pages; it may hold 6/);
  exportNew('t', 'b', 0);
  registry.saveFile(MAKER, 'c', snapshotOf(1, 1), { persistent: false, rights: 'private' }, memoryOnly);
  assertRefused(() => exportNew('t', 'd', 0), 'limit-exceeded', /exports and files/);
  registry.openFile(MAKER, 'c', true, memoryOnly, same);
  assertRefused(
    () => registry.saveFile(MAKER, 'c', snapshotOf(1, 3), { persistent: false, rights: 'private' }, memoryOnly),
    'limit-exceeded',
  );
  registry.saveFile(MAKER, 'c', snapshotOf(1, 2), { persistent: false, rights: 'private' }, memoryOnly);

  // A page takes 80 bytes of a file, and the rest without the header's JSON also takes 80: this save counts 400 of the 800 bytes.
  const saving = exportNew('u', 'a', 4, true);
  assertRefused(() => exportNew('v', 'a', 3, true), 'unavailable', /0 bytes of the tenant .* 200 is its share/);
  await exportNew('v', 'b', 1, true);
  registry.unexport('v', 'b');
  await saving;
  assertRefused(() => exportNew('v', 'a', 4, true), 'limit-exceeded', /on disk/);
  registry.unexport('u', 'a');
  await exportNew('v', 'a', 4, true);
  assertRefused(
    () => new Life(undefined).registry.exportPages('t', 'a', snapshotOf(1, 1), true, memoryOnly),
    'unsupported',
    /without a directory/,
  );
  assert.equal(memory.held.size, 10, 'four and two pages of tenant t, and four of tenant v');
  assertRefused(
    () =>
      new Life(directory, 0, { maxSavingBytes: 100 }).registry.exportPages(
        't',
        'z',
        snapshotOf(1, 2),
        true,
        memoryOnly,
      ),
    'limit-exceeded',
  );
});

test('to make room, memory drops pages that are also on disk, least recently used first', async (t) => {
  const { memory, registry, requester } = new Life(temporaryDirectory(t), 0, { maxMemoryPages: 8 });
  const [a, b] = [snapshotOf(1, 2), snapshotOf(2, 2)];
  const [contentsOfA, contentsOfB] = [contentsOf(a), contentsOf(b)];
  await registry.exportPages('t', 'a', a, true, memoryOnly);
  await registry.exportPages('t', 'b', b, true, memoryOnly);
  registry.importPages('t', 'a', memoryOnly, same);
  for (const name of ['c', 'd']) registry.exportPages('u', name, snapshotOf(3, 2), false, memoryOnly);
  registry.exportPages('v', 'e', snapshotOf(4, 2), false, memoryOnly);
  assert.equal(memory.held.size, 8);
  assert.equal(registry.importPages('t', 'a', memoryOnly, same), a);
  assert.deepEqual(await registry.importPages('t', 'b', requester, contentsOf), contentsOfB);
  assert.equal(memory.held.size, 8);
  registry.exportPages('w', 'f', snapshotOf(5, 1), false, memoryOnly);
  assert.equal(memory.held.size, 7);
  await assertRejected(registry.importPages('t', 'a', memoryOnly, same), 'unavailable', /8 pages in memory/);
  assert.equal(registry.stats().memoryPages, 7);
  registry.unexport('u', 'c');
  assert.deepEqual(await registry.importPages('t', 'a', requester, contentsOf), contentsOfA);
});

test('to make room for a large snapshot, the registry checks each lease once, and drops entries with a lease last', async (t) => {
  const { registry } = new Life(temporaryDirectory(t), 0, { maxMemoryPages: 32 });
  let checks = 0;
  // The second lease has no time left. Its clock counts how often the registry checks the lease.
  const [lasting, ended] = [new Lease(1, () => 0), new Lease(0, () => ++checks)];
  const names = Array.from({ length: 16 }, (_, i) => `e${i}`);
  for (const [i, name] of names.entries()) {
    await registry.exportPages('t', name, snapshotOf(i, 2), true, memoryOnly);
    registry.controlExport('t', name).lease = i === 0 ? lasting : ended;
  }
  checks = 0;
  // Takes the room of eight entries of two pages each.
  registry.exportPages('u', 'large', snapshotOf(16, 16), false, memoryOnly);
  assert.equal(registry.stats().memoryPages, 32);
  const dropped = names.filter((name) => registry.controlExport('t', name).snapshot === undefined);
  assert.deepEqual(dropped, names.slice(1, 9), 'the oldest entry stays because its lease lasts');
  assert.ok(checks <= names.length, `${checks} checks of ${names.length} entries`);
});

test('a tenant may take half of the disk space that other tenants leave, its saves under way included', async (t) => {
  const directory = temporaryDirectory(t);
  // A file of four pages counts 400 bytes while it is being saved. Once it is written, the bytes of its header's JSON count, too.
  const limits = { maxDiskBytes: 4000, maxSavingBytes: 8000 };
  const { registry } = new Life(directory, 0, limits);
  const save = (tenant: string, name: string, life = registry) =>
    life.exportPages(tenant, name, snapshotOf(4, 4), true, memoryOnly);
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

test('a tenant may keep half of the memory that other tenants leave, so that there is room for the next tenant', async (t) => {
  const { memory, registry } = new Life(temporaryDirectory(t), 0, { maxMemoryPages: 16 });
  const keep = (tenant: string, name: string, pages: number, persistent = false) =>
    registry.exportPages(tenant, name, snapshotOf(pages, pages), persistent, memoryOnly);
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
  // A save of new content gives back the pages of the file's former content.
  const save = () =>
    registry.saveFile(MAKER, 'f', snapshotOf(1, 1), { persistent: false, rights: 'private' }, memoryOnly);
  save();
  registry.openFile(MAKER, 'f', true, memoryOnly, same);
  assertRefused(() => keep('t', 'd', 1), 'unavailable', /may hold 4, and it holds 4/);
  registry.unexport('t', 'b');
  keep('t', 'd', 3);
  save();
  assertRefused(() => keep('t', 'e', 1), 'unavailable');
});

test('a name whose save fails keeps its former version, and the caller of the save gets the error', async (t) => {
  const directory = temporaryDirectory(t);
  const { memory, registry } = new Life(directory);
  const tenantPath = join(directory, directoryNameOf('t'));
  // Saves fail while a file has the place of the tenant's directory.
  writeFileSync(tenantPath, '');
  await assertRejected(
    registry.exportPages('t', 'a', snapshotOf(1, 1), true, memoryOnly),
    'internal',
    /^"a" could not be saved: E[A-Z]+: [^/]+, [a-z]+$/,
  );
  assertRefused(() => registry.importPages('t', 'a', memoryOnly, same), 'not-found');
  assert.equal(memory.held.size, 0);
  rmSync(tenantPath);

  const options = { persistent: true, rights: 'private' } as const;
  const first = snapshotOf(1, 1);
  await registry.saveFile(MAKER, 'f', first, options, memoryOnly);
  registry.openFile(MAKER, 'f', true, memoryOnly, same);
  renameSync(tenantPath, `${tenantPath}-away`);
  writeFileSync(tenantPath, '');
  const second = snapshotOf(2, 2);
  const saving = registry.saveFile(MAKER, 'f', second, options, memoryOnly);
  assert.equal(registry.openFile(MAKER, 'f', false, memoryOnly, same), second);
  await assertRejected(saving, 'internal', /"f" could not be saved/);
  assert.equal(registry.openFile(MAKER, 'f', false, memoryOnly, same), first);
  assert.equal(memory.held.size, 1);
  rmSync(tenantPath);
  renameSync(`${tenantPath}-away`, tenantPath);
  assert.equal(registry.listFiles(MAKER, '')[0]?.locked, true);
  await registry.saveFile(MAKER, 'f', second, options, memoryOnly);
  const { requester, registry: restarted } = new Life(directory);
  assert.deepEqual(await restarted.openFile(MAKER, 'f', false, requester, contentsOf), contentsOf(second));
});

test('an export that is removed while it is being saved never comes back', async (t) => {
  const directory = temporaryDirectory(t);
  const { memory, registry } = new Life(directory);
  const saving = registry.exportPages('t', 'a', snapshotOf(1, 2), true, memoryOnly);
  registry.unexport('t', 'a');
  assert.equal(memory.held.size, 0);
  await assertRejected(saving, 'cancelled', /was removed while it was being saved/);
  assert.deepEqual(readdirSync(join(directory, directoryNameOf('t'))), []);
});
