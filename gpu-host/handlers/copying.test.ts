import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generate, must, NONE, Oracle, range, startTestHost, tagOf } from '../testing/host.ts';
import { ids, PROMPT, same, type Workbench, withWorkbench } from '../testing/workbench.ts';

withWorkbench('copies of slots and tokens', (handler) => {
  handler('slots shifted together are the same text at later positions', async (b) => {
    const own = b.pages(2);
    void b.fill(own, PROMPT);
    const moved = b.pages(2);
    b.send({
      op: 'copy-slots',
      source: own[0]!,
      sourceOffset: 0,
      destination: moved[0]!,
      destinationOffset: 0,
      count: 8,
      shift: 5,
    });
    b.send({
      op: 'copy-slots',
      source: own[1]!,
      sourceOffset: 0,
      destination: moved[1]!,
      destinationOffset: 2,
      count: 3,
      shift: 5,
    });
    const end = PROMPT.length + 5;
    same(await b.probe(moved, 7, end), await b.oracle.top([...PROMPT, 7], [...range(5, end + 1)], 1, 5));
    b.send({
      op: 'copy-slots',
      source: moved[0]!,
      sourceOffset: 0,
      destination: moved[0]!,
      destinationOffset: 0,
      count: 8,
      shift: -5,
    });
    b.send({
      op: 'copy-slots',
      source: moved[1]!,
      sourceOffset: 2,
      destination: moved[1]!,
      destinationOffset: 2,
      count: 3,
      shift: -5,
    });
    same(
      await b.probe(moved, 7, PROMPT.length),
      await b.oracle.top([...PROMPT, 7], [...range(0, PROMPT.length + 1)], 1, 5),
      'back again',
    );
    same(
      await b.probe(own, 7, PROMPT.length),
      await b.oracle.top([...PROMPT, 7], [...range(0, PROMPT.length + 1)], 1, 5),
      'the source is as it was',
    );
  });

  handler('tokens are picked out of pages, in any order, with their positions or new ones', async (b) => {
    const own = b.pages(2);
    void b.fill(own, PROMPT);
    const pickedIndices = [0, 3, 4, 9];
    const copy = b.pages(1);
    b.send({
      op: 'copy-tokens',
      sources: own,
      indices: Uint32Array.from([9, 0, 4, 3]),
      destinations: copy,
      positions: NONE,
    });
    same(await b.probe(copy, 7, 20), await distributionSeeing(b, pickedIndices, 20), 'with their positions');
    const whole = b.pages(2);
    b.send({
      op: 'copy-tokens',
      sources: own,
      indices: range(0, PROMPT.length),
      destinations: whole,
      positions: range(30, 30 + PROMPT.length),
    });
    const end = 30 + PROMPT.length;
    same(await b.probe(whole, 7, end), await b.oracle.top([...PROMPT, 7], [...range(30, end + 1)], 1, 5), 'renumbered');
    b.send({ op: 'copy-tokens', sources: whole, indices: ids(0), destinations: copy, positions: ids(8) });
    const atOnce = b.pages(1);
    b.send({
      op: 'copy-tokens',
      sources: own,
      indices: Uint32Array.from([9, 0, 4, 3, 0]),
      destinations: atOnce,
      positions: Uint32Array.from([9, 0, 4, 3, 8]),
    });
    same(await b.probe(copy, 7, 20), await b.probe(atOnce, 7, 20), 'a second copy fills up the page');
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'ok');
  });

  handler('a refused copy fails with the tag of its cause, and changes nothing', async (b) => {
    const own = b.pages(2);
    must(await b.fill(own, PROMPT));
    const before = await b.probe(own, 7, 40);
    const target = b.pages(1);
    const refused: [() => void, string][] = [
      [
        () =>
          b.send({
            op: 'copy-tokens',
            sources: own,
            indices: ids(PROMPT.length),
            destinations: target,
            positions: NONE,
          }),
        'invalid-argument',
      ],
      [
        () => b.send({ op: 'copy-tokens', sources: own, indices: ids(0, 1), destinations: target, positions: ids(4) }),
        'invalid-argument',
      ],
      [
        () => b.send({ op: 'copy-tokens', sources: own, indices: range(0, 9), destinations: target, positions: NONE }),
        'context-overflow',
      ],
      [
        () => b.send({ op: 'copy-tokens', sources: ids(4000), indices: ids(0), destinations: target, positions: NONE }),
        'not-owned',
      ],
      [
        () => b.send({ op: 'copy-tokens', sources: own, indices: ids(0), destinations: ids(4000), positions: NONE }),
        'not-owned',
      ],
      [
        () =>
          b.send({
            op: 'copy-slots',
            source: own[0]!,
            sourceOffset: 0,
            destination: target[0]!,
            destinationOffset: 0,
            count: 8,
            shift: -1,
          }),
        'invalid-argument',
      ],
      [
        () =>
          b.send({
            op: 'copy-slots',
            source: own[0]!,
            sourceOffset: 0,
            destination: 4000,
            destinationOffset: 0,
            count: 8,
            shift: 1,
          }),
        'not-owned',
      ],
    ];
    for (const [call, tag] of refused) {
      call();
      assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), tag);
    }
    same(await b.probe(own, 7, 40), before);
    const request = { tokens: ids(7), positions: ids(0), inPages: target, outPages: NONE, mask: undefined, rows: 1 };
    const alone = must(await b.ask({ op: 'step', request: { ...request, output: { tag: 'distributions', val: 5 } } }));
    same(alone.distributions[0]!, await b.oracle.top([7], [0], 1, 5), 'the target is empty');
  });
});

test('a copy of tokens into many shared pages runs beside a decoding inferlet, and a close amid the copy leaves no page', async () => {
  await using host = await startTestHost({ pageCount: 1024 });
  const connection = await host.connect();
  const count = 200;
  const begin = (id: string) => {
    const inferlet = connection.openInferlet({ id, tenant: id, maxPages: 2 * count + 8, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    const own = must(inferlet.allocatePages(queue, count));
    const step = { tokens: ids(5), positions: ids(0), inPages: NONE, outPages: own.subarray(0, 1), mask: undefined };
    void inferlet.ask(queue, { op: 'step', request: { ...step, rows: 0, output: { tag: 'none' } } });
    const shared = must(inferlet.sharePages(queue, own));
    // Copies the token at index 0 again and again. The first shared page has one token already, so seven fit; eight fit into each other page.
    inferlet.send(queue, {
      op: 'copy-tokens',
      sources: own,
      indices: new Uint32Array(7 + (count - 1) * 8),
      destinations: shared,
      positions: NONE,
    });
    return { inferlet, queue, shared };
  };
  const copying = begin('copies');
  const closing = begin('closes');
  const neighbour = connection.openInferlet({ id: 'n', tenant: 'n', maxPages: 8, arrival: 2 });
  const decoded = generate(neighbour, neighbour.createQueue('tiny'), PROMPT, 8);
  await closing.inferlet.close();
  assert.equal(tagOf(await copying.inferlet.synchronize(copying.queue)), 'ok');
  const request = { tokens: ids(7), positions: ids(9), inPages: copying.shared.subarray(1, 2), outPages: NONE };
  const outcome = await copying.inferlet.ask(copying.queue, {
    op: 'step',
    request: {
      ...request,
      mask: undefined,
      rows: 1,
      output: { tag: 'distributions', val: 5 },
    },
  });
  const oracle = await Oracle.of(host.model);
  // The page has eight copies of token 5 at position 0. The token was computed alone, so each copy saw only itself.
  const visible = Array.from({ length: 9 }, (_, i) => Array.from({ length: 9 }, (_, j) => i === j || i === 8));
  same(
    must(outcome).distributions[0]!,
    await oracle.top([...Array(8).fill(5), 7], [...Array(8).fill(0), 9], 1, 5, visible),
  );
  assert.deepEqual(await decoded, await oracle.greedy(PROMPT, 8));
  await Promise.all([copying.inferlet.close(), neighbour.close()]);
  assert.equal((await connection.stats()).models[0]?.pages.owned, 0);
});

/** The oracle's distribution after token 7 at `position`, where that token sees only the prompt's tokens at the indices `kept`. */
function distributionSeeing(b: Workbench, kept: readonly number[], position: number): ReturnType<typeof b.oracle.top> {
  const width = PROMPT.length + 1;
  const visible = Array.from({ length: width }, (_, i) =>
    Array.from({ length: width }, (_, j) => (i < PROMPT.length ? j <= i : j === i || kept.includes(j))),
  );
  return b.oracle.top([...PROMPT, 7], [...PROMPT.keys(), position], 1, 5, visible);
}
