import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Backend } from '../backends/backend.ts';
import { InvalidInput } from '../backends/check.ts';
import { hostBytes } from '../memory/host-bytes.ts';
import { GREEDY, generate, must, NONE, Oracle, range, startTestHost, tagOf } from '../testing/host.ts';
import { ids, PROMPT, same, withWorkbench } from '../testing/workbench.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';

withWorkbench('refused calls', (handler) => {
  handler('invalid arguments fail their own call, with the reason', async (b) => {
    // Two pages have 16 slots, of which the prompt fills 11. The vocabulary and the context have 96 tokens each.
    const own = b.pages(2);
    must(await b.fill(own, PROMPT));
    const step = {
      tokens: ids(1),
      positions: ids(20),
      inPages: own,
      outPages: own,
      mask: undefined,
      rows: 1,
      output: { tag: 'sample' as const, val: GREEDY },
    };
    const bad: [object, string, RegExp][] = [
      [{ tokens: ids(96) }, 'invalid-argument', /token 96 \(number 0\) is outside the vocabulary of 96/],
      [{ tokens: NONE, positions: NONE }, 'invalid-argument', /without tokens/],
      [{ positions: ids(20, 21) }, 'invalid-argument', /1 tokens and 2 positions/],
      [{ positions: ids(96) }, 'context-overflow', /position 96; the model's context of 96 tokens ends at 95/],
      [{ inPages: ids(4000) }, 'not-owned', /page 4000 is not held/],
      [{ outPages: ids(4000) }, 'not-owned', /page 4000 is not held/],
      [{ outPages: ids(own[0]!) }, 'context-overflow', /1 inputs need as many empty slots and the out-pages have 0/],
      [
        { outPages: ids(own[1]!, own[1]!), tokens: ids(1, 2, 3, 4, 5, 6), positions: range(20, 26) },
        'invalid-argument',
        /named twice/,
      ],
      [{ rows: 2 }, 'invalid-argument', /2 rows of output for 1 inputs/],
      [{ rows: 0 }, 'invalid-argument', /0 rows/],
      [
        { output: { tag: 'sample', val: { ...GREEDY, temperature: Number.NaN } } },
        'invalid-argument',
        /temperature NaN/,
      ],
      [{ output: { tag: 'distributions', val: 0 } }, 'invalid-argument', /top-k 0; 1 to 96/],
      [{ output: { tag: 'distributions', val: 97 } }, 'invalid-argument', /top-k 97; 1 to 96/],
      [{ mask: { runs: ids(1), rowLengths: ids(1) } }, 'invalid-argument', /covers 1 of 11 slots and 1 inputs/],
    ];
    for (const [change, tag, message] of bad) {
      const outcome = await b.ask({ op: 'step', request: { ...step, ...change } });
      assert.equal(outcome.tag, 'err');
      if (outcome.tag === 'err') {
        assert.equal(outcome.val.tag, tag);
        assert.match(outcome.val.val, message);
      }
      const reported = await b.inferlet.synchronize(b.queue);
      assert.equal(tagOf(reported), tag, 'synchronize reports the error, once');
      assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'ok');
    }
    same(
      await b.probe(own, 7, PROMPT.length),
      await b.oracle.top([...PROMPT, 7], [...PROMPT.keys(), PROMPT.length], 1, 5),
      'the refused calls changed no page',
    );
    const runs: [object, string, RegExp][] = [
      [{ token: 96 }, 'invalid-argument', /token 96/],
      [{ maxTokens: 0 }, 'invalid-argument', /0 tokens/],
      [{ maxTokens: 80 }, 'context-overflow', /80 tokens from position 20 on reach past the model's context of 96/],
      [{ maxTokens: 6 }, 'context-overflow', /6 inputs need as many empty slots and the out-pages have 5/],
      [{ stopTokens: ids(3, 5000) }, 'invalid-argument', /token 5000 \(number 1\)/],
      [{ stopTokens: new Uint32Array(257) }, 'invalid-argument', /257 stop tokens; 256 is the limit/],
    ];
    for (const [change, tag, message] of runs) {
      const run = b.inferlet.run(b.queue, {
        token: 1,
        position: 20,
        pages: own,
        maxTokens: 4,
        sampler: GREEDY,
        stopTokens: NONE,
        ...change,
      });
      const outcome = await run.next();
      assert.equal(tagOf(outcome), tag);
      if (outcome.tag === 'err') assert.match(outcome.val.val, message);
      await b.inferlet.synchronize(b.queue);
    }
  });

  handler('a failed call fails its dependents with its cause, and no other call', async (b) => {
    const own = b.pages(2);
    const other = b.pages(2);
    const [token, state] = b.embeds(2);
    b.embedText(ids(1), ids(0), ids(token!));
    b.embedText(ids(999), ids(0), ids(token!));
    b.forward(NONE, ids(token!), own, ids(state!));
    const projected = b.next(state!, 3);
    const dependent = b.fill(own, [1, 2]);
    const independent = b.fill(other, [1, 2]);
    for (const outcome of [await projected, await dependent]) {
      assert.equal(tagOf(outcome), 'dependency-failed');
      if (outcome.tag === 'err') assert.match(outcome.val.val, /invalid-argument: token 999/);
    }
    assert.equal(tagOf(await independent), 'ok');
    const reported = await b.inferlet.synchronize(b.queue);
    assert.equal(tagOf(reported), 'invalid-argument', 'the first error');
    assert.equal(tagOf(await b.fill(own, [1, 2])), 'ok', 'the error was reported, so the pages can be used again');
    assert.equal(tagOf(await b.next(state!, 3)), 'invalid-argument', 'the state was never written');
    await b.inferlet.synchronize(b.queue);
    b.inferlet.freePages(b.queue, ids(777));
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'not-owned');
    assert.equal(tagOf(await b.next(5000, 3)), 'not-owned');
    await b.inferlet.synchronize(b.queue);
    b.forward(NONE, NONE, NONE, NONE);
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'invalid-argument');
    b.embedText(ids(1, 2), ids(0), ids(token!));
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'invalid-argument');
    b.send({
      op: 'copy-slots',
      source: own[0]!,
      sourceOffset: 7,
      destination: own[1]!,
      destinationOffset: 0,
      count: 2,
      shift: 0,
    });
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'invalid-argument');
  });

  handler('a prompt longer than the context fails the calls that read its pages', async (b) => {
    const own = b.pages(1);
    const refused = b.fill(own, new Array<number>(97).fill(1));
    const dependent = b.fill(own, [1, 2]);
    assert.deepEqual([tagOf(await refused), tagOf(await dependent)], ['context-overflow', 'dependency-failed']);
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'context-overflow');
    assert.equal(tagOf(await b.fill(own, [1, 2])), 'ok');
  });

  handler('calls of a queue with an unknown model, or of a closed queue, fail with `not-found`', async (b) => {
    const queueWithoutModel = b.inferlet.createQueue('no-such-model');
    assert.equal(tagOf(await b.inferlet.synchronize(queueWithoutModel)), 'not-found');
    assert.equal(tagOf(b.inferlet.allocatePages(queueWithoutModel, 1)), 'not-found');
    assert.equal(
      tagOf(
        await b.inferlet
          .run(queueWithoutModel, {
            token: 1,
            position: 0,
            pages: NONE,
            maxTokens: 1,
            sampler: GREEDY,
            stopTokens: NONE,
          })
          .next(),
      ),
      'not-found',
    );
    const closing = b.inferlet.createQueue('tiny');
    const own = must(b.inferlet.allocatePages(closing, 1));
    const request = { tokens: ids(1), positions: ids(0), inPages: own, outPages: own, mask: undefined, rows: 1 };
    const pending = b.inferlet.ask(closing, {
      op: 'step',
      request: { ...request, output: { tag: 'sample', val: GREEDY } },
    });
    b.inferlet.closeQueue(closing);
    assert.equal(tagOf(await pending), 'ok', 'a call from before the close is still done');
    assert.equal(tagOf(await b.inferlet.synchronize(closing)), 'not-found');
  });

  handler('an inferlet cannot hold more pages than its limit of 40, copies of shared pages included', async (b) => {
    assert.equal(tagOf(b.inferlet.allocatePages(b.queue, 41)), 'limit-exceeded');
    const own = b.pages(40);
    must(await b.fill(own, [1, 2]));
    const fork = must(b.inferlet.sharePages(b.queue, own));
    const outcome = await b.fill(fork, [3]);
    assert.equal(tagOf(outcome), 'limit-exceeded');
    if (outcome.tag === 'err') assert.match(outcome.val.val, /40 pages are held and 1 more are needed; 40 is the/);
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'limit-exceeded');
    b.inferlet.freePages(b.queue, own.subarray(30));
    b.inferlet.freePages(b.queue, fork.subarray(30));
    assert.equal(
      tagOf(await b.fill(fork.subarray(0, 30), [3], 2)),
      'ok',
      'the call succeeds after the inferlet has freed pages',
    );
  });

  handler("a call that reads another inferlet's pages fails with `not-owned`", async (b) => {
    const own = b.pages(1);
    must(await b.fill(own, [1, 2]));
    const other = b.connection.openInferlet({ id: 'other', maxPages: 4, arrival: 2 });
    const theirs = other.createQueue('tiny');
    const request = { tokens: ids(1), positions: ids(0), inPages: own, outPages: NONE, mask: undefined, rows: 1 };
    assert.equal(
      tagOf(await other.ask(theirs, { op: 'step', request: { ...request, output: { tag: 'sample', val: GREEDY } } })),
      'not-owned',
    );
    await other.close();
  });
});

test('a device that fails once fails the calls of that batch, and serves on', async () => {
  let isBroken = false;
  const failing = (backend: Backend): Backend =>
    wrapBackend(backend, {
      forward: (batch) => (isBroken ? Promise.reject(new Error('bus error')) : backend.forward(batch)),
      project: (states, count, topK) =>
        isBroken ? Promise.reject(new Error('bus error')) : backend.project(states, count, topK),
    });
  await using host = await startTestHost({ wrap: failing });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'x', maxPages: 40, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const before = await generate(inferlet, queue, PROMPT, 6);
  isBroken = true;
  const pages = must(inferlet.allocatePages(queue, 4));
  const sample = { tag: 'sample' as const, val: GREEDY };
  const step = {
    tokens: Uint32Array.of(1),
    positions: Uint32Array.of(0),
    inPages: NONE,
    outPages: pages,
    mask: undefined,
    rows: 1,
    output: sample,
  };
  assert.equal(tagOf(await inferlet.ask(queue, { op: 'step', request: step })), 'internal');
  assert.equal(tagOf(await inferlet.ask(queue, { op: 'step', request: step })), 'dependency-failed');
  const run = {
    token: 1,
    position: 0,
    pages: must(inferlet.allocatePages(queue, 2)),
    maxTokens: 9,
    sampler: GREEDY,
    stopTokens: NONE,
  };
  assert.equal(tagOf(await inferlet.run(queue, run).next()), 'internal');
  isBroken = false;
  assert.equal(tagOf(await inferlet.synchronize(queue)), 'internal');
  assert.deepEqual(await generate(inferlet, queue, PROMPT, 6), before);
  await inferlet.close();
  const counts = host.host.stats().models[0]!.pages;
  assert.equal(counts.owned, 0);
});

test('when the device refuses a batch, only the invalid call and its dependents fail', async () => {
  const computed: number[][] = [];
  const refusing = (backend: Backend): Backend =>
    wrapBackend(backend, {
      forward: (batch) => {
        const firsts = batch.map(({ inputs }) => (inputs.kind === 'tokens' ? (inputs.tokens[0] as number) : -1));
        computed.push(firsts);
        return firsts.includes(13) ? Promise.reject(new InvalidInput('thirteen')) : backend.forward(batch);
      },
    });
  await using host = await startTestHost({ wrap: refusing });
  const oracle = await Oracle.of(host.model);
  const inferlet = (await host.connect()).openInferlet({ id: 'x', maxPages: 40, arrival: 1 });
  const step = (queue: number, token: number, position: number, pages: Uint32Array) =>
    inferlet.ask(queue, {
      op: 'step',
      request: {
        tokens: ids(token),
        positions: ids(position),
        inPages: pages,
        outPages: pages,
        mask: undefined,
        rows: 1,
        output: { tag: 'distributions', val: 5 },
      },
    });
  const queues = [0, 1, 2].map(() => inferlet.createQueue('tiny'));
  const [first, second, third] = queues.map((queue) => must(inferlet.allocatePages(queue, 1)));
  must(await step(queues[0]!, 1, 0, first!));
  computed.length = 0;
  const calls = [
    step(queues[0]!, 2, 1, first!),
    step(queues[1]!, 13, 0, second!),
    step(queues[1]!, 3, 1, second!),
    step(queues[2]!, 4, 0, third!),
    step(queues[2]!, 5, 1, third!),
  ];
  const [after, bad, dependent, other, more] = await Promise.all(calls);
  // The joint batch has tokens 3 and 5 last, because each follows another call of the batch. When the device refuses it, the host computes
  // the calls one by one, but not token 3: it depends on token 13, which has failed.
  assert.deepEqual(computed, [[2, 13, 4, 3, 5], [2], [13], [4], [5]]);
  same(must(after!).distributions[0]!, await oracle.top([1, 2], [0, 1], 1, 5));
  assert.deepEqual([tagOf(bad!), tagOf(dependent!)], ['internal', 'dependency-failed']);
  same(must(other!).distributions[0]!, await oracle.top([4], [0], 1, 5));
  same(must(more!).distributions[0]!, await oracle.top([4, 5], [0, 1], 1, 5));
  assert.deepEqual(await Promise.all(queues.map(async (queue) => tagOf(await inferlet.synchronize(queue)))), [
    'ok',
    'internal',
    'ok',
  ]);
  assert.equal(host.host.engines[0]!.stats.failedCalls, 2);
  await inferlet.close();
});

test('forwards of one step share the memory for states: a forward that finds too little fails and takes none', async () => {
  // A tenant may use half of the 1024 bytes: four states of 32 floats. Each forward makes three states.
  const bytes = hostBytes(16 << 20, 1024);
  const batches: number[] = [];
  const count = (backend: Backend): Backend =>
    wrapBackend(backend, {
      forward: (batch) => {
        batches.push(batch.length);
        return backend.forward(batch);
      },
    });
  await using host = await startTestHost({ wrap: count, host: { bytes } });
  const inferlet = (await host.connect()).openInferlet({ id: 'x', maxPages: 40, arrival: 1 });
  const queues = [0, 1].map(() => inferlet.createQueue('tiny'));
  for (const queue of queues) {
    const embeds = must(inferlet.allocateEmbeds(queue, 3));
    inferlet.send(queue, { op: 'embed-text', tokens: ids(1, 2, 3), positions: ids(0, 1, 2), embeds });
    inferlet.send(queue, { op: 'forward', inPages: NONE, inEmbeds: embeds, outPages: NONE, outEmbeds: embeds });
  }
  const reported = await Promise.all(queues.map(async (queue) => tagOf(await inferlet.synchronize(queue))));
  assert.deepEqual(batches, [2]);
  assert.deepEqual(reported, ['ok', 'limit-exceeded']);
  assert.equal(bytes.values.total, 3 * 32 * Float32Array.BYTES_PER_ELEMENT);
  await inferlet.close();
});

test('NaN values fail only the call that computes them', async () => {
  let isPoisoned = false;
  const poison = (backend: Backend): Backend =>
    wrapBackend(backend, {
      async forward(batch) {
        const outputs = await backend.forward(batch);
        return outputs.map((output) =>
          isPoisoned && output.kind === 'states' ? { ...output, states: output.states.fill(Number.NaN) } : output,
        );
      },
    });
  await using host = await startTestHost({ wrap: poison });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'x', maxPages: 40, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const [input, bad, good, out] = must(inferlet.allocateEmbeds(queue, 4));
  inferlet.send(queue, { op: 'embed-text', tokens: ids(1), positions: ids(0), embeds: ids(input!) });
  inferlet.send(queue, { op: 'forward', inPages: NONE, inEmbeds: ids(input!), outPages: NONE, outEmbeds: ids(good!) });
  must(await inferlet.synchronize(queue));
  isPoisoned = true;
  inferlet.send(queue, { op: 'forward', inPages: NONE, inEmbeds: ids(input!), outPages: NONE, outEmbeds: ids(bad!) });
  must(await inferlet.synchronize(queue));
  isPoisoned = false;
  const outcomes = await Promise.all([
    inferlet.ask(queue, { op: 'next-distribution', embed: bad!, topK: 3 }),
    inferlet.ask(queue, { op: 'next-distribution', embed: good!, topK: 3 }),
    inferlet.ask(queue, { op: 'entropy', embed: bad! }),
    inferlet.ask(queue, { op: 'entropy', embed: good! }),
  ]);
  assert.deepEqual(outcomes.map(tagOf), ['invalid-argument', 'ok', 'invalid-argument', 'ok']);
  await inferlet.synchronize(queue);
  const beside = connection.openInferlet({ id: 'y', maxPages: 40, arrival: 2 });
  const text = generate(beside, beside.createQueue('tiny'), PROMPT, 6);
  inferlet.send(queue, {
    op: 'forward',
    inPages: NONE,
    inEmbeds: ids(bad!),
    outPages: must(inferlet.allocatePages(queue, 1)),
    outEmbeds: ids(out!),
  });
  const reported = await inferlet.synchronize(queue);
  assert.equal(tagOf(reported), 'invalid-argument');
  assert.deepEqual(
    await text,
    await (await Oracle.of(host.model)).greedy(PROMPT, 6),
    'a call of the same batch is not affected',
  );
});
