import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Distribution, GpuHostConnection, GpuInferlet, Mask } from '../protocol/client.ts';
import { GREEDY, generate, must, NONE, Oracle, range, startTestHost, type TestHost, tagOf } from '../testing/host.ts';

const PROMPT = [1, 5, 9, 44, 3, 17, 60, 2, 8, 31, 12];

describe('handlers', () => {
  let host: TestHost;
  let oracle: Oracle;
  let connection: GpuHostConnection;
  let inferlet: GpuInferlet;
  let queue: number;

  before(async () => {
    host = await startTestHost();
    oracle = await Oracle.of(host.model);
    connection = await host.connect();
  });
  after(() => host[Symbol.asyncDispose]());

  /** Each test has an inferlet of its own, and leaves no page behind. */
  function handler(name: string, body: () => Promise<void>): void {
    test(name, async () => {
      inferlet = connection.openInferlet({ id: name, maxPages: 40, arrival: 1 });
      queue = inferlet.createQueue('tiny');
      try {
        await body();
      } finally {
        await inferlet.close();
      }
      const { pages } = (await connection.stats()).models[0]!;
      assert.equal(pages.free, pages.total, 'every page is back');
    });
  }

  const pages = (count: number) => must(inferlet.allocatePages(queue, count));
  const embeds = (count: number) => must(inferlet.allocateEmbeds(queue, count));
  const ids = (...values: number[]) => Uint32Array.from(values);

  /** Fills pages with tokens from `start` on. */
  function fill(into: Uint32Array, tokens: readonly number[], start = 0, reading = into): ReturnType<GpuInferlet['step']> {
    const positions = range(start, start + tokens.length);
    const output = { tag: 'none' as const };
    return inferlet.step(queue, { tokens: Uint32Array.from(tokens), positions, inPages: reading, outPages: into, mask: undefined, rows: 0, output });
  }

  /** Distribution after `token` at `position` over pages, without keeping its key. */
  async function probe(over: Uint32Array, token: number, position: number, mask?: Mask): Promise<Distribution> {
    const request = { tokens: ids(token), positions: ids(position), inPages: over, outPages: NONE, mask, rows: 1 };
    const result = must(await inferlet.step(queue, { ...request, output: { tag: 'distributions', val: 5 } }));
    return result.distributions[0]!;
  }

  function same(given: Distribution, expected: { tokens: Uint32Array; logProbabilities: Float32Array }, message = 'the same distribution'): void {
    assert.deepEqual([...given.tokens], [...expected.tokens], message);
    for (const [i, value] of given.logProbabilities.entries()) assert.ok(Math.abs(value - expected.logProbabilities[i]!) < 1e-4, message);
  }

  handler('fused steps, a run, and the three calls say what the model says', async () => {
    const expected = await oracle.greedy(PROMPT, 12);
    assert.deepEqual(await generate(inferlet, queue, PROMPT, 12), expected);

    const runPages = pages(3);
    void fill(runPages, PROMPT.slice(0, -1));
    const run = inferlet.run(queue, { token: PROMPT.at(-1)!, position: PROMPT.length - 1, pages: runPages, maxTokens: 12, sampler: GREEDY, stopTokens: NONE });
    const ran: number[] = [];
    for (let finished: string | undefined; !finished; ) {
      const chunk = must(await run.next());
      ran.push(...chunk.tokens);
      finished = chunk.finished;
      if (finished) assert.equal(finished, 'max-tokens');
    }
    assert.deepEqual(ran, expected);

    const own = pages(3);
    const [state, ...inputs] = embeds(PROMPT.length + 1);
    const called: number[] = [];
    inferlet.embedText(queue, Uint32Array.from(PROMPT), range(0, PROMPT.length), Uint32Array.from(inputs));
    inferlet.forward(queue, NONE, Uint32Array.from(inputs), own, ids(state!), undefined);
    for (let position = PROMPT.length; ; position++) {
      const { tokens } = must(await inferlet.nextDistribution(queue, state!, 3));
      called.push(tokens[0]!);
      if (called.length === 12) break;
      inferlet.embedText(queue, ids(tokens[0]!), ids(position), ids(inputs[0]!));
      inferlet.forward(queue, own, ids(inputs[0]!), own, ids(state!), undefined);
    }
    assert.deepEqual(called, expected);
    assert.equal(tagOf(await inferlet.synchronize(queue)), 'ok');
  });

  handler('a prefill split into many forwards, into any slots, is one prefill', async () => {
    const expected = await oracle.top([...PROMPT, 7], [...PROMPT.keys(), PROMPT.length], 1, 5);
    const own = pages(4);
    void fill(own.subarray(2, 3), PROMPT.slice(0, 3), 0);
    void fill(own.subarray(0, 1), PROMPT.slice(3, 8), 3, own.subarray(2, 3));
    void fill(own.subarray(3), PROMPT.slice(8), 8, ids(own[0]!, own[2]!));
    same(await probe(own, 7, PROMPT.length), expected);
  });

  handler('embeds are copied, states can be fed back, and tokens mixed with states', async () => {
    const [a, b, c, state] = embeds(4);
    const own = pages(2);
    inferlet.embedText(queue, ids(1, 5), ids(0, 1), ids(a!, b!));
    inferlet.forward(queue, NONE, ids(a!, b!), own, ids(state!), undefined);
    inferlet.copyEmbeds(queue, ids(state!), ids(c!));
    const first = must(await inferlet.nextDistribution(queue, state!, 5));
    same(must(await inferlet.nextDistribution(queue, c!, 5)), first, 'a copy is the same state');
    // A state's position follows its input's, so it can be the next input; then beside a token in one forward.
    const fed = embeds(2);
    inferlet.forward(queue, own, ids(c!), NONE, ids(fed[0]!), undefined);
    inferlet.embedText(queue, ids(9), ids(3), ids(a!));
    inferlet.forward(queue, own, ids(c!, a!), NONE, ids(fed[0]!, fed[1]!), undefined);
    const mixed = must(await inferlet.nextDistribution(queue, fed[0]!, 5));
    inferlet.forward(queue, own, ids(c!), NONE, ids(state!), undefined);
    same(must(await inferlet.nextDistribution(queue, state!, 5)), mixed, 'the state sees no later token');
  });

  handler('masks hide slots from one address only, and can be undone', async () => {
    const own = pages(2);
    void fill(own, PROMPT);
    const shared = must(inferlet.sharePages(queue, own));
    const whole = await probe(own, 7, 30);
    inferlet.maskPage(queue, own[0]!, 0b0000_0110);
    const hidden = await probe(own, 7, 30);
    const without = [...PROMPT.keys()].filter((i) => i !== 1 && i !== 2);
    const visible = [...PROMPT, 7].map((_, i) => [...PROMPT, 7].map((_, j) => (i < PROMPT.length ? j <= i : j === i || without.includes(j))));
    same(hidden, await oracle.top([...PROMPT, 7], [...PROMPT.keys(), 30], 1, 5, visible));
    same(await probe(shared, 7, 30), whole, 'the sharer sees everything');
    inferlet.maskPage(queue, own[0]!, 0);
    same(await probe(own, 7, 30), whole, 'unmasked again');
  });

  handler('an explicit mask and positions out of order', async () => {
    const own = pages(1);
    void fill(own, PROMPT.slice(0, 4));
    // The probe sees slots 0 and 2 and itself.
    const seen = await probe(own, 7, 4, { runs: ids(0, 1, 1, 1, 1, 1), rowLengths: ids(6) });
    const visible = [0, 1, 2, 3, 4].map((i) => [0, 1, 2, 3, 4].map((j) => (i < 4 ? j <= i : j === 0 || j === 2 || j === 4)));
    same(seen, await oracle.top([...PROMPT.slice(0, 4), 7], [0, 1, 2, 3, 4], 1, 5, visible));
    // Inferred: two guesses at the same position do not see each other.
    const request = { tokens: ids(20, 30), positions: ids(4, 4), inPages: own, outPages: NONE, mask: undefined, rows: 2 };
    const both = must(await inferlet.step(queue, { ...request, output: { tag: 'distributions', val: 5 } }));
    for (const [row, token] of [20, 30].entries()) same(both.distributions[row]!, await probe(own, token, 4));
  });

  handler('shared pages part at the first write, and slots can be copied', async () => {
    const own = pages(2);
    void fill(own, PROMPT);
    const fork = must(inferlet.sharePages(queue, own));
    void fill(own, [20, 21], PROMPT.length);
    void fill(fork, [40], PROMPT.length);
    const at = PROMPT.length;
    same(await probe(own, 7, at + 2), await oracle.top([...PROMPT, 20, 21, 7], [...range(0, at + 3)], 1, 5));
    same(await probe(fork, 7, at + 1), await oracle.top([...PROMPT, 40, 7], [...range(0, at + 2)], 1, 5));
    assert.equal(host.host.stats().models[0]!.pages.owned, 3, 'only the page that was written was copied');
    const copy = pages(2);
    inferlet.copySlots(queue, own[0]!, 0, copy[0]!, 0, 8);
    inferlet.copySlots(queue, own[1]!, 0, copy[1]!, 4, 3);
    inferlet.freePages(queue, own);
    same(await probe(copy, 7, at), await oracle.top([...PROMPT, 7], [...range(0, at + 1)], 1, 5));
  });

  handler('equal seeds give equal tokens, one by one and in a run', async () => {
    const sampler = { temperature: 1.2, topK: 20, topP: 0.95, minP: 0.01, seed: 77 };
    const sampled: number[][] = [];
    for (const seed of [77, 77, 78]) {
      const own = pages(4);
      let token = 1;
      const made: number[] = [];
      for (let position = 0; position < 20; position++) {
        const request = { tokens: ids(token), positions: ids(position), inPages: own, outPages: own, mask: undefined, rows: 1 };
        const result = must(await inferlet.step(queue, { ...request, output: { tag: 'sample', val: { ...sampler, seed } } }));
        token = result.tokens[0]!;
        made.push(token);
      }
      sampled.push(made);
    }
    assert.deepEqual(sampled[0], sampled[1]);
    assert.notDeepEqual(sampled[0], sampled[2]);
    const run = inferlet.run(queue, { token: 1, position: 0, pages: pages(4), maxTokens: 20, sampler, stopTokens: NONE });
    const ran: number[] = [];
    for (let done = false; !done; ) {
      const chunk = must(await run.next());
      ran.push(...chunk.tokens);
      done = chunk.finished !== undefined;
    }
    assert.deepEqual(ran, sampled[0]);
  });

  handler('a run ends at a stop token, or when asked, and its queue goes on', async () => {
    const expected = await oracle.greedy([1], 30);
    const stop = expected[6]!;
    const until = expected.indexOf(stop) + 1;
    const own = pages(4);
    const run = inferlet.run(queue, { token: 1, position: 0, pages: own, maxTokens: 30, sampler: GREEDY, stopTokens: ids(stop) });
    const behind = inferlet.synchronize(queue);
    const made: number[] = [];
    for (let finished: string | undefined; !finished; ) {
      const chunk = must(await run.next());
      made.push(...chunk.tokens);
      finished = chunk.finished;
      if (finished) assert.equal(finished, 'stop-token');
    }
    assert.deepEqual(made, expected.slice(0, until));
    assert.deepEqual(must(await run.next()), { tokens: NONE, finished: 'stop-token' }, 'the end is repeated');
    assert.equal(tagOf(await behind), 'ok');

    const stopped = inferlet.run(queue, { token: 1, position: 0, pages: pages(10), maxTokens: 80, sampler: GREEDY, stopTokens: NONE });
    must(await stopped.next());
    stopped.stop();
    let reason: string | undefined;
    while (!reason) reason = must(await stopped.next()).finished;
    assert.equal(reason, 'stopped');
    const early = inferlet.run(queue, { token: 1, position: 0, pages: pages(10), maxTokens: 80, sampler: GREEDY, stopTokens: NONE });
    early.stop();
    while ((reason = must(await early.next()).finished) === undefined);
    assert.equal(reason, 'stopped');
  });

  handler('arguments that make no sense fail their own call, and say why', async () => {
    const own = pages(2);
    must(await fill(own, PROMPT));
    const step = { tokens: ids(1), positions: ids(20), inPages: own, outPages: own, mask: undefined, rows: 1, output: { tag: 'sample' as const, val: GREEDY } };
    const bad: [object, string, RegExp][] = [
      [{ tokens: ids(96) }, 'invalid-argument', /token 96 \(number 0\) is outside the vocabulary of 96/],
      [{ tokens: NONE, positions: NONE }, 'invalid-argument', /without tokens/],
      [{ positions: ids(20, 21) }, 'invalid-argument', /1 tokens and 2 positions/],
      [{ positions: ids(96) }, 'context-overflow', /position 96; the model's context of 96 tokens ends at 95/],
      [{ inPages: ids(4000) }, 'not-owned', /page 4000 is not held/],
      [{ outPages: ids(4000) }, 'not-owned', /page 4000 is not held/],
      [{ outPages: ids(own[0]!) }, 'context-overflow', /1 inputs need as many empty slots and the out-pages have 0/],
      [{ outPages: ids(own[1]!, own[1]!), tokens: ids(1, 2, 3, 4, 5, 6), positions: range(20, 26) }, 'invalid-argument', /named twice/],
      [{ rows: 2 }, 'invalid-argument', /2 rows of output for 1 inputs/],
      [{ rows: 0 }, 'invalid-argument', /0 rows/],
      [{ output: { tag: 'sample', val: { ...GREEDY, temperature: Number.NaN } } }, 'invalid-argument', /temperature NaN/],
      [{ output: { tag: 'distributions', val: 0 } }, 'invalid-argument', /top-k 0; 1 to 96/],
      [{ output: { tag: 'distributions', val: 97 } }, 'invalid-argument', /top-k 97; 1 to 96/],
      [{ mask: { runs: ids(1), rowLengths: ids(1) } }, 'invalid-argument', /covers 1 of 11 slots and 1 inputs/],
    ];
    for (const [change, tag, message] of bad) {
      const outcome = await inferlet.step(queue, { ...step, ...change });
      assert.equal(outcome.tag, 'err');
      if (outcome.tag === 'err') {
        assert.equal(outcome.val.tag, tag);
        assert.match(outcome.val.val, message);
      }
      const told = await inferlet.synchronize(queue);
      assert.equal(tagOf(told), tag, 'synchronize reports it, once');
      assert.equal(tagOf(await inferlet.synchronize(queue)), 'ok');
    }
    same(await probe(own, 7, PROMPT.length), await oracle.top([...PROMPT, 7], [...PROMPT.keys(), PROMPT.length], 1, 5), 'nothing was changed');
    const runs: [object, string, RegExp][] = [
      [{ token: 96 }, 'invalid-argument', /token 96/],
      [{ maxTokens: 0 }, 'invalid-argument', /0 tokens/],
      [{ maxTokens: 80 }, 'context-overflow', /80 tokens from position 20 on reach past the model's context of 96/],
      [{ maxTokens: 6 }, 'context-overflow', /6 inputs need as many empty slots and the out-pages have 5/],
      [{ stopTokens: ids(3, 5000) }, 'invalid-argument', /token 5000 \(number 1\)/],
    ];
    for (const [change, tag, message] of runs) {
      const run = inferlet.run(queue, { token: 1, position: 20, pages: own, maxTokens: 4, sampler: GREEDY, stopTokens: NONE, ...change });
      const outcome = await run.next();
      assert.equal(tagOf(outcome), tag);
      if (outcome.tag === 'err') assert.match(outcome.val.val, message);
      await inferlet.synchronize(queue);
    }
  });

  handler('a failed call fails what depends on it with its cause, and nothing else', async () => {
    const own = pages(2);
    const other = pages(2);
    const [token, state] = embeds(2);
    inferlet.embedText(queue, ids(1), ids(0), ids(token!));
    inferlet.embedText(queue, ids(999), ids(0), ids(token!));
    inferlet.forward(queue, NONE, ids(token!), own, ids(state!), undefined);
    const projected = inferlet.nextDistribution(queue, state!, 3);
    const dependent = fill(own, [1, 2]);
    const independent = fill(other, [1, 2]);
    for (const outcome of [await projected, await dependent]) {
      assert.equal(tagOf(outcome), 'dependency-failed');
      if (outcome.tag === 'err') assert.match(outcome.val.val, /invalid-argument: token 999/);
    }
    assert.equal(tagOf(await independent), 'ok');
    const told = await inferlet.synchronize(queue);
    assert.equal(tagOf(told), 'invalid-argument', 'the first error');
    assert.equal(tagOf(await fill(own, [1, 2])), 'ok', 'told, so the pages can be used again');
    assert.equal(tagOf(await inferlet.nextDistribution(queue, state!, 3)), 'invalid-argument', 'the state was never written');
    await inferlet.synchronize(queue);
    inferlet.freePages(queue, ids(777));
    assert.equal(tagOf(await inferlet.synchronize(queue)), 'not-owned');
    assert.equal(tagOf(await inferlet.nextDistribution(queue, 5000, 3)), 'not-owned');
    await inferlet.synchronize(queue);
    inferlet.forward(queue, NONE, NONE, NONE, NONE, undefined);
    assert.equal(tagOf(await inferlet.synchronize(queue)), 'invalid-argument');
    inferlet.embedText(queue, ids(1, 2), ids(0), ids(token!));
    assert.equal(tagOf(await inferlet.synchronize(queue)), 'invalid-argument');
    inferlet.copySlots(queue, own[0]!, 7, own[1]!, 0, 2);
    assert.equal(tagOf(await inferlet.synchronize(queue)), 'invalid-argument');
  });

  handler('an unknown model and a closed queue answer every call', async () => {
    const lost = inferlet.createQueue('no-such-model');
    assert.equal(tagOf(await inferlet.synchronize(lost)), 'not-found');
    assert.equal(tagOf(inferlet.allocatePages(lost, 1)), 'not-found');
    assert.equal(tagOf(await inferlet.run(lost, { token: 1, position: 0, pages: NONE, maxTokens: 1, sampler: GREEDY, stopTokens: NONE }).next()), 'not-found');
    const closing = inferlet.createQueue('tiny');
    const own = must(inferlet.allocatePages(closing, 1));
    const request = { tokens: ids(1), positions: ids(0), inPages: own, outPages: own, mask: undefined, rows: 1 };
    const pending = inferlet.step(closing, { ...request, output: { tag: 'sample', val: GREEDY } });
    inferlet.closeQueue(closing);
    assert.equal(tagOf(await pending), 'ok', 'what was issued before is still done');
    assert.equal(tagOf(await inferlet.synchronize(closing)), 'not-found');
  });

  handler('memory that cannot be had fails the allocation and what needs it', async () => {
    assert.equal(tagOf(inferlet.allocatePages(queue, 41)), 'limit-exceeded');
    const neighbour = connection.openInferlet({ id: 'neighbour', maxPages: 64, arrival: 0 });
    const other = neighbour.createQueue('tiny');
    must(neighbour.allocatePages(other, 60));
    must(await neighbour.synchronize(other));
    const own = pages(10);
    const outcome = await fill(own, [1, 2]);
    assert.equal(tagOf(outcome), 'dependency-failed');
    if (outcome.tag === 'err') assert.match(outcome.val.val, /limit-exceeded: out of memory on the device: 10 pages are needed and 4 of 64 are free/);
    const told = await inferlet.synchronize(queue);
    assert.equal(tagOf(told), 'limit-exceeded');
    assert.equal(tagOf(await fill(own, [1])), 'not-owned');
    await neighbour.close();
    assert.deepEqual(await generate(inferlet, queue, PROMPT, 4), await oracle.greedy(PROMPT, 4), 'it may go on when there is room');
  });

  handler('addresses mean nothing to another inferlet', async () => {
    const own = pages(1);
    must(await fill(own, [1, 2]));
    const other = connection.openInferlet({ id: 'other', maxPages: 4, arrival: 2 });
    const theirs = other.createQueue('tiny');
    const request = { tokens: ids(1), positions: ids(0), inPages: own, outPages: NONE, mask: undefined, rows: 1 };
    assert.equal(tagOf(await other.step(theirs, { ...request, output: { tag: 'sample', val: GREEDY } })), 'not-owned');
    await other.close();
  });

  handler('queues of one inferlet meet on its pages in order of arrival', async () => {
    const other = inferlet.createQueue('tiny');
    const own = pages(1);
    const sequence = [5, 9, 44, 3, 17, 60];
    // Written alternately through two queues, each write needing the one before.
    for (const [position, token] of sequence.entries()) {
      const request = { tokens: ids(token), positions: ids(position), inPages: own, outPages: own, mask: undefined, rows: 0 };
      void inferlet.step(position % 2 ? other : queue, { ...request, output: { tag: 'none' } });
    }
    same(await probe(own, 7, sequence.length), await oracle.top([...sequence, 7], [...range(0, 7)], 1, 5));
  });
});

test('a prefill in chunks is the whole prefill, whatever its mask', async () => {
  await using whole = await startTestHost();
  await using cut = await startTestHost({ model: { maxBatchTokens: 4 } });
  const tokens = Uint32Array.from(PROMPT);
  const positions = range(0, PROMPT.length);
  // Every input sees the even ones before it and itself; and once one that sees a later input, so that it cannot be cut.
  const lower = PROMPT.map((_, i) => PROMPT.map((_, j) => j === i || (j < i && j % 2 === 0)));
  const upper = lower.map((row, i) => row.map((seen, j) => seen || (i === 1 && j === 9)));
  const masks = [undefined, encodeRows(lower), encodeRows(upper)];
  const results = [];
  for (const host of [whole, cut]) {
    const connection = await host.connect();
    const inferlet = connection.openInferlet({ id: 'x', maxPages: 40, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    const rows = [];
    for (const mask of masks) {
      const pages = must(inferlet.allocatePages(queue, 2));
      const request = { tokens, positions, inPages: NONE, outPages: pages, mask, rows: 9 };
      rows.push(must(await inferlet.step(queue, { ...request, output: { tag: 'distributions', val: 4 } })));
      const last = must(inferlet.allocateEmbeds(queue, PROMPT.length + 7));
      inferlet.embedText(queue, tokens, positions, last.subarray(7));
      inferlet.forward(queue, NONE, last.subarray(7), must(inferlet.allocatePages(queue, 2)), last.subarray(0, 7), mask);
      rows.push(...(await Promise.all([0, 3, 6].map((i) => inferlet.nextDistribution(queue, last[i]!, 4)))).map(must));
    }
    results.push(rows);
    const { batchSizes } = host.host.stats().models[0]!;
    assert.ok(batchSizes.length > 0);
  }
  assert.deepEqual(results[1], results[0]);
  assert.ok(cut.host.stats().models[0]!.batches > whole.host.stats().models[0]!.batches, 'it was cut');
});

function encodeRows(rows: readonly (readonly boolean[])[]): Mask {
  const runs: number[] = [];
  const rowLengths: number[] = [];
  for (const row of rows) {
    const before = runs.length;
    let visible = false;
    let length = 0;
    for (const bit of row) {
      if (bit !== visible) {
        runs.push(length);
        length = 0;
        visible = bit;
      }
      length++;
    }
    runs.push(length);
    rowLengths.push(runs.length - before);
  }
  return { runs: Uint32Array.from(runs), rowLengths: Uint32Array.from(rowLengths) };
}
