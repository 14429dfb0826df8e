import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { fault } from '../fault.ts';
import { type Caller, directoryNameOf, fileNameOf } from './entry.ts';
import type { Requester } from './stored.ts';
import { contentsOf, PAGE_BYTES, snapshotOf, TestRequester, type TestSnapshot } from './testing/page-memory.ts';
import { assertRefused, assertRejected, Life, memoryOnly, same, temporaryDirectory } from './testing/registries.ts';

const MAKER: Caller = { tenant: 't', inferlet: 'one', functionName: 'maker' };
const SAME_FUNCTION: Caller = { ...MAKER, inferlet: 'two' };

test('a call that needs the pages of a damaged file fails and names the damage, and the name can be removed', async (t) => {
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
  const restarted = new Life(directory);
  assert.deepEqual(restarted.registry.listExports('t'), []);
  assertRefused(() => restarted.registry.importPages('t', 'a', memoryOnly, same), 'internal', /damaged on disk/);
  assertRefused(
    () => restarted.registry.exportPages('t', 'a', snapshotOf(1, 1), false, memoryOnly),
    'invalid-argument',
    /remove it first/,
  );
  restarted.registry.unexport('t', 'a');
  assert.equal(existsSync(path), false);
  assert.equal(restarted.registry.stats().diskBytes, 0);
});

test('concurrent imports of one file read the file once, and all get its whole content', async (t) => {
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

test('an import whose inferlet ends frees its pages, and the next import reads the file from the start', async (t) => {
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

test('an import that waits for another import fails as soon as its inferlet ends', async (t) => {
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

test('tenants that import names under system/ take turns, however many imports one tenant has', async (t) => {
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

test('opening a file for writing fails when another inferlet locks the file while its pages come from disk', async (t) => {
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

test('an inferlet that opens a file gets its new content when the file is saved anew while its pages come from disk', async (t) => {
  const { memory, registry, requester } = new Life(temporaryDirectory(t), 0, { maxMemoryPages: 4 });
  const persistent = { persistent: true, rights: 'private' } as const;
  const volatile = { persistent: false, rights: 'private' } as const;
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

test('when a save fails, the name returns to the content of an earlier save that is still under way', async (t) => {
  const directory = temporaryDirectory(t);
  const { memory, registry, requester } = new Life(directory);
  const save = { persistent: true, rights: 'private' } as const;
  const [first, second] = [snapshotOf(1, 2), snapshotOf(2, 1)];
  let openGate: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => {
    openGate = resolve;
  });
  const slow: Requester<TestSnapshot> = { ...memoryOnly, between: (next) => gate.then(() => requester.between(next)) };
  const earlier = registry.saveFile(MAKER, 'f', first, save, slow);
  registry.openFile(MAKER, 'f', true, memoryOnly, same);
  const later = registry.saveFile(MAKER, 'f', second, save, requester);
  memory.failingReads = 1;
  assert.equal(memory.held.size, 3);
  await assertRejected(later, 'internal', /"f" could not be saved/);
  assert.equal(registry.openFile(MAKER, 'f', false, memoryOnly, same), first);
  openGate();
  await earlier;
  assert.equal(memory.held.size, 2);
  const restarted = new Life(directory);
  assert.deepEqual(
    await restarted.registry.openFile(MAKER, 'f', false, restarted.requester, contentsOf),
    contentsOf(first),
  );
});

test("a file in the place of another entry's file is refused", async (t) => {
  const directory = temporaryDirectory(t);
  const { registry } = new Life(directory);
  await registry.exportPages('t', 'a', snapshotOf(1, 1), true, memoryOnly);
  await registry.exportPages('u', 'a', snapshotOf(2, 1), true, memoryOnly);
  const path = (tenant: string) => join(directory, directoryNameOf(tenant), fileNameOf('export', 'a'));
  writeFileSync(path('t'), readFileSync(path('u')));
  const restarted = new Life(directory).registry;
  assertRefused(() => restarted.importPages('t', 'a', memoryOnly, same), 'internal', /has the place of another name/);
});

test('a bug in a restore is not reported as a disk error, and the entry stays', async (t) => {
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

test('a restart removes files that a dead process left half written', async (t) => {
  const directory = temporaryDirectory(t);
  await new Life(directory).registry.exportPages('t', 'a', snapshotOf(1, 1), true, memoryOnly);
  const tenantDirectory = join(directory, directoryNameOf('t'));
  // An id that no process can have, this process's id (left from before a restart), and the id of another live process.
  const pids = [2 ** 30, process.pid, process.ppid];
  for (const pid of pids) writeFileSync(join(tenantDirectory, `tmp-${pid}-half`), 'PIEKV');
  const { registry } = new Life(directory);
  const expectedFiles = [fileNameOf('export', 'a'), `tmp-${process.ppid}-half`];
  assert.deepEqual(readdirSync(tenantDirectory).sort(), expectedFiles.sort());
  assert.equal(registry.listExports('t').length, 1);
});
