import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { fault } from '../fault.ts';
import { directoryNameOf, fileNameOf } from './names.ts';
import type { Caller } from './rights.ts';
import type { Requester } from './snapshot.ts';
import { contentsOf, PAGE_BYTES, snapshotOf, TestRequester, type TestSnapshot } from './testing/page-memory.ts';
import { assertRefused, assertRejected, Life, memoryOnly, same, temporaryDirectory } from './testing/registries.ts';

const MAKER: Caller = { tenant: 't', inferlet: 'one', functionName: 'maker' };
const SAME_FUNCTION: Caller = { ...MAKER, inferlet: 'two' };

test('a call that wants the pages of a damaged file fails with that damage, and the name can be removed', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 2), true, memoryOnly);
  const path = join(directory, directoryNameOf('t'), fileNameOf('export', 'a'));
  const bytes = readFileSync(path);
  bytes[bytes.length - 1] = (bytes[bytes.length - 1] as number) ^ 1;
  writeFileSync(path, bytes);
  const { memory, registry, requester } = new Life(directory);
  assert.equal(registry.listExports('t').length, 1);
  const load = () => registry.importPages('t', 'a', requester, same);
  await assertRejected(load(), 'internal', /"a" is damaged on disk.*page 1/);
  rmSync(path);
  await assertRejected(load(), 'internal', /^"a" cannot be read from disk: ENOENT: no such file or directory, open$/);
  assert.equal(memory.held.size, 0);
  registry.unexport('t', 'a');

  writeFileSync(path, bytes.subarray(0, 10));
  const later = new Life(directory);
  assert.deepEqual(later.registry.listExports('t'), []);
  assertRefused(() => later.registry.importPages('t', 'a', memoryOnly, same), 'internal', /damaged on disk/);
  assertRefused(
    () => later.registry.exportPages('t', 'a', snapshotOf(1, 1), false, memoryOnly),
    'invalid-argument',
    /remove it first/,
  );
  later.registry.unexport('t', 'a');
  assert.equal(existsSync(path), false);
  assert.equal(later.registry.stats().diskBytes, 0);
});

test('imports of one file at once read it once, and none sees a part of it', async (t) => {
  const directory = temporaryDirectory(t);
  const kept = snapshotOf(1, 5);
  await new Life(directory).registry.exportPages('t', 'a', kept, true, memoryOnly);
  const { memory, registry, requester } = new Life(directory, 0, { bufferBytes: 2 * PAGE_BYTES });
  const other = new TestRequester(memory, 'u');
  const imports = [requester, other, requester].map((by) => registry.importPages('t', 'a', by, same));
  const [first, ...others] = await Promise.all(imports);
  for (const each of others) assert.equal(each, first);
  assert.deepEqual(contentsOf(first as TestSnapshot), contentsOf(kept));
  assert.deepEqual([requester.restores, other.restores, memory.held.size], [1, 0, 5]);
});

test('an import whose inferlet ends gives its pages back, and the next import begins again', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 3), true, memoryOnly);
  const { memory, registry, requester } = new Life(directory);
  const ending = registry.importPages('t', 'a', requester, same);
  const other = new TestRequester(memory);
  const next = registry.importPages('t', 'a', other, contentsOf);
  while (memory.held.size === 0) await setImmediate();
  requester.end();
  assert.equal(memory.held.size, 0);
  await assertRejected(ending, 'cancelled');
  assert.deepEqual(await next, contentsOf(snapshotOf(1, 3)));
  assert.deepEqual([other.restores, memory.held.size], [1, 3]);
});

test('an import that waits for others ends at once with its inferlet', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 3), true, memoryOnly);
  const { memory, registry, requester } = new Life(directory);
  const first = registry.importPages('t', 'a', requester, contentsOf);
  const ending = new TestRequester(memory);
  const waiting = Array.from({ length: 3 }, () => registry.importPages('t', 'a', ending, same));
  let isDone = false;
  void Promise.resolve(first).then(() => {
    isDone = true;
  });
  ending.end();
  for (const each of waiting) await assertRejected(each, 'cancelled');
  assert.deepEqual([isDone, ending.restores], [false, 0]);
  assert.deepEqual(await first, contentsOf(snapshotOf(1, 3)));
});

test('tenants that want files of the system take turns, however many one of them asks for', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('system', 'system/a', snapshotOf(1, 3), true, memoryOnly);
  const { memory, registry } = new Life(directory);
  let refused = 0;
  const greedy: Requester<TestSnapshot> = {
    ...memoryOnly,
    restore: () => {
      refused++;
      throw fault('limit-exceeded', 'the inferlet may hold no page');
    },
  };
  const asked = Array.from({ length: 50 }, () => registry.importPages('t', 'system/a', greedy, same));
  // The greedy tenant's imports that come after the other tenant's import find the content in memory, and succeed.
  const settled = Promise.allSettled(asked);
  const other = new TestRequester(memory, 'u');
  assert.deepEqual(await registry.importPages('u', 'system/a', other, contentsOf), contentsOf(snapshotOf(1, 3)));
  assert.ok(refused <= 2, `${refused} imports of the greedy tenant went first`);
  await settled;
});

test('a file that another inferlet locks while it comes from disk is not opened for writing', async (t) => {
  const directory = temporaryDirectory(t);
  const save = { persistent: true, rights: 'private' } as const;
  await new Life(directory).registry.saveFile(MAKER, 'f', snapshotOf(1, 2), save, memoryOnly);
  const { registry, requester } = new Life(directory);
  const [mine, theirs] = [MAKER, SAME_FUNCTION].map((caller) => registry.openFile(caller, 'f', true, requester, same));
  await mine;
  await assertRejected(theirs, 'unavailable', /locked/);
  registry.unlockFile(MAKER, 'f');
  registry.openFile(SAME_FUNCTION, 'f', true, memoryOnly, same);
});

test('a file that is saved anew while it comes from disk shows the new content', async (t) => {
  const { memory, registry, requester } = new Life(temporaryDirectory(t), 0, { maxMemoryPages: 4 });
  const [persistent, volatile] = [true, false].map((each) => ({ persistent: each, rights: 'private' }) as const);
  await registry.saveFile(MAKER, 'f', snapshotOf(1, 2), persistent, memoryOnly);
  registry.openFile(MAKER, 'f', true, memoryOnly, same);
  // Drive the file out of memory.
  for (const tenant of ['u', 'v']) await registry.exportPages(tenant, 'crowd', snapshotOf(2, 2), true, memoryOnly);
  const opened = registry.openFile(MAKER, 'f', false, requester, same);
  while (requester.restores === 0) await setImmediate();
  const newer = snapshotOf(3, 1);
  registry.saveFile(MAKER, 'f', newer, volatile, memoryOnly);
  assert.equal(await opened, newer);
  registry.removeFile(MAKER, 'f');
  for (const tenant of ['u', 'v']) registry.unexport(tenant, 'crowd');
  assert.equal(memory.held.size, 0);
});

test('a save that fails gives the name back to an earlier save that is under way', async (t) => {
  const directory = temporaryDirectory(t);
  const { memory, registry, requester } = new Life(directory);
  const save = { persistent: true, rights: 'private' } as const;
  const [first, second] = [snapshotOf(1, 2), snapshotOf(2, 1)];
  let goOn: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const slow: Requester<TestSnapshot> = { ...memoryOnly, between: (next) => gate.then(() => requester.between(next)) };
  const earlier = registry.saveFile(MAKER, 'f', first, save, slow);
  registry.openFile(MAKER, 'f', true, memoryOnly, same);
  const later = registry.saveFile(MAKER, 'f', second, save, requester);
  memory.failingReads = 1;
  assert.equal(memory.held.size, 3);
  await assertRejected(later, 'internal', /"f" could not be saved/);
  assert.equal(registry.openFile(MAKER, 'f', false, memoryOnly, same), first);
  goOn();
  await earlier;
  assert.equal(memory.held.size, 2);
  const restarted = new Life(directory);
  assert.deepEqual(
    await restarted.registry.openFile(MAKER, 'f', false, restarted.requester, contentsOf),
    contentsOf(first),
  );
});

test('a file in the place of another name is refused', async (t) => {
  const directory = temporaryDirectory(t);
  const { registry } = new Life(directory);
  await registry.exportPages('t', 'a', snapshotOf(1, 1), true, memoryOnly);
  await registry.exportPages('u', 'a', snapshotOf(2, 1), true, memoryOnly);
  const path = (tenant: string) => join(directory, directoryNameOf(tenant), fileNameOf('export', 'a'));
  writeFileSync(path('t'), readFileSync(path('u')));
  const later = new Life(directory).registry;
  assertRefused(() => later.importPages('t', 'a', memoryOnly, same), 'internal', /has the place of another name/);
});

test('a bug in a restore is not taken for a disk error, and keeps the entry', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 1), true, memoryOnly);
  const { registry, requester } = new Life(directory);
  const buggy: Requester<TestSnapshot> = {
    ...memoryOnly,
    restore() {
      throw new TypeError('a bug');
    },
  };
  await assert.rejects(async () => registry.importPages('t', 'a', buggy, same), TypeError);
  await registry.importPages('t', 'a', requester, same);
});

test('files that a dead process left half written are cleared away', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 1), true, memoryOnly);
  const tenant = join(directory, directoryNameOf('t'));
  // Process ids: above every possible one, this process's own (from before a restart), and a live one.
  for (const pid of [2 ** 30, process.pid, process.ppid]) writeFileSync(join(tenant, `tmp-${pid}-half`), 'PIEKV');
  const { registry } = new Life(directory);
  assert.deepEqual(readdirSync(tenant).sort(), [fileNameOf('export', 'a'), `tmp-${process.ppid}-half`].sort());
  assert.equal(registry.listExports('t').length, 1);
});
