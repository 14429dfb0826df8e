import assert from 'node:assert/strict';
import { test } from 'node:test';
import { must, NONE, Oracle, range, startTestHost, tagOf } from '../testing/host.ts';
import { ids, PROMPT, same, Workbench, withWorkbench } from '../testing/workbench.ts';

const QUERIES = 4;
const CONTEXT = PROMPT.length - QUERIES;

/** Runs the last of the prompt's tokens over the others; resolves with the scores. */
async function score(
  b: Workbench,
  inPages: Uint32Array,
  outPages: Uint32Array,
  out: Uint32Array,
): Promise<Float32Array> {
  const inputs = b.embeds(QUERIES);
  b.inferlet.embedText(b.queue, Uint32Array.from(PROMPT.slice(CONTEXT)), range(CONTEXT, PROMPT.length), inputs);
  return must(await b.inferlet.forwardScores(b.queue, inPages, inputs, outPages, out, undefined));
}

function close(given: ArrayLike<number>, expected: ArrayLike<number>): void {
  assert.equal(given.length, expected.length);
  for (let i = 0; i < given.length; i++) assert.ok(Math.abs(given[i]! - expected[i]!) < 1e-4, `number ${i}`);
}

withWorkbench('forward-scores', (handler) => {
  handler('each slot of the in-pages has what it received, then each input', async (b) => {
    const expected = await b.oracle.attention(PROMPT, QUERIES);
    const own = b.pages(3);
    void b.fill(own.subarray(1), PROMPT.slice(0, CONTEXT));
    const [state] = b.embeds(1);
    const scores = await score(b, own, own.subarray(1), ids(state!));
    const bySlot = new Float32Array(3 * 8);
    for (let i = 0; i < CONTEXT; i++) bySlot[8 + i] = expected[i]!;
    close(scores, [...bySlot, ...expected.slice(CONTEXT)]);
    const sum = scores.reduce((total, value) => total + value, 0);
    assert.ok(Math.abs(sum - QUERIES) < 1e-3, 'it sums to the inputs');
    // The call is also a forward: its keys are kept, and its state is written.
    same(
      await b.probe(own, 7, PROMPT.length),
      await b.oracle.top([...PROMPT, 7], [...range(0, PROMPT.length + 1)], 1, 5),
    );
    same(
      must(await b.inferlet.nextDistribution(b.queue, state!, 5)),
      await b.oracle.top(PROMPT, [...PROMPT.keys()], 1, 5),
    );
  });

  handler('masked slots received nothing', async (b) => {
    const own = b.pages(1);
    void b.fill(own, PROMPT.slice(0, CONTEXT));
    b.inferlet.maskPage(b.queue, own[0]!, 0b10010);
    const scores = await score(b, own, NONE, NONE);
    assert.equal(scores[1], 0);
    assert.equal(scores[4], 0);
    assert.ok(scores[0]! > 0 && scores[2]! > 0);
    assert.ok(Math.abs(scores.reduce((total, value) => total + value, 0) - QUERIES) < 1e-3);
  });

  handler('what a forward refuses is refused in the future', async (b) => {
    const [token] = b.embeds(1);
    const outcome = await b.inferlet.forwardScores(b.queue, ids(4000), ids(token!), NONE, NONE, undefined);
    assert.equal(tagOf(outcome), 'invalid-argument', 'the embed is empty');
    b.inferlet.embedText(b.queue, ids(1), ids(0), ids(token!));
    assert.equal(
      tagOf(await b.inferlet.forwardScores(b.queue, ids(4000), ids(token!), NONE, NONE, undefined)),
      'not-owned',
    );
  });
});

test('scores of a forward in chunks are those of the whole', async () => {
  await using host = await startTestHost({ model: { maxBatchTokens: 4 } });
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const own = b.pages(2);
  const inputs = b.embeds(PROMPT.length);
  b.inferlet.embedText(b.queue, Uint32Array.from(PROMPT), range(0, PROMPT.length), inputs);
  const scores = must(await b.inferlet.forwardScores(b.queue, NONE, inputs, own, NONE, undefined));
  close(scores, await b.oracle.attention(PROMPT, PROMPT.length));
  assert.ok(host.host.stats().models[0]!.batches > 2, 'it was cut');
});
