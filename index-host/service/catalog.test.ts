import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Index } from 'usearch';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { randomFrom, randomVector } from '#test/harness/random.ts';
import { CROWDED_TAILS, once, SIZES } from '../engine/sizes.ts';
import type { VectorIndex } from '../engine/vector-index.ts';
import { IndexError, type IndexStats, type Metric } from '../protocol/types.ts';
import { temporaryFolder } from '../testing/folder.ts';
import { answer } from './calls.ts';
import { Catalog, LIMITS, type Limits } from './catalog.ts';
import { Turns } from './turns.ts';

const DIMENSIONS = 4;
const SIGNAL = new AbortController().signal;
const MIB = 2 ** 20;

/** Opens a catalog, with functions that make calls of the tenant `one`; `log` collects the catalog's log. */
function catalogIn(
  directory: string,
  limits: Partial<Limits> = {},
  turns = new Turns(),
  now: (() => number) | undefined = undefined,
) {
  const log = new CollectedLog();
  const catalog = new Catalog(directory, turns, { ...LIMITS, ...limits }, log, now);
  const random = randomFrom(1);
  return {
    catalog,
    log,
    create: (name: string, metric: Metric = 'cosine') =>
      answer(catalog, 'one', { op: 'create', name, dimensions: DIMENSIONS, metric }, NONE, SIGNAL),
    upsert(name: string, ids: readonly string[], signal = SIGNAL) {
      const vectors = Float32Array.from(ids.flatMap(() => [...randomVector(DIMENSIONS, random)]));
      const entries = ids.map((id) => ({ id, text: null, metadata: [] }));
      return answer(catalog, 'one', { op: 'upsert', name, entries }, vectors, signal);
    },
    list: async () => (await answer(catalog, 'one', { op: 'list' }, NONE, SIGNAL)) as IndexStats[],
    ask: <T>(name: string, work: (index: VectorIndex) => T): Promise<T> =>
      catalog.use('one', name, (index) => once(() => work(index))),
    async [Symbol.asyncDispose]() {
      await catalog.close();
    },
  };
}

const NONE = new Float32Array(0);

function filesOf(directory: string, name: string): string[] {
  const [tenant] = readdirSync(directory);
  const folder = path.join(directory, tenant!, name);
  return readdirSync(folder).map((file) => path.join(folder, file));
}

const ids = (from: number, count: number): string[] => Array.from({ length: count }, (_, i) => `e${from + i}`);

test('the graph stays small when a tenant that always has calls waiting replaces the same entries', async () => {
  using folder = temporaryFolder();
  await using one = catalogIn(folder.path);
  await one.create('notes');
  let peakBytes = 0;
  let calls = 0;
  const replace = async () => {
    while (calls < 40) {
      await one.upsert('notes', ids(250 * (calls++ % 4), 250));
      peakBytes = Math.max(peakBytes, await one.ask('notes', (index) => index.memoryBytes));
    }
  };
  await Promise.all([replace(), replace(), replace()]);
  assert.ok(peakBytes < 1.5 * MIB, `${peakBytes} bytes for 1000 vectors`);
  assert.deepEqual(one.log.errors, []);
});

test('an index that cannot be read is listed and can be dropped, and the others serve', async () => {
  using folder = temporaryFolder();
  {
    await using one = catalogIn(folder.path);
    for (const name of ['damaged', 'whole']) await one.create(name);
    await one.upsert('whole', ids(0, 10));
  }
  for (const file of filesOf(folder.path, 'damaged')) writeFileSync(file, 'no database'.repeat(1000));
  await using one = catalogIn(folder.path);
  assert.deepEqual(
    (await one.list()).map(({ name, isBroken }) => [name, isBroken]),
    [
      ['damaged', true],
      ['whole', undefined],
    ],
  );
  assert.equal(one.log.errors.length, 1);
  await assert.rejects(one.upsert('damaged', ids(0, 1)), { code: 'unavailable' });
  await assert.rejects(one.create('damaged'), { code: 'unavailable' });
  await one.upsert('whole', ids(10, 10));
  assert.equal(await one.catalog.drop('one', 'damaged', SIGNAL), true);
  await one.create('damaged');
  await one.upsert('damaged', ids(0, 1));
});

test('an index that cannot be read for a while serves afterwards, and the others serve meanwhile', async () => {
  using folder = temporaryFolder();
  {
    await using one = catalogIn(folder.path);
    for (const name of ['hidden', 'whole']) await one.create(name);
    await one.upsert('hidden', ids(0, 10));
  }
  const [records] = filesOf(folder.path, 'hidden').filter((file) => file.endsWith('records.db'));
  renameSync(records!, `${records}-kept`);
  mkdirSync(records!);
  await using one = catalogIn(folder.path);
  const listed = async () => (await one.list()).map(({ name, entries, isBroken }) => [name, entries, isBroken]);
  assert.deepEqual(await listed(), [
    ['hidden', 0, undefined],
    ['whole', 0, undefined],
  ]);
  const unreadableNow = { code: 'unavailable', message: /cannot be read now; try again/ };
  await assert.rejects(one.upsert('hidden', ids(0, 1)), unreadableNow);
  await assert.rejects(one.create('hidden'), unreadableNow);
  await one.upsert('whole', ids(0, 5));
  assert.equal(one.log.errors.length, 1);
  rmdirSync(records!);
  renameSync(`${records}-kept`, records!);
  await one.upsert('hidden', ids(10, 1));
  assert.deepEqual(await listed(), [
    ['hidden', 11, undefined],
    ['whole', 5, undefined],
  ]);
});

test('an index whose graph has the right length but is damaged opens, and gets a new graph', async () => {
  using folder = temporaryFolder();
  {
    await using one = catalogIn(folder.path);
    await one.create('notes');
    for (let at = 0; at < 1000; at += 250) await one.upsert('notes', ids(at, 250));
  }
  const [graph] = filesOf(folder.path, 'notes').filter((file) => file.endsWith('.usearch'));
  writeFileSync(graph!, Buffer.alloc(readFileSync(graph!).length, 0xff));
  await using one = catalogIn(folder.path);
  await one.upsert('notes', ids(1000, 1));
  const entries = await one.ask('notes', (index) => index.stats.entries);
  assert.equal(entries, 1001);
  while (await one.ask('notes', (index) => index.needsRebuild)) await new Promise(setImmediate);
  assert.deepEqual(one.log.errors, []);
});

test('never more indexes are open than the limit allows, and a call that fails for this limit can be repeated', async () => {
  using folder = temporaryFolder();
  await using one = catalogIn(folder.path, { open: 3 });
  const names = Array.from({ length: 10 }, (_, i) => `index-${i}`);
  for (const name of names) await one.create(name);
  let mostOpen = 0;
  const visit = (name: string) =>
    one.ask(name, () => {
      mostOpen = Math.max(mostOpen, one.catalog.openIndexes);
    });
  const outcomes = await Promise.allSettled(names.map(visit));
  for (const outcome of outcomes) {
    if (outcome.status === 'rejected') assert.equal(outcome.reason.code, 'unavailable');
  }
  assert.ok(mostOpen <= 3, `${mostOpen} open indexes`);
  for (const name of names) await visit(name);
  assert.deepEqual(one.log.errors, []);
});

test('open indexes count with their caches towards the limit of memory, and writes that enlarge one close others', async () => {
  using folder = temporaryFolder();
  await using one = catalogIn(folder.path, { openBytes: 4.3 * MIB });
  const names = ['a', 'b', 'c', 'd'];
  for (const name of names) {
    await one.create(name);
    await one.upsert(name, ids(0, 1));
  }
  // Each open index counts 2 MiB for its cache.
  assert.equal(one.catalog.openIndexes, 2);
  for (let at = 0; at < 3000; at += 250) await one.upsert('d', ids(at, 250));
  assert.equal(one.catalog.openIndexes, 1);
});

test('upserts that are cancelled before their entries are in the graph do not make the tail long', async () => {
  using folder = temporaryFolder();
  await using one = catalogIn(folder.path);
  await one.create('notes');
  let entries = 0;
  let longestTail = 0;
  for (let i = 0; i < 30; i++) {
    const before = entries;
    const withdrawn = new AbortController();
    const call = Promise.resolve(one.upsert('notes', ids(250 * i, 250), withdrawn.signal)).catch(() => null);
    // The first piece of an upsert stores its entries.
    while (entries === before) entries = await one.ask('notes', (index) => index.stats.entries);
    withdrawn.abort(new IndexError('cancelled', 'no longer needed'));
    await call;
    longestTail = Math.max(longestTail, await one.ask('notes', (index) => index.tailSize));
  }
  assert.equal(entries, 30 * 250);
  assert.ok(longestTail <= CROWDED_TAILS * SIZES.tail + 250, `a tail of ${longestTail}`);
  while ((await one.ask('notes', (index) => index.tailSize)) > SIZES.tail) await new Promise(setImmediate);
  assert.deepEqual(one.log.errors, []);
});

test("a tenant's call waits for few of the creations and drops of another tenant", async () => {
  using folder = temporaryFolder();
  // Each reading of this clock advances it by a millisecond, so that a stall of the machine is not charged to a tenant.
  let nowMs = 0;
  await using one = catalogIn(folder.path, {}, new Turns(() => nowMs++));
  await one.create('notes');
  const [ownFolder] = readdirSync(folder.path);
  const names = Array.from({ length: 40 }, (_, i) => `index-${i}`);
  await answer(one.catalog, 'flood', { op: 'list' }, NONE, SIGNAL);
  const floodFolder = readdirSync(folder.path).find((name) => name !== ownFolder)!;
  const floodIndexes = () =>
    readdirSync(path.join(folder.path, floodFolder)).filter((name) => names.includes(name)).length;
  const creations = names.map((name) =>
    answer(one.catalog, 'flood', { op: 'create', name, dimensions: 4, metric: 'cosine' }, NONE, SIGNAL),
  );
  await one.list();
  assert.ok(floodIndexes() < 10, `${floodIndexes()} creations`);
  await Promise.all(creations);
  const drops = names.map((name) => answer(one.catalog, 'flood', { op: 'drop', name }, NONE, SIGNAL));
  await one.list();
  assert.ok(floodIndexes() > 20, `${floodIndexes()} indexes left`);
  await Promise.all(drops);
  assert.equal(floodIndexes(), 0);
});

test('an index that is dropped amid its save causes no error', async () => {
  using folder = temporaryFolder();
  await using one = catalogIn(folder.path);
  // The number of turns of the event loop decides which part of the save the drop meets.
  for (let ticks = 0; ticks < 8; ticks++) {
    await one.create('notes');
    for (let at = 0; at < 1500; at += 250) await one.upsert('notes', ids(at, 250));
    for (let i = 0; i < ticks; i++) await new Promise(setImmediate);
    assert.equal(await one.catalog.drop('one', 'notes', SIGNAL), true);
  }
  assert.deepEqual(one.log.errors, []);
});

test('a catalog that closes amid the save of an index waits for it', async () => {
  using folder = temporaryFolder();
  // The number of turns of the event loop decides which part of the save the closing meets.
  for (let ticks = 0; ticks < 8; ticks++) {
    const name = `notes-${ticks}`;
    const one = catalogIn(folder.path);
    await one.create(name);
    for (let at = 0; at < 1500; at += 250) await one.upsert(name, ids(at, 250));
    for (let i = 0; i < ticks; i++) await new Promise(setImmediate);
    await one.catalog.close();
    assert.deepEqual(one.log.errors, []);
    const graphs = filesOf(folder.path, name).filter((file) => file.includes('graph-'));
    assert.equal(graphs.length, 1, graphs.join());
  }
});

test('a graph whose save failed is saved again after a minute, not at each call', { timeout: 240_000 }, async (t) => {
  using folder = temporaryFolder();
  let nowMs = 0;
  await using one = catalogIn(folder.path, {}, new Turns(), () => nowMs);
  await one.create('notes');
  const { mock } = t.mock.method(Index.prototype, 'save', (file: string) => {
    writeFileSync(file, 'a part');
    throw new Error('no space left on device');
  });
  for (let at = 0; at < 1500; at += 250) await one.upsert('notes', ids(at, 250));
  const needsSave = () => one.ask('notes', (index) => index.needsSave);
  while (one.log.errors.length === 0) await needsSave();
  for (let calls = 0; calls < 10; calls++) assert.equal(await needsSave(), true);
  assert.equal(mock.callCount(), 1);
  const graphs = () => filesOf(folder.path, 'notes').filter((file) => file.includes('graph-'));
  assert.deepEqual(graphs(), []);
  mock.restore();
  nowMs = 60_000;
  while (await needsSave()) await new Promise(setImmediate);
  assert.equal(one.log.errors.length, 1);
  assert.equal(graphs().length, 1);
});
