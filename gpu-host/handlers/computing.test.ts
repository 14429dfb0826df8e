import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Backend } from '../backends/backend.ts';
import { TINY_FAMILIES } from '../models/testing/tiny-families.ts';
import type { Distribution } from '../protocol/client.ts';
import { GREEDY, generate, must, NONE, Oracle, range, startTestHost, tagOf } from '../testing/host.ts';
import { encodeMask } from '../testing/mask.ts';
import { ids, PROMPT, same, Workbench, withWorkbench } from '../testing/workbench.ts';
import { type Watched, watchBackend } from '../testing/wrapped-backend.ts';

withWorkbench('computing calls', (handler) => {
  handler('fused steps, a run, and the three calls give the tokens of the model', async (b) => {
    const expected = await b.oracle.greedy(PROMPT, 12);
    assert.deepEqual(await generate(b.inferlet, b.queue, PROMPT, 12), expected);

    const runPages = b.pages(3);
    void b.fill(runPages, PROMPT.slice(0, -1));
    const run = b.inferlet.run(b.queue, {
      token: PROMPT.at(-1)!,
      position: PROMPT.length - 1,
      pages: runPages,
      maxTokens: 12,
      sampler: GREEDY,
      stopTokens: NONE,
    });
    const ran: number[] = [];
    for (let finished: string | undefined; !finished; ) {
      const chunk = must(await run.next());
      ran.push(...chunk.tokens);
      finished = chunk.finished;
      if (finished) assert.equal(finished, 'max-tokens');
    }
    assert.deepEqual(ran, expected);

    const own = b.pages(3);
    const [state, ...inputs] = b.embeds(PROMPT.length + 1);
    const called: number[] = [];
    b.embedText(Uint32Array.from(PROMPT), range(0, PROMPT.length), Uint32Array.from(inputs));
    b.forward(NONE, Uint32Array.from(inputs), own, ids(state!));
    for (let position = PROMPT.length; ; position++) {
      const { tokens } = must(await b.next(state!, 3));
      called.push(tokens[0]!);
      if (called.length === 12) break;
      b.embedText(ids(tokens[0]!), ids(position), ids(inputs[0]!));
      b.forward(own, ids(inputs[0]!), own, ids(state!));
    }
    assert.deepEqual(called, expected);
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'ok');
  });

  handler('a stopped queue computes no further call, still frees pages, and leaves other queues alone', async (b) => {
    const own = b.pages(2);
    must(await b.fill(own.subarray(0, 1), PROMPT.slice(0, 4)));
    const expected = await b.oracle.top([...PROMPT.slice(0, 4), 7], [0, 1, 2, 3, 4], 1, 5);
    const waiting = b.fill(own, PROMPT.slice(4), 4);
    b.send({ op: 'stop-queue' });
    assert.equal(tagOf(await waiting), 'cancelled');
    assert.equal(tagOf(await b.fill(own.subarray(1), PROMPT.slice(4), 4, own.subarray(0, 1))), 'cancelled');
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'cancelled');
    const queue = b.inferlet.createQueue('tiny');
    const request = { tokens: ids(7), positions: ids(4), inPages: own.subarray(0, 1), outPages: NONE, rows: 1 };
    const output = { tag: 'distributions', val: 5 } as const;
    const { distributions } = must(
      await b.inferlet.ask(queue, { op: 'step', request: { ...request, mask: undefined, output } }),
    );
    same(distributions[0]!, expected, 'the slots that were filled before');
    b.inferlet.freePages(b.queue, own);
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'ok');
  });

  handler('a prefill split into many forwards over pages in any order gives the result of one prefill', async (b) => {
    const expected = await b.oracle.top([...PROMPT, 7], [...PROMPT.keys(), PROMPT.length], 1, 5);
    const own = b.pages(4);
    void b.fill(own.subarray(2, 3), PROMPT.slice(0, 3), 0);
    void b.fill(own.subarray(0, 1), PROMPT.slice(3, 8), 3, own.subarray(2, 3));
    void b.fill(own.subarray(3), PROMPT.slice(8), 8, ids(own[0]!, own[2]!));
    same(await b.probe(own, 7, PROMPT.length), expected);
  });

  handler('embeds can be copied, states can be inputs again, and one forward can mix tokens with states', async (b) => {
    const [first, second, copy, state] = b.embeds(4);
    const own = b.pages(2);
    b.embedText(ids(1, 5), ids(0, 1), ids(first!, second!));
    b.forward(NONE, ids(first!, second!), own, ids(state!));
    b.send({ op: 'copy-embeds', sources: ids(state!), destinations: ids(copy!) });
    const before = must(await b.next(state!, 5));
    same(must(await b.next(copy!, 5)), before, 'a copy is the same state');
    // A state has the position after its input, so the state can be the next input: first alone, then together with a token.
    const fed = b.embeds(2);
    b.forward(own, ids(copy!), NONE, ids(fed[0]!));
    b.embedText(ids(9), ids(3), ids(first!));
    b.forward(own, ids(copy!, first!), NONE, ids(fed[0]!, fed[1]!));
    const mixed = must(await b.next(fed[0]!, 5));
    b.forward(own, ids(copy!), NONE, ids(state!));
    same(must(await b.next(state!, 5)), mixed, 'the state sees no later token');
    // At the same position neither input sees the other: the token's row is that of a step without the state.
    b.embedText(ids(9), ids(2), ids(second!));
    b.forward(own, ids(copy!, second!), NONE, ids(fed[0]!, fed[1]!));
    same(must(await b.next(fed[1]!, 5)), await b.probe(own, 9, 2), 'a token among states');
  });

  handler('masks hide slots from one address only, and can be undone', async (b) => {
    const own = b.pages(2);
    void b.fill(own, PROMPT);
    const shared = must(b.inferlet.sharePages(b.queue, own));
    const whole = await b.probe(own, 7, 30);
    b.send({ op: 'mask-page', page: own[0]!, slots: 0b0000_0110 });
    const hidden = await b.probe(own, 7, 30);
    const visibleIndices = [...PROMPT.keys()].filter((i) => i !== 1 && i !== 2);
    const visible = [...PROMPT, 7].map((_, i) =>
      [...PROMPT, 7].map((_, j) => (i < PROMPT.length ? j <= i : j === i || visibleIndices.includes(j))),
    );
    same(hidden, await b.oracle.top([...PROMPT, 7], [...PROMPT.keys(), 30], 1, 5, visible));
    same(await b.probe(shared, 7, 30), whole, 'the other address of the page shows all slots');
    b.send({ op: 'mask-page', page: own[0]!, slots: 0 });
    same(await b.probe(own, 7, 30), whole, 'unmasked again');
  });

  handler('an explicit mask and equal positions decide what each input sees', async (b) => {
    const own = b.pages(1);
    void b.fill(own, PROMPT.slice(0, 4));
    // The probe sees slots 0 and 2 and itself.
    const seen = await b.probe(own, 7, 4, { runs: ids(0, 1, 1, 1, 1, 1), rowLengths: ids(6) });
    const visible = [0, 1, 2, 3, 4].map((i) =>
      [0, 1, 2, 3, 4].map((j) => (i < 4 ? j <= i : j === 0 || j === 2 || j === 4)),
    );
    same(seen, await b.oracle.top([...PROMPT.slice(0, 4), 7], [0, 1, 2, 3, 4], 1, 5, visible));
    // Without a mask, the positions decide: two inputs at the same position do not see each other.
    const request = {
      tokens: ids(20, 30),
      positions: ids(4, 4),
      inPages: own,
      outPages: NONE,
      mask: undefined,
      rows: 2,
    };
    const both = must(await b.ask({ op: 'step', request: { ...request, output: { tag: 'distributions', val: 5 } } }));
    for (const [row, token] of [20, 30].entries()) same(both.distributions[row]!, await b.probe(own, token, 4));
  });

  handler('a write to a shared page copies that page for the writer, and slots can be copied', async (b) => {
    const own = b.pages(2);
    void b.fill(own, PROMPT);
    const fork = must(b.inferlet.sharePages(b.queue, own));
    void b.fill(own, [20, 21], PROMPT.length);
    void b.fill(fork, [40], PROMPT.length);
    const at = PROMPT.length;
    same(await b.probe(own, 7, at + 2), await b.oracle.top([...PROMPT, 20, 21, 7], [...range(0, at + 3)], 1, 5));
    same(await b.probe(fork, 7, at + 1), await b.oracle.top([...PROMPT, 40, 7], [...range(0, at + 2)], 1, 5));
    assert.equal(b.host.host.stats().models[0]!.pages.owned, 3, 'only the page that was written was copied');
    const copy = b.pages(2);
    b.send({
      op: 'copy-slots',
      source: own[0]!,
      sourceOffset: 0,
      destination: copy[0]!,
      destinationOffset: 0,
      count: 8,
      shift: 0,
    });
    b.send({
      op: 'copy-slots',
      source: own[1]!,
      sourceOffset: 0,
      destination: copy[1]!,
      destinationOffset: 4,
      count: 3,
      shift: 0,
    });
    b.inferlet.freePages(b.queue, own);
    same(await b.probe(copy, 7, at), await b.oracle.top([...PROMPT, 7], [...range(0, at + 1)], 1, 5));
  });

  handler('equal seeds give equal tokens, one by one and in a run', async (b) => {
    const sampler = { temperature: 1.2, topK: 20, topP: 0.95, minP: 0.01, seed: 77 };
    const sampled: number[][] = [];
    for (const seed of [77, 77, 78]) {
      const own = b.pages(4);
      let token = 1;
      const made: number[] = [];
      for (let position = 0; position < 20; position++) {
        const request = {
          tokens: ids(token),
          positions: ids(position),
          inPages: own,
          outPages: own,
          mask: undefined,
          rows: 1,
        };
        const result = must(
          await b.ask({ op: 'step', request: { ...request, output: { tag: 'sample', val: { ...sampler, seed } } } }),
        );
        token = result.tokens[0]!;
        made.push(token);
      }
      sampled.push(made);
    }
    assert.deepEqual(sampled[0], sampled[1]);
    assert.notDeepEqual(sampled[0], sampled[2]);
    const run = b.inferlet.run(b.queue, {
      token: 1,
      position: 0,
      pages: b.pages(4),
      maxTokens: 20,
      sampler,
      stopTokens: NONE,
    });
    const ran: number[] = [];
    for (let done = false; !done; ) {
      const chunk = must(await run.next());
      ran.push(...chunk.tokens);
      done = chunk.finished !== undefined;
    }
    assert.deepEqual(ran, sampled[0]);
  });

  handler('a run ends at a stop token, or when the inferlet stops it, and its queue goes on', async (b) => {
    const expected = await b.oracle.greedy([1], 30);
    const stop = expected[6]!;
    const stopLength = expected.indexOf(stop) + 1;
    const own = b.pages(4);
    const run = b.inferlet.run(b.queue, {
      token: 1,
      position: 0,
      pages: own,
      maxTokens: 30,
      sampler: GREEDY,
      stopTokens: ids(stop),
    });
    const behind = b.inferlet.synchronize(b.queue);
    const made: number[] = [];
    for (let finished: string | undefined; !finished; ) {
      const chunk = must(await run.next());
      made.push(...chunk.tokens);
      finished = chunk.finished;
      if (finished) assert.equal(finished, 'stop-token');
    }
    assert.deepEqual(made, expected.slice(0, stopLength));
    assert.deepEqual(must(await run.next()), { tokens: NONE, finished: 'stop-token' }, 'the end is repeated');
    assert.equal(tagOf(await behind), 'ok');

    const stopped = b.inferlet.run(b.queue, {
      token: 1,
      position: 0,
      pages: b.pages(10),
      maxTokens: 80,
      sampler: GREEDY,
      stopTokens: NONE,
    });
    must(await stopped.next());
    stopped.stop();
    let reason: string | undefined;
    while (!reason) reason = must(await stopped.next()).finished;
    assert.equal(reason, 'stopped');
    const early = b.inferlet.run(b.queue, {
      token: 1,
      position: 0,
      pages: b.pages(10),
      maxTokens: 80,
      sampler: GREEDY,
      stopTokens: NONE,
    });
    early.stop();
    let end: string | undefined;
    while (!end) end = must(await early.next()).finished;
    assert.equal(end, 'stopped');
  });

  handler('calls of two queues to the same pages are computed in order of arrival', async (b) => {
    const other = b.inferlet.createQueue('tiny');
    const own = b.pages(1);
    const sequence = [5, 9, 44, 3, 17, 60];
    // The two queues write in turn, and each write reads the slots of all writes before it.
    for (const [position, token] of sequence.entries()) {
      const request = {
        tokens: ids(token),
        positions: ids(position),
        inPages: own,
        outPages: own,
        mask: undefined,
        rows: 0,
      };
      void b.inferlet.ask(position % 2 ? other : b.queue, {
        op: 'step',
        request: { ...request, output: { tag: 'none' } },
      });
    }
    same(await b.probe(own, 7, sequence.length), await b.oracle.top([...sequence, 7], [...range(0, 7)], 1, 5));
  });
});

test('a prefill in chunks gives the results of the whole prefill, under any mask', async () => {
  const watched: Watched[] = [];
  const wrap = (inner: Backend): Backend => {
    const one = watchBackend(inner);
    watched.push(one);
    return one.backend;
  };
  await using whole = await startTestHost({ wrap });
  await using cut = await startTestHost({ wrap, model: { maxBatchTokens: 4 } });
  const tokens = Uint32Array.from(PROMPT);
  const positions = range(0, PROMPT.length);
  // With `lower`, every input sees itself and the even inputs before it. With `upper`, input 1 also sees input 9: that prefill cannot be cut.
  const lower = PROMPT.map((_, i) => PROMPT.map((_, j) => j === i || (j < i && j % 2 === 0)));
  const upper = lower.map((row, i) => row.map((seen, j) => seen || (i === 1 && j === 9)));
  const masks = [undefined, encodeMask(lower), encodeMask(upper)];
  const results = [];
  for (const host of [whole, cut]) {
    const connection = await host.connect();
    const inferlet = connection.openInferlet({ id: 'x', maxPages: 40, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    const rows = [];
    for (const mask of masks) {
      const pages = must(inferlet.allocatePages(queue, 2));
      const request = { tokens, positions, inPages: NONE, outPages: pages, mask, rows: 9 };
      rows.push(
        must(
          await inferlet.ask(queue, { op: 'step', request: { ...request, output: { tag: 'distributions', val: 4 } } }),
        ),
      );
      const stateAndInputEmbeds = must(inferlet.allocateEmbeds(queue, PROMPT.length + 7));
      inferlet.send(queue, { op: 'embed-text', tokens, positions, embeds: stateAndInputEmbeds.subarray(7) });
      inferlet.send(queue, {
        op: 'forward',
        inPages: NONE,
        inEmbeds: stateAndInputEmbeds.subarray(7),
        outPages: must(inferlet.allocatePages(queue, 2)),
        outEmbeds: stateAndInputEmbeds.subarray(0, 7),
        mask,
      });
      rows.push(
        ...(
          await Promise.all(
            [0, 3, 6].map((i) =>
              inferlet.ask(queue, { op: 'next-distribution', embed: stateAndInputEmbeds[i]!, topK: 4 }),
            ),
          )
        ).map(must),
      );
    }
    results.push(rows);
  }
  assert.deepEqual(results[1], results[0]);
  const inputsByStep = watched.map(({ batches }) =>
    batches.map((batch) => batch.reduce((sum, { positions }) => sum + positions.length, 0)),
  );
  // Each mask has two prefills, a step and a forward. A prefill has 11 inputs, and a batch of the host `cut` has at most 4.
  const inChunks = [4, 4, 3];
  assert.deepEqual(inputsByStep, [
    [11, 11, 11, 11, 11, 11],
    [...inChunks, ...inChunks, ...inChunks, ...inChunks, 11, 11],
  ]);
});

test('a forward that mixes a state with tokens gets the embeddings of all tokens, however few rows the host keeps', async () => {
  const count = 24;
  const results: Distribution[] = [];
  // The whole matrix; one row, so that every embedding is read again.
  for (const keptEmbeddingBytes of [1 << 20, 1]) {
    await using host = await startTestHost({ keptEmbeddingBytes });
    const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'guest');
    const [page] = b.pages(1);
    const [first, state, last, ...fed] = b.embeds(count + 3);
    b.embedText(ids(9), ids(0), ids(first!));
    b.forward(NONE, ids(first!), ids(page!), ids(state!));
    b.embedText(
      Uint32Array.from(fed, (_, i) => 3 + 2 * i),
      range(2, count + 2),
      Uint32Array.from(fed),
    );
    b.forward(ids(page!), ids(state!, ...fed), NONE, ids(last!));
    results.push(must(await b.next(last!, 5)));
    await b.inferlet.close();
  }
  const [whole, few] = results;
  same(few!, whole!);
});

test('a token beside a state has the scaled embedding that it has alone', async () => {
  for (const name of ['granite', 'gemma2']) {
    const family = TINY_FAMILIES[name];
    assert.ok(family);
    await using host = await startTestHost({ family });
    const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'guest');
    const [page] = b.pages(1);
    const [first, state, token, result, alone] = b.embeds(5);
    b.embedText(ids(9), ids(0), ids(first!));
    b.forward(NONE, ids(first!), ids(page!), ids(state!));
    // At the position of the state, the token does not see it.
    b.embedText(ids(7), ids(1), ids(token!));
    b.forward(ids(page!), ids(state!, token!), NONE, ids(first!, result!));
    b.forward(ids(page!), ids(token!), NONE, ids(alone!));
    same(must(await b.next(result!, 5)), must(await b.next(alone!, 5)), name);
    await b.inferlet.close();
  }
});
