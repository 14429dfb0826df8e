import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Backend } from '../backends/backend.ts';
import { BACKENDS } from '../testing/backends.ts';
import { GREEDY, must, NONE, Oracle, range, startTestHost, type TestHost, tagOf } from '../testing/host.ts';
import { ids, PROMPT, same, Workbench } from '../testing/workbench.ts';
import { type Watched, watchBackend, wrapBackend } from '../testing/wrapped-backend.ts';

/** A workbench on a host, after a first step that is removed from the recorded batches. */
async function watchedBench(host: TestHost, watched: () => Watched): Promise<Workbench> {
  const bench = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  must(await bench.fill(bench.pages(1), [1]));
  watched().batches.length = 0;
  return bench;
}

for (const backend of BACKENDS) {
  describe(`calls that become one step (${backend})`, () => {
    let watched: Watched | undefined;
    const options = {
      backend,
      wrap: (inner: Backend) => {
        watched = watchBackend(inner);
        return watched.backend;
      },
    };
    const seen = (): Watched => watched as Watched;

    test('two prefills of one text and the step that follows are one batch, and give the tokens that they give alone', async () => {
      await using host = await startTestHost(options);
      const b = await watchedBench(host, seen);
      const own = b.pages(3);
      void b.fill(own, PROMPT.slice(0, 5));
      void b.fill(own, PROMPT.slice(5), 5);
      const after = await b.probe(own, 7, PROMPT.length);
      const expected = await b.oracle.top([...PROMPT, 7], [...range(0, PROMPT.length + 1)], 1, 5);
      same(after, expected);
      assert.deepEqual(
        seen().batches.map((batch) => batch.map(({ positions }) => positions.length)),
        [[5, 6, 1]],
      );
      same(await b.probe(own, 7, PROMPT.length), expected, 'the keys of the batch are in the pages');
    });

    test('a call reads states as they were before later calls of its batch', async () => {
      await using host = await startTestHost(options);
      const b = await watchedBench(host, seen);
      const own = b.pages(2);
      must(await b.fill(own, PROMPT));
      seen().batches.length = 0;
      const other = b.inferlet.createQueue('tiny');
      const before = b.probe(own, 7, PROMPT.length);
      const request = { tokens: ids(20), positions: ids(PROMPT.length), inPages: own, outPages: own, mask: undefined };
      void b.inferlet.ask(other, { op: 'step', request: { ...request, rows: 0, output: { tag: 'none' } } });
      const after = b.inferlet.ask(other, {
        op: 'step',
        request: {
          ...request,
          tokens: ids(7),
          positions: ids(PROMPT.length + 1),
          outPages: NONE,
          rows: 1,
          output: { tag: 'distributions', val: 5 },
        },
      });
      const positions = [...range(0, PROMPT.length + 2)];
      same(await before, await b.oracle.top([...PROMPT, 7], positions.slice(0, -1), 1, 5));
      same(must(await after).distributions[0]!, await b.oracle.top([...PROMPT, 20, 7], positions, 1, 5));
      assert.equal(seen().batches.length, 1);
    });

    test('embed-text, forward and next-distribution become one step, without a separate projection', async () => {
      await using host = await startTestHost(options);
      const b = await watchedBench(host, seen);
      const expected = await b.oracle.greedy(PROMPT, 8);
      const own = b.pages(3);
      const [state, ...inputs] = b.embeds(PROMPT.length + 1);
      b.inferlet.send(b.queue, {
        op: 'embed-text',
        tokens: Uint32Array.from(PROMPT),
        positions: range(0, PROMPT.length),
        embeds: Uint32Array.from(inputs),
      });
      b.inferlet.send(b.queue, {
        op: 'forward',
        inPages: NONE,
        inEmbeds: Uint32Array.from(inputs),
        outPages: own,
        outEmbeds: ids(state!),
      });
      const made: number[] = [];
      for (let position = PROMPT.length; made.length < 8; position++) {
        const [wide, narrow] = await Promise.all([
          b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state!, topK: 5 }),
          b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state!, topK: 2 }),
        ]);
        const text = [...PROMPT, ...made];
        same(must(wide), await b.oracle.top(text, [...text.keys()], 1, 5));
        assert.deepEqual([...must(narrow).tokens], [...must(wide).tokens.slice(0, 2)]);
        made.push(must(wide).tokens[0]!);
        b.inferlet.send(b.queue, {
          op: 'embed-text',
          tokens: ids(made.at(-1)!),
          positions: ids(position),
          embeds: ids(inputs[0]!),
        });
        b.inferlet.send(b.queue, {
          op: 'forward',
          inPages: own,
          inEmbeds: ids(inputs[0]!),
          outPages: own,
          outEmbeds: ids(state!),
        });
      }
      assert.deepEqual(made, expected);
      must(await b.inferlet.synchronize(b.queue));
      assert.equal(seen().batches.length, 9, 'a step for the prompt and one for each of the eight tokens');
      assert.equal(seen().projected, 0);
    });

    test('states of earlier steps, and few rows out of many, are projected outside the step', async () => {
      await using host = await startTestHost(options);
      const b = await watchedBench(host, seen);
      const embeds = b.embeds(2 * PROMPT.length);
      const inputs = embeds.slice(0, PROMPT.length);
      const states = embeds.slice(PROMPT.length);
      b.inferlet.send(b.queue, {
        op: 'embed-text',
        tokens: Uint32Array.from(PROMPT),
        positions: range(0, PROMPT.length),
        embeds: inputs,
      });
      b.inferlet.send(b.queue, { op: 'forward', inPages: NONE, inEmbeds: inputs, outPages: NONE, outEmbeds: states });
      const whole = await b.oracle.top(PROMPT, [...PROMPT.keys()], PROMPT.length, 4);
      const row = (at: number) => ({
        tokens: whole.tokens.slice(at * 4, at * 4 + 4),
        logProbabilities: whole.logProbabilities.slice(at * 4, at * 4 + 4),
      });
      same(
        must(await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: states[3]!, topK: 4 })),
        row(3),
        'one of eleven rows',
      );
      assert.equal(seen().projected, 1);
      const [again, kept] = await Promise.all([
        b.inferlet.ask(b.queue, { op: 'next-distribution', embed: states[0]!, topK: 4 }),
        b.inferlet.ask(b.queue, { op: 'next-distribution', embed: states[10]!, topK: 4 }),
      ]);
      same(must(again), row(0));
      same(must(kept), row(10));
      assert.equal(seen().projected, 3, 'states of an earlier step');
      // All rows are asked for, so the forward's step projects them.
      b.inferlet.send(b.queue, { op: 'forward', inPages: NONE, inEmbeds: inputs, outPages: NONE, outEmbeds: states });
      const all = await Promise.all(
        [...states].map((state) => b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state, topK: 4 })),
      );
      for (const [at, outcome] of all.entries()) same(must(outcome), row(at));
      assert.equal(seen().projected, 3);
    });

    test('an embed that is named twice holds the later state', async () => {
      await using host = await startTestHost(options);
      const b = await watchedBench(host, seen);
      const [first, second, state] = b.embeds(3);
      b.inferlet.send(b.queue, {
        op: 'embed-text',
        tokens: ids(1, 5),
        positions: ids(0, 1),
        embeds: ids(first!, second!),
      });
      b.inferlet.send(b.queue, {
        op: 'forward',
        inPages: NONE,
        inEmbeds: ids(first!, second!),
        outPages: NONE,
        outEmbeds: ids(state!, state!),
      });
      same(
        must(await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state!, topK: 5 })),
        await b.oracle.top([1, 5], [0, 1], 1, 5),
      );
      assert.equal(seen().projected, 0);
      same(
        must(await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state!, topK: 5 })),
        await b.oracle.top([1, 5], [0, 1], 1, 5),
      );
    });

    test('an invalid projection fails alone', async () => {
      await using host = await startTestHost(options);
      const b = await watchedBench(host, seen);
      const [input, state] = b.embeds(2);
      b.inferlet.send(b.queue, { op: 'embed-text', tokens: ids(1), positions: ids(0), embeds: ids(input!) });
      b.inferlet.send(b.queue, {
        op: 'forward',
        inPages: NONE,
        inEmbeds: ids(input!),
        outPages: NONE,
        outEmbeds: ids(state!),
      });
      // The vocabulary has 96 tokens.
      const outcomes = await Promise.all([
        b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state!, topK: 97 }),
        b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state!, topK: 3 }),
        b.inferlet.ask(b.queue, { op: 'entropy', embed: state! }),
      ]);
      assert.deepEqual(outcomes.map(tagOf), ['invalid-argument', 'ok', 'ok']);
    });
  });
}

test('a state has exactly the same distribution in its step and in a later projection', async () => {
  await using host = await startTestHost();
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const [input, state] = b.embeds(2);
  b.inferlet.send(b.queue, { op: 'embed-text', tokens: ids(5), positions: ids(0), embeds: ids(input!) });
  b.inferlet.send(b.queue, {
    op: 'forward',
    inPages: NONE,
    inEmbeds: ids(input!),
    outPages: NONE,
    outEmbeds: ids(state!),
  });
  const inStep = must(await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state!, topK: 90 }));
  assert.deepEqual(must(await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state!, topK: 90 })), inStep);
});

test('a step that fails also fails its followers in the batch, and leaves its slots empty', async () => {
  let isBroken = false;
  await using host = await startTestHost({
    wrap: (inner) =>
      wrapBackend(inner, {
        forward: (batch) => (isBroken ? Promise.reject(new Error('bus error')) : inner.forward(batch)),
      }),
  });
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const own = b.pages(2);
  must(await b.fill(own, PROMPT.slice(0, 5)));
  isBroken = true;
  const failed = await Promise.all([b.fill(own, PROMPT.slice(5, 8), 5), b.fill(own, PROMPT.slice(8), 8)]);
  assert.deepEqual(failed.map(tagOf), ['internal', 'internal']);
  isBroken = false;
  assert.equal(tagOf(await b.fill(own, [1], 5)), 'dependency-failed');
  assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'internal');
  must(await b.fill(own, PROMPT.slice(5), 5));
  same(
    await b.probe(own, 7, PROMPT.length),
    await b.oracle.top([...PROMPT, 7], [...range(0, PROMPT.length + 1)], 1, 5),
    'the slots were empty again',
  );
  const other = b.pages(2);
  must(await b.fill(other, PROMPT));
  same(
    await b.probe(other, 7, PROMPT.length),
    await b.probe(own, 7, PROMPT.length),
    'nothing of the failed calls was cached',
  );
});

test('a call that fails when it is prepared fails the calls that depend on it, and no call of another inferlet', async () => {
  await using host = await startTestHost();
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const neighbour = b.connection.openInferlet({ id: 'n', maxPages: 8, arrival: 2 });
  const queue = neighbour.createQueue('tiny');
  const theirs = must(neighbour.allocatePages(queue, 1));
  const own = b.pages(2);
  const step = { tokens: ids(1), positions: ids(0), inPages: theirs, outPages: theirs, mask: undefined, rows: 1 };
  const outcomes = await Promise.all([
    b.fill(own, [1, 2], 95),
    b.fill(own, [3], 2),
    neighbour.ask(queue, { op: 'step', request: { ...step, output: { tag: 'sample', val: GREEDY } } }),
  ]);
  assert.deepEqual(outcomes.map(tagOf), ['context-overflow', 'dependency-failed', 'ok']);
});

test('a call with an invalid result fails the calls of its batch that depend on it', async () => {
  let isPoisoned = false;
  await using host = await startTestHost({
    wrap: (inner) =>
      wrapBackend(inner, {
        async forward(batch) {
          const outputs = await inner.forward(batch);
          const [first] = outputs;
          if (isPoisoned && first?.kind === 'top') first.logProbabilities.fill(Number.NaN);
          return outputs;
        },
      }),
  });
  const b = new Workbench(host, await Oracle.of(host.model), await host.connect(), 'x');
  const own = b.pages(2);
  must(await b.fill(own, [1]));
  isPoisoned = true;
  const step = { tokens: ids(5), positions: ids(1), inPages: own, outPages: own, mask: undefined, rows: 1 };
  const outcomes = await Promise.all([
    b.inferlet.ask(b.queue, { op: 'step', request: { ...step, output: { tag: 'distributions', val: 2 } } }),
    b.fill(own, [9], 2),
  ]);
  isPoisoned = false;
  assert.deepEqual(outcomes.map(tagOf), ['internal', 'dependency-failed']);
  assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'internal');
  must(await b.fill(own, [7, 8], 1));
  same(await b.probe(own, 7, 3), await b.oracle.top([1, 7, 8, 7], [0, 1, 2, 3], 1, 5), 'none of their slots is filled');
});
