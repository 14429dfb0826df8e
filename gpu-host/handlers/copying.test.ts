import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generate, must, NONE, Oracle, range, startTestHost, tagOf } from '../testing/host.ts';
import { ids, PROMPT, same, type Workbench, withWorkbench } from '../testing/workbench.ts';

withWorkbench('copies of slots and tokens', (handler) => {
  handler('slots shifted together are the same text at later positions', async (b) => {
    const own = b.pages(2);
    void b.fill(own, PROMPT);
    const moved = b.pages(2);
    b.inferlet.copySlots(b.queue, own[0]!, 0, moved[0]!, 0, 8, 5);
    b.inferlet.copySlots(b.queue, own[1]!, 0, moved[1]!, 2, 3, 5);
    const end = PROMPT.length + 5;
    same(await b.probe(moved, 7, end), await b.oracle.top([...PROMPT, 7], [...range(5, end + 1)], 1, 5));
    b.inferlet.copySlots(b.queue, moved[0]!, 0, moved[0]!, 0, 8, -5);
    b.inferlet.copySlots(b.queue, moved[1]!, 2, moved[1]!, 2, 3, -5);
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
    const kept = [0, 3, 4, 9];
    const copy = b.pages(1);
    b.inferlet.copyTokens(b.queue, own, Uint32Array.from([9, 0, 4, 3]), copy, NONE);
    same(await b.probe(copy, 7, 20), await only(b, kept, 20), 'with their positions');
    const whole = b.pages(2);
    b.inferlet.copyTokens(b.queue, own, range(0, PROMPT.length), whole, range(30, 30 + PROMPT.length));
    const end = 30 + PROMPT.length;
    same(await b.probe(whole, 7, end), await b.oracle.top([...PROMPT, 7], [...range(30, end + 1)], 1, 5), 'renumbered');
    b.inferlet.copyTokens(b.queue, whole, ids(0), copy, ids(8));
    same(await b.probe(copy, 7, 20, undefined), await b.probe(copy, 7, 20), 'into what room was left');
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'ok');
  });

  handler('copies that cannot be say why, and change nothing', async (b) => {
    const own = b.pages(2);
    must(await b.fill(own, PROMPT));
    const before = await b.probe(own, 7, 40);
    const target = b.pages(1);
    const refused: [() => void, string][] = [
      [() => b.inferlet.copyTokens(b.queue, own, ids(PROMPT.length), target, NONE), 'invalid-argument'],
      [() => b.inferlet.copyTokens(b.queue, own, ids(0, 1), target, ids(4)), 'invalid-argument'],
      [() => b.inferlet.copyTokens(b.queue, own, range(0, 9), target, NONE), 'context-overflow'],
      [() => b.inferlet.copyTokens(b.queue, ids(4000), ids(0), target, NONE), 'not-owned'],
      [() => b.inferlet.copyTokens(b.queue, own, ids(0), ids(4000), NONE), 'not-owned'],
      [() => b.inferlet.copySlots(b.queue, own[0]!, 0, target[0]!, 0, 8, -1), 'invalid-argument'],
      [() => b.inferlet.copySlots(b.queue, own[0]!, 0, 4000, 0, 8, 1), 'not-owned'],
    ];
    for (const [call, tag] of refused) {
      call();
      assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), tag);
    }
    same(await b.probe(own, 7, 40), before);
    const request = { tokens: ids(7), positions: ids(0), inPages: target, outPages: NONE, mask: undefined, rows: 1 };
    const alone = must(await b.inferlet.step(b.queue, { ...request, output: { tag: 'distributions', val: 5 } }));
    same(alone.distributions[0]!, await b.oracle.top([7], [0], 1, 5), 'the target is empty');
  });
});

test('tokens go into many shared pages while another inferlet decodes, and a close in the middle leaves nothing', async () => {
  await using host = await startTestHost({ pageCount: 1024 });
  const connection = await host.connect();
  const count = 200;
  const begin = (id: string) => {
    const inferlet = connection.openInferlet({ id, tenant: id, maxPages: 2 * count + 8, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    const own = must(inferlet.allocatePages(queue, count));
    const step = { tokens: ids(5), positions: ids(0), inPages: NONE, outPages: own.subarray(0, 1), mask: undefined };
    void inferlet.step(queue, { ...step, rows: 0, output: { tag: 'none' } });
    const shared = must(inferlet.sharePages(queue, own));
    // The shared first page has room for seven tokens.
    inferlet.copyTokens(queue, own, new Uint32Array(7 + (count - 1) * 8), shared, NONE);
    return { inferlet, queue, shared };
  };
  const copying = begin('copies');
  const closing = begin('closes');
  const neighbour = connection.openInferlet({ id: 'n', tenant: 'n', maxPages: 8, arrival: 2 });
  const decoded = generate(neighbour, neighbour.createQueue('tiny'), PROMPT, 8);
  await closing.inferlet.close();
  assert.equal(tagOf(await copying.inferlet.synchronize(copying.queue)), 'ok');
  const request = { tokens: ids(7), positions: ids(9), inPages: copying.shared.subarray(1, 2), outPages: NONE };
  const outcome = await copying.inferlet.step(copying.queue, {
    ...request,
    mask: undefined,
    rows: 1,
    output: { tag: 'distributions', val: 5 },
  });
  const oracle = await Oracle.of(host.model);
  // Eight tokens 5 at position 0, each of which saw itself only.
  const visible = Array.from({ length: 9 }, (_, i) => Array.from({ length: 9 }, (_, j) => i === j || i === 8));
  same(
    must(outcome).distributions[0]!,
    await oracle.top([...Array(8).fill(5), 7], [...Array(8).fill(0), 9], 1, 5, visible),
  );
  assert.deepEqual(await decoded, await oracle.greedy(PROMPT, 8));
  await Promise.all([copying.inferlet.close(), neighbour.close()]);
  assert.equal((await connection.stats()).models[0]?.pages.owned, 0);
});

/** Distribution after token 7 at `position` after the prompt, of which the token sees only `kept`. */
function only(b: Workbench, kept: readonly number[], position: number): ReturnType<typeof b.oracle.top> {
  const width = PROMPT.length + 1;
  const visible = Array.from({ length: width }, (_, i) =>
    Array.from({ length: width }, (_, j) => (i < PROMPT.length ? j <= i : j === i || kept.includes(j))),
  );
  return b.oracle.top([...PROMPT, 7], [...PROMPT.keys(), position], 1, 5, visible);
}
