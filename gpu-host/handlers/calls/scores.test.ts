import assert from 'node:assert/strict';
import { test } from 'node:test';
import { must, NONE, Oracle, range, startTestHost, tagOf } from '../../testing/host.ts';
import { ids, PROMPT, same, Workbench, withWorkbench } from '../../testing/workbench.ts';

const QUERIES = 4;
const CONTEXT = PROMPT.length - QUERIES;

/** Computes the last `QUERIES` tokens of the prompt over the others. Resolves with the attention scores. */
async function score(
  b: Workbench,
  inPages: Uint32Array,
  outPages: Uint32Array,
  out: Uint32Array,
): Promise<Float32Array> {
  const inputs = b.embeds(QUERIES);
  b.embedText(Uint32Array.from(PROMPT.slice(CONTEXT)), range(CONTEXT, PROMPT.length), inputs);
  return must(await b.ask({ op: 'forward-scores', inPages, inEmbeds: inputs, outPages, outEmbeds: out }));
}

function assertClose(given: ArrayLike<number>, expected: ArrayLike<number>): void {
  assert.equal(given.length, expected.length);
  for (let i = 0; i < given.length; i++) assert.ok(Math.abs(given[i]! - expected[i]!) < 1e-4, `number ${i}`);
}

withWorkbench('forward-scores', (handler) => {
  handler(
    'the result has the attention that each slot of the in-pages received, then that of each input',
    async (b) => {
      const expected = await b.oracle.attention(PROMPT, QUERIES);
      const own = b.pages(3);
      void b.fill(own.subarray(1), PROMPT.slice(0, CONTEXT));
      const [state] = b.embeds(1);
      const scores = await score(b, own, own.subarray(1), ids(state!));
      // The first of the three pages is empty: its 8 slots receive no attention.
      const bySlot = new Float32Array(3 * 8);
      for (let i = 0; i < CONTEXT; i++) bySlot[8 + i] = expected[i]!;
      assertClose(scores, [...bySlot, ...expected.slice(CONTEXT)]);
      const sum = scores.reduce((total, value) => total + value, 0);
      assert.ok(Math.abs(sum - QUERIES) < 1e-3, 'each input gives 1 in all');
      // The call is also a forward: its keys are kept, and its state is written.
      same(
        await b.probe(own, 7, PROMPT.length),
        await b.oracle.top([...PROMPT, 7], [...range(0, PROMPT.length + 1)], 1, 5),
      );
      same(must(await b.next(state!, 5)), await b.oracle.top(PROMPT, [...PROMPT.keys()], 1, 5));
    },
  );

  handler('masked slots receive no attention', async (b) => {
    const own = b.pages(1);
    void b.fill(own, PROMPT.slice(0, CONTEXT));
    // Masks slots 1 and 4.
    b.send({ op: 'mask-page', page: own[0]!, slots: 0b10010 });
    const scores = await score(b, own, NONE, NONE);
    assert.equal(scores[1], 0);
    assert.equal(scores[4], 0);
    assert.ok(scores[0]! > 0 && scores[2]! > 0);
    assert.ok(Math.abs(scores.reduce((total, value) => total + value, 0) - QUERIES) < 1e-3);
  });

  handler('invalid arguments fail the call in its own future', async (b) => {
    const [token] = b.embeds(1);
    const outcome = await b.ask({
      op: 'forward-scores',
      inPages: ids(4000),
      inEmbeds: ids(token!),
      outPages: NONE,
      outEmbeds: NONE,
    });
    assert.equal(tagOf(outcome), 'invalid-argument', 'the embed is empty');
    b.embedText(ids(1), ids(0), ids(token!));
    assert.equal(
      tagOf(
        await b.ask({
          op: 'forward-scores',
          inPages: ids(4000),
          inEmbeds: ids(token!),
          outPages: NONE,
          outEmbeds: NONE,
        }),
      ),
      'not-owned',
    );
  });
});

test('a forward that is cut into parts has the same scores as the whole', async () => {
  await using host = await startTestHost({ model: { maxBatchTokens: 4 } });
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const own = b.pages(2);
  const inputs = b.embeds(PROMPT.length);
  b.embedText(Uint32Array.from(PROMPT), range(0, PROMPT.length), inputs);
  const scores = must(
    await b.ask({ op: 'forward-scores', inPages: NONE, inEmbeds: inputs, outPages: own, outEmbeds: NONE }),
  );
  assertClose(scores, await b.oracle.attention(PROMPT, PROMPT.length));
  assert.ok(host.host.stats().models[0]!.batches > 2, 'the forward was cut');
});
