import assert from 'node:assert/strict';
import { cpSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileNameOf } from '../../memory/registry/entry.ts';
import type { DeviceClient, GpuHostConnection, Termination } from '../../protocol/client.ts';
import { BACKENDS } from '../../testing/backends.ts';
import { must, Oracle, range, startTestHost, type TestHost, tagOf } from '../../testing/host.ts';
import { ids, onOneBackend, PROMPT, same, Workbench } from '../../testing/workbench.ts';
import { nextTurn } from '../sharing/thread-share.ts';

/** Another inferlet, of the workbench's tenant by default. */
function neighbour(b: Workbench, tenant?: string): { inferlet: DeviceClient; queue: number } {
  const inferlet = b.connection.openInferlet({
    id: `beside ${tenant}`,
    maxPages: 40,
    arrival: 2,
    ...(tenant && { tenant }),
  });
  return { inferlet, queue: inferlet.createQueue('tiny') };
}

onOneBackend('exports', (handler) => {
  handler('a snapshot outlives its maker, and an import shows what was exported', async (b) => {
    const maker = neighbour(b);
    const pages = must(maker.inferlet.allocatePages(maker.queue, 2));
    const fill = (tokens: readonly number[], start: number) =>
      maker.inferlet.ask(maker.queue, {
        op: 'step',
        request: {
          tokens: Uint32Array.from(tokens),
          positions: range(start, start + tokens.length),
          inPages: pages,
          outPages: pages,
          mask: undefined,
          rows: 0,
          output: { tag: 'none' },
        },
      });
    void fill(PROMPT, 0);
    maker.inferlet.send(maker.queue, { op: 'mask-page', page: pages[0]!, slots: 0b10 });
    const exported = maker.inferlet.ask(maker.queue, {
      op: 'export-pages',
      pages,
      name: 'a/prompt',
      persistent: false,
    });
    void fill([90], PROMPT.length);
    maker.inferlet.send(maker.queue, { op: 'mask-page', page: pages[0]!, slots: 0 });
    must(await exported);
    const list = [
      { name: 'a/prompt', pages: 2, tokens: PROMPT.length, nextPosition: PROMPT.length, persistent: false },
    ];
    assert.deepEqual(must(await b.ask({ op: 'list-exports' })), list);
    await maker.inferlet.close();

    const imported = must(await b.inferlet.importPages(b.queue, 'a/prompt'));
    assert.equal(imported.tokens, PROMPT.length);
    assert.equal(imported.nextPosition, PROMPT.length);
    assert.equal(imported.pages.length, 2);
    const width = PROMPT.length + 1;
    const visible = Array.from({ length: width }, (_, i) =>
      Array.from({ length: width }, (_, j) => j <= i && !(i === width - 1 && j === 1)),
    );
    same(
      await b.probe(imported.pages, 7, PROMPT.length),
      await b.oracle.top([...PROMPT, 7], [...range(0, width)], 1, 5, visible),
      'without the later write, and with the mask',
    );
    must(await b.fill(imported.pages, [33], PROMPT.length));
    const again = must(await b.inferlet.importPages(b.queue, 'a/prompt'));
    assert.equal(again.tokens, PROMPT.length, 'a write to one import changes no other import');

    must(await b.ask({ op: 'unexport', name: 'a/prompt' }));
    assert.equal(tagOf(await b.inferlet.importPages(b.queue, 'a/prompt')), 'not-found');
    b.send({ op: 'mask-page', page: again.pages[0]!, slots: 0 });
    same(
      await b.probe(again.pages, 7, PROMPT.length),
      await b.oracle.top([...PROMPT, 7], [...range(0, width)], 1, 5),
      'an inferlet that imported it keeps its pages',
    );
  });

  handler('pages that are imported twice count once against the page limit of client and host', async (b) => {
    must(await b.ask({ op: 'export-pages', pages: b.pages(4), name: 'twice', persistent: false }));
    const inferlet = b.connection.openInferlet({ id: 'importer', maxPages: 6, arrival: 2 });
    const queue = inferlet.createQueue('tiny');
    for (let i = 0; i < 2; i++) must(await inferlet.importPages(queue, 'twice'));
    must(inferlet.allocatePages(queue, 2));
    must(await inferlet.synchronize(queue));
    assert.equal(inferlet.heldPages, 6);
    assert.equal(tagOf(inferlet.allocatePages(queue, 1)), 'limit-exceeded');
    await inferlet.close();
    must(await b.ask({ op: 'unexport', name: 'twice' }));
  });

  handler('each tenant has its own names, and a second export under a name is refused', async (b) => {
    const own = b.pages(1);
    must(await b.fill(own, [1, 2]));
    must(await b.ask({ op: 'export-pages', pages: own, name: 'n', persistent: false }));
    assert.equal(
      tagOf(await b.ask({ op: 'export-pages', pages: own, name: 'n', persistent: false })),
      'invalid-argument',
    );
    const stranger = neighbour(b, 'another tenant');
    assert.equal(tagOf(await stranger.inferlet.importPages(stranger.queue, 'n')), 'not-found');
    assert.equal(tagOf(await stranger.inferlet.ask(stranger.queue, { op: 'unexport', name: 'n' })), 'not-found');
    assert.deepEqual(must(await stranger.inferlet.ask(stranger.queue, { op: 'list-exports' })), []);
    const theirs = must(stranger.inferlet.allocatePages(stranger.queue, 1));
    must(
      await stranger.inferlet.ask(stranger.queue, { op: 'export-pages', pages: theirs, name: 'n', persistent: false }),
    );
    must(await stranger.inferlet.ask(stranger.queue, { op: 'unexport', name: 'n' }));
    await stranger.inferlet.close();
    must(await b.ask({ op: 'unexport', name: 'n' }));
  });

  handler('an invalid call fails with the tag of its cause', async (b) => {
    const own = b.pages(1);
    // A name is no path, so `../../etc` is an ordinary name.
    const refused: [Promise<Parameters<typeof tagOf>[0]>, string][] = [
      [b.ask({ op: 'export-pages', pages: own, name: '', persistent: false }), 'invalid-argument'],
      [b.ask({ op: 'export-pages', pages: own, name: '../../etc', persistent: false }), 'ok'],
      [b.ask({ op: 'export-pages', pages: own, name: 'a b', persistent: false }), 'invalid-argument'],
      [b.ask({ op: 'export-pages', pages: own, name: 'x'.repeat(129), persistent: false }), 'invalid-argument'],
      [b.ask({ op: 'export-pages', pages: ids(4000), name: 'x', persistent: false }), 'not-owned'],
      [b.ask({ op: 'export-pages', pages: own, name: 'x', persistent: true }), 'unsupported'],
      [b.inferlet.importPages(b.queue, 'nothing'), 'not-found'],
      [b.ask({ op: 'unexport', name: 'nothing' }), 'not-found'],
    ];
    for (const [outcome, tag] of refused) assert.equal(tagOf(await outcome), tag);
    must(await b.ask({ op: 'unexport', name: '../../etc' }));
    void b.fill(own, [1], 96);
    const failed = await b.ask({ op: 'export-pages', pages: own, name: 'x', persistent: false });
    assert.equal(tagOf(failed), 'dependency-failed', 'pages whose step failed cannot be exported');
  });
});

async function bench(host: TestHost, connection?: GpuHostConnection): Promise<Workbench> {
  return new Workbench(host, await Oracle.of(host.model), connection ?? (await host.connect()), 'x');
}

for (const backend of BACKENDS) {
  describe(`persistent exports (${backend})`, () => {
    test('an export is on disk when its call is answered, and its pages come back bit for bit', async () => {
      await using host = await startTestHost({ backend, kv: true });
      const b = await bench(host);
      const own = b.pages(3);
      must(await b.fill(own.subarray(0, 2), PROMPT));
      b.send({ op: 'mask-page', page: own[1]!, slots: 0b1 });
      const before = await b.probe(own, 7, PROMPT.length);
      const beside = b.inferlet.createQueue('tiny');
      const exported = b.ask({ op: 'export-pages', pages: own, name: 'kept', persistent: true });
      assert.equal(tagOf(await b.inferlet.synchronize(beside)), 'ok', 'other queues go on');
      must(await exported);
      const files = readdirSync(join(host.directory, 'kv'), { recursive: true }).map(String);
      assert.equal(files.filter((name) => name.endsWith('.kv')).length, 1);
      await host.restart();
      const after = await bench(host);
      const listed = must(await after.inferlet.ask(after.queue, { op: 'list-exports' }));
      assert.deepEqual(listed, [
        { name: 'kept', pages: 3, tokens: PROMPT.length, nextPosition: PROMPT.length, persistent: true },
      ]);
      const { pages } = must(await after.inferlet.importPages(after.queue, 'kept'));
      assert.deepEqual(await after.probe(pages, 7, PROMPT.length), before);
      must(await after.inferlet.ask(after.queue, { op: 'unexport', name: 'kept' }));
      await host.restart();
      const last = await bench(host);
      assert.equal(tagOf(await last.inferlet.importPages(last.queue, 'kept')), 'not-found');
    });

    test('an import of a file of another model or of a damaged file fails', async () => {
      await using host = await startTestHost({ backend, kv: true });
      await using other = await startTestHost({ backend, kv: true, seed: 2 });
      const b = await bench(host);
      const own = b.pages(2);
      must(await b.fill(own, PROMPT));
      const names = ['whole', 'cut', 'changed'];
      for (const name of names) must(await b.ask({ op: 'export-pages', pages: own, name, persistent: true }));
      await host.stop();
      const files = join(host.directory, 'kv');
      cpSync(files, join(other.directory, 'kv'), { recursive: true });
      await other.restart();
      const stranger = await bench(other);
      for (const name of names) {
        const outcome = await stranger.inferlet.importPages(stranger.queue, name);
        assert.equal(tagOf(outcome), 'invalid-argument');
        if (outcome.tag === 'err') assert.match(outcome.val.val, /made by/);
      }
      const [directory] = readdirSync(files);
      const pathOf = (name: string) => join(files, directory!, fileNameOf('export', name));
      truncateSync(pathOf('cut'), 400);
      const bytes = readFileSync(pathOf('changed'));
      // Change a byte of the last page, which the import reads only once it has frames.
      bytes[bytes.length - 1]! ^= 1;
      writeFileSync(pathOf('changed'), bytes);
      await host.restart();
      const again = await bench(host);
      const tags: string[] = [];
      for (const name of names) tags.push(tagOf(await again.inferlet.importPages(again.queue, name)));
      assert.deepEqual(tags, ['ok', 'internal', 'internal']);
      assert.equal(host.host.stats().models[0]!.pages.owned, 2, 'only the pages of the whole file');
      host.host.engines[0]!.memory.audit();
    });
  });
}

test('synchronize waits for a save in progress, and a save goes on when its inferlet closes', async () => {
  await using host = await startTestHost({ kv: true });
  const b = await bench(host);
  const own = b.pages(2);
  must(await b.fill(own, PROMPT));
  let saved = false;
  void b.ask({ op: 'export-pages', pages: own, name: 'one', persistent: true }).then(() => {
    saved = true;
  });
  must(await b.inferlet.synchronize(b.queue));
  assert.ok(saved);
  void b.ask({ op: 'export-pages', pages: own, name: 'two', persistent: true });
  must(await b.inferlet.synchronize(b.inferlet.createQueue('tiny')));
  await b.inferlet.close();
  const after = await bench(host);
  await host.restart();
  const last = await bench(host);
  assert.equal(tagOf(await after.inferlet.synchronize(after.queue)), 'unavailable');
  const listed = must(await last.inferlet.ask(last.queue, { op: 'list-exports' })).map(({ name }) => name);
  assert.deepEqual(listed, ['one', 'two']);
});

test('an import may end with its inferlet or with the host at any time, and other imports of the file go on', async () => {
  await using host = await startTestHost({ kv: true, pageCount: 128 });
  const b = await bench(host);
  const own = b.pages(20);
  must(await b.fill(own, PROMPT));
  must(await b.ask({ op: 'export-pages', pages: own, name: 'kept', persistent: true }));
  const before = await b.probe(own, 7, PROMPT.length);
  for (let turns = 0; turns < 12; turns++) {
    await host.restart();
    const after = await bench(host);
    const leaving = neighbour(after);
    const abandonedImport = leaving.inferlet.importPages(leaving.queue, 'kept');
    const staying = after.inferlet.importPages(after.queue, 'kept');
    for (let i = 0; i < turns; i++) await nextTurn();
    await leaving.inferlet.close();
    const { pages } = must(await staying);
    assert.deepEqual(await after.probe(pages, 7, PROMPT.length), before);
    await abandonedImport;
    await after.inferlet.close();
  }
  for (let turns = 0; turns < 12; turns++) {
    await host.restart();
    const after = await bench(host);
    const interrupted = after.inferlet.importPages(after.queue, 'kept');
    for (let i = 0; i < turns; i++) await nextTurn();
    await host.stop();
    assert.ok(['ok', 'unavailable'].includes(tagOf(await interrupted)));
  }
  await host.restart();
});

/** Counts the round trips to host and disk until an inferlet has imported pages from disk, while many imports of an ended inferlet wait. */
async function tripsOfAnImport(): Promise<number> {
  await using host = await startTestHost({ kv: true });
  const b = await bench(host);
  must(await b.ask({ op: 'export-pages', pages: b.pages(4), name: 'kept', persistent: true }));
  await host.restart();
  const after = await bench(host);
  const ended = after.connection.openInferlet({ id: 'z', maxPages: 3, arrival: 2 });
  const queue = ended.createQueue('tiny');
  for (let i = 0; i < 8000; i++) void ended.importPages(queue, 'kept');
  must(await ended.ask(queue, { op: 'list-exports' }));
  await ended.close();
  let isDone = false;
  const imported = after.inferlet.importPages(after.queue, 'kept').then((outcome) => {
    isDone = true;
    return outcome;
  });
  let roundTrips = 0;
  for (; !isDone; roundTrips++) {
    must(await after.inferlet.ask(after.queue, { op: 'list-exports' }));
    // A slow disk delays this access as much as the few accesses that the import needs, so a slow disk does not raise the count.
    await stat(host.directory);
  }
  must(await imported);
  return roundTrips;
}

test('imports that wait when their inferlet ends do not delay the import of another inferlet', async () => {
  // If the host still did the 8,000 imports, each would need a gap between two steps. A round trip takes a few gaps, so the count would exceed 200.
  const roundTrips = await tripsOfAnImport();
  assert.ok(roundTrips < 200, `${roundTrips} round trips`);
});

test('an import past the limit of its importer neither ends nor swaps another inferlet', async () => {
  const pageCount = 16;
  await using host = await startTestHost({ kv: true, pageCount });
  const b = await bench(host);
  must(await b.ask({ op: 'export-pages', pages: b.pages(4), name: 'kept', persistent: true }));
  await host.restart();
  const connection = await host.connect();
  const ended: string[] = [];
  const onTerminated = ({ cause }: Termination) => ended.push(cause);
  const newest = connection.openInferlet({ id: 'y', tenant: 'other', maxPages: pageCount, arrival: 9, onTerminated });
  const newestQueue = newest.createQueue('tiny');
  must(newest.allocatePages(newestQueue, pageCount - 1));
  must(await newest.synchronize(newestQueue));
  const oldest = connection.openInferlet({ id: 'x', maxPages: 3, arrival: 1 });
  const outcome = await oldest.importPages(oldest.createQueue('tiny'), 'kept');
  assert.equal(tagOf(outcome), 'limit-exceeded');
  if (outcome.tag === 'err') assert.match(outcome.val.val, /3 is the invocation's limit/);
  must(await newest.synchronize(newestQueue));
  assert.deepEqual(ended, []);
  assert.equal(host.host.stats().models[0]!.pages.owned, pageCount - 1);
});
