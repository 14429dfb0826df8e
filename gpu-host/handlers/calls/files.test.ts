import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DeviceClient } from '../../protocol/client.ts';
import { must, Oracle, range, startTestHost, tagOf } from '../../testing/host.ts';
import { onOneBackend, PROMPT, same, Workbench } from '../../testing/workbench.ts';

const SHARED = { persistent: false, rights: 'writable', functionName: 'maker' } as const;

function neighbour(b: Workbench, id: string, tenant = 'default'): { inferlet: DeviceClient; queue: number } {
  const inferlet = b.connection.openInferlet({ id, maxPages: 40, arrival: 2, tenant });
  return { inferlet, queue: inferlet.createQueue('tiny') };
}

onOneBackend('kv-files', (handler) => {
  handler('an open file shows the last save, and only the holder of its lock may save it again', async (b) => {
    const own = b.pages(2);
    void b.fill(own, PROMPT);
    must(await b.ask({ op: 'file-save', name: 'notes/a', pages: own, ...SHARED }));
    const { inferlet, queue } = neighbour(b, 'reader');
    const read = must(await inferlet.openFile(queue, 'notes/a', false, 'reader'));
    assert.equal(read.tokens, PROMPT.length);
    assert.equal(
      tagOf(await inferlet.ask(queue, { op: 'file-save', name: 'notes/a', pages: read.pages, ...SHARED })),
      'invalid-argument',
      'no lock',
    );

    const mine = must(await b.inferlet.openFile(b.queue, 'notes/a', true, 'maker'));
    assert.equal(tagOf(await inferlet.openFile(queue, 'notes/a', true, 'reader')), 'unavailable');
    void b.fill(mine.pages, [33], PROMPT.length);
    must(await b.ask({ op: 'file-save', name: 'notes/a', pages: mine.pages, ...SHARED }));
    const [listed] = must(await inferlet.ask(queue, { op: 'file-list', prefix: 'notes/', functionName: 'reader' }));
    assert.deepEqual(listed, {
      name: 'notes/a',
      tokens: PROMPT.length + 1,
      nextPosition: PROMPT.length + 1,
      persistent: false,
      rights: 'writable',
      owner: 'maker',
      locked: true,
    });
    must(await b.ask({ op: 'file-unlock', name: 'notes/a' }));
    const newer = must(await inferlet.openFile(queue, 'notes/a', true, 'reader'));
    assert.equal(newer.tokens, PROMPT.length + 1);
    await inferlet.close();

    // The reader held the lock, which went when the reader closed.
    const fresh = must(await b.inferlet.openFile(b.queue, 'notes/a', true, 'maker'));
    same(
      await b.probe(fresh.pages, 7, PROMPT.length + 1),
      await b.oracle.top([...PROMPT, 33, 7], [...range(0, PROMPT.length + 2)], 1, 5),
      'the file has the content of the last save',
    );
    must(await b.ask({ op: 'file-remove', name: 'notes/a', functionName: 'maker' }));
    assert.deepEqual(must(await b.ask({ op: 'file-list', prefix: '', functionName: 'maker' })), []);
    same(
      await b.probe(fresh.pages, 7, PROMPT.length + 1),
      await b.oracle.top([...PROMPT, 33, 7], [...range(0, PROMPT.length + 2)], 1, 5),
      'an inferlet that has opened the file keeps its pages',
    );
  });

  handler(
    'a file that was opened twice for writing is unlocked by two unlocks, and an open past the page limit takes no lock',
    async (b) => {
      const own = b.pages(2);
      void b.fill(own, PROMPT);
      must(await b.ask({ op: 'file-save', name: 'twice', pages: own, ...SHARED }));
      const { inferlet, queue } = neighbour(b, 'other');
      const take = () => inferlet.openFile(queue, 'twice', true, 'other');
      for (let i = 0; i < 2; i++) must(await b.inferlet.openFile(b.queue, 'twice', true, 'maker'));
      must(await b.ask({ op: 'file-unlock', name: 'twice' }));
      assert.equal(tagOf(await take()), 'unavailable', 'the second open still holds the lock');
      must(await b.ask({ op: 'file-unlock', name: 'twice' }));
      const taken = must(await take());
      inferlet.freePages(queue, taken.pages);
      must(await inferlet.ask(queue, { op: 'file-unlock', name: 'twice' }));

      const small = b.connection.openInferlet({ id: 'small', maxPages: 1, arrival: 3 });
      const smallQueue = small.createQueue('tiny');
      assert.equal(tagOf(await small.openFile(smallQueue, 'twice', true, 'small')), 'limit-exceeded');
      must(await take());
      await small.close();
      await inferlet.close();
      must(await b.ask({ op: 'file-remove', name: 'twice', functionName: 'maker' }));
    },
  );

  handler('rights depend on the function, and each tenant has its own names', async (b) => {
    const own = b.pages(1);
    void b.fill(own, [1, 2]);
    must(await b.ask({ op: 'file-save', name: 'p', pages: own, ...SHARED, rights: 'private' }));
    must(await b.ask({ op: 'file-save', name: 'r', pages: own, ...SHARED, rights: 'readable' }));
    const beside = neighbour(b, 'beside');
    const stranger = neighbour(b, 'stranger', 'another tenant');
    const open = (who: typeof beside, name: string, write: boolean) =>
      who.inferlet.openFile(who.queue, name, write, 'other function');
    assert.equal(tagOf(await open(beside, 'p', false)), 'unsupported');
    assert.equal(tagOf(await open(beside, 'r', false)), 'ok');
    assert.equal(tagOf(await open(beside, 'r', true)), 'unsupported');
    assert.equal(tagOf(await open(stranger, 'r', false)), 'not-found');
    assert.equal(
      tagOf(await beside.inferlet.ask(beside.queue, { op: 'file-remove', name: 'r', functionName: 'other function' })),
      'unsupported',
    );
    assert.equal(
      tagOf(await beside.inferlet.ask(beside.queue, { op: 'file-save', name: 'system/x', pages: own, ...SHARED })),
      'not-owned',
    );
    assert.equal(tagOf(await b.ask({ op: 'file-save', name: 'system/x', pages: own, ...SHARED })), 'unsupported');
    assert.equal(tagOf(await b.inferlet.openFile(b.queue, 'nothing', false, 'maker')), 'not-found');
    const operator = neighbour(b, 'operator', 'system');
    const theirs = must(operator.inferlet.allocatePages(operator.queue, 1));
    must(await operator.inferlet.ask(operator.queue, { op: 'file-save', name: 'system/x', pages: theirs, ...SHARED }));
    assert.equal(tagOf(await open(stranger, 'system/x', false)), 'ok', 'operators write for all tenants');
    must(await operator.inferlet.ask(operator.queue, { op: 'file-remove', name: 'system/x', functionName: 'maker' }));
    for (const { inferlet } of [beside, stranger, operator]) await inferlet.close();
    for (const name of ['p', 'r']) must(await b.ask({ op: 'file-remove', name, functionName: 'maker' }));
  });
});

test('a persistent file survives a restart with its last content', async () => {
  await using host = await startTestHost({ kv: true });
  const save = { persistent: true, rights: 'private', functionName: 'f' } as const;
  const bench = async () => new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const b = await bench();
  const own = b.pages(2);
  void b.fill(own, PROMPT.slice(0, 4));
  must(await b.ask({ op: 'file-save', name: 'book', pages: own, ...save }));
  const open = must(await b.inferlet.openFile(b.queue, 'book', true, 'f'));
  void b.fill(open.pages, PROMPT.slice(4), 4);
  must(await b.ask({ op: 'file-save', name: 'book', pages: open.pages, ...save }));
  const before = await b.probe(open.pages, 7, PROMPT.length);
  await host.restart();
  const after = await bench();
  const [info] = must(await after.inferlet.ask(after.queue, { op: 'file-list', prefix: 'b', functionName: 'f' }));
  assert.equal(info?.locked, false);
  assert.equal(info?.persistent, true);
  const again = must(await after.inferlet.openFile(after.queue, 'book', true, 'f'));
  assert.deepEqual(await after.probe(again.pages, 7, PROMPT.length), before);
});
