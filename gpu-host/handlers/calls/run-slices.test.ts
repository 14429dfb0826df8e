import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Backend } from '../../backends/backend.ts';
import type { DeviceClient, RunHandle } from '../../protocol/client.ts';
import { RUN_WINDOW_TOKENS } from '../../protocol/wire.ts';
import { GREEDY, must, NONE, Oracle, startTestHost, tagOf } from '../../testing/host.ts';
import { wrapBackend } from '../../testing/wrapped-backend.ts';
import { RUN_SLICE_MS } from './run-slices.ts';

function pagesFor(inferlet: DeviceClient, queue: number, maxTokens: number): Uint32Array {
  return must(inferlet.allocatePages(queue, Math.ceil(maxTokens / 8)));
}

function startRun(
  inferlet: DeviceClient,
  queue: number,
  token: number,
  maxTokens: number,
  pages = pagesFor(inferlet, queue, maxTokens),
): RunHandle {
  return inferlet.run(queue, { token, position: 0, pages, maxTokens, sampler: GREEDY, stopTokens: NONE });
}

/** Lets a backend compute a number of steps, and holds the others. */
class Steps {
  #allowed: number;
  #computed = 0;
  #more = Promise.withResolvers<void>();

  constructor(allowed: number) {
    this.#allowed = allowed;
  }

  allow(total: number): void {
    this.#allowed = total;
    this.#more.resolve();
    this.#more = Promise.withResolvers();
  }

  limit(inner: Backend): Backend {
    return wrapBackend(inner, {
      forward: async (batch) => {
        while (this.#computed >= this.#allowed) await this.#more.promise;
        this.#computed++;
        return inner.forward(batch);
      },
    });
  }
}

test('a run hands over its first token at once, later ones when their slice ends, and the last ones with its end', async (t) => {
  const steps = new Steps(6);
  await using host = await startTestHost({ wrap: (inner) => steps.limit(inner) });
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'run', maxPages: 10, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  // From here on a slice ends only when the test says so.
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const run = startRun(inferlet, queue, 5, 20);
  const expected = await oracle.greedy([5], 20);
  assert.deepEqual([...must(await run.next()).tokens], expected.slice(0, 1));
  const second = run.next();
  const { spaces } = host.host.engines[0]!;
  const produced = (): number => [...[...spaces][0]!.runs.values()].reduce((sum, open) => sum + open.produced, 0);
  while (produced() < 6) await connection.stats();
  assert.equal(await Promise.race([second, connection.stats().then(() => 'kept')]), 'kept');
  t.mock.timers.tick(RUN_SLICE_MS - 1);
  assert.equal(await Promise.race([second, connection.stats().then(() => 'kept')]), 'kept');
  t.mock.timers.tick(1);
  assert.deepEqual([...must(await second).tokens], expected.slice(1, 6));
  steps.allow(Number.POSITIVE_INFINITY);
  const rest = must(await run.next());
  assert.deepEqual(
    [...rest.tokens],
    expected.slice(6),
    'no slice ends: the end of the run brings the remaining tokens',
  );
  assert.equal(rest.finished, 'max-tokens');
  // The connection began timers before the mock. Only the real `clearTimeout` can clear these, so it must be back
  // before the close.
  t.mock.timers.reset();
  await inferlet.close();
});

test('a piped run hands over its tokens in even slices: each begins where the previous one ended', async (t) => {
  const steps = new Steps(6);
  await using host = await startTestHost({ wrap: (inner) => steps.limit(inner) });
  const expected = await (await Oracle.of(host.model)).greedy([5], 20);
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'run', maxPages: 10, arrival: 1 });
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const run = startRun(inferlet, inferlet.createQueue('tiny'), 5, 20);
  // From now on, a client reads the text of the run as it comes.
  run.piped();
  const { spaces } = host.host.engines[0]!;
  const produced = (): number => [...[...spaces][0]!.runs.values()].reduce((sum, open) => sum + open.produced, 0);
  assert.deepEqual([...must(await run.next()).tokens], expected.slice(0, 1));
  while (produced() < 6) await connection.stats();
  const second = run.next();
  t.mock.timers.tick(RUN_SLICE_MS);
  assert.deepEqual([...must(await second).tokens], expected.slice(1, 6));
  // No token comes for most of the next slice.
  t.mock.timers.tick(RUN_SLICE_MS - 1);
  steps.allow(8);
  while (produced() < 8) await connection.stats();
  const third = run.next();
  t.mock.timers.tick(1);
  assert.deepEqual([...must(await third).tokens], expected.slice(6, 8));
  steps.allow(Number.POSITIVE_INFINITY);
  assert.deepEqual([...must(await run.next()).tokens], expected.slice(8));
  t.mock.timers.reset();
  await inferlet.close();
});

test('runs of several inferlets hand over together; a run that fails hands over its tokens first', async (t) => {
  let steps = 0;
  await using host = await startTestHost({
    wrap: (inner) =>
      wrapBackend(inner, {
        async forward(batch) {
          if (++steps === 9) throw new Error('lost');
          return inner.forward(batch);
        },
      }),
  });
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const starts = [3, 4, 5];
  const inferlets = starts.map((start) => connection.openInferlet({ id: `${start}`, maxPages: 10, arrival: start }));
  const queues = inferlets.map((inferlet) => inferlet.createQueue('tiny'));
  // Allocate the pages of all runs before the first run starts. Otherwise the host may compute steps of one run while
  // it still allocates the pages of the others, and the runs would not have equally many tokens at the failure.
  const pages = inferlets.map((inferlet, i) => pagesFor(inferlet, queues[i] as number, 20));
  await Promise.all(inferlets.map((inferlet, i) => inferlet.synchronize(queues[i] as number)));
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const runs = inferlets.map((inferlet, i) =>
    startRun(inferlet, queues[i] as number, starts[i] as number, 20, pages[i]),
  );
  for (const [i, run] of runs.entries()) {
    const tokens = [...must(await run.next()).tokens];
    const failed = await run.next();
    if (failed.tag === 'ok') tokens.push(...failed.val.tokens);
    assert.equal(tagOf(failed.tag === 'ok' ? await run.next() : failed), 'internal');
    assert.deepEqual(tokens, await oracle.greedy([starts[i] as number], 8), 'all tokens computed before the failure');
  }
  t.mock.timers.reset();
  await Promise.all(inferlets.map((inferlet) => inferlet.close()));
});

test('a run that keeps many tokens hands them over before its slice ends, so that its consumer can report its progress', async (t) => {
  await using host = await startTestHost({ shape: { contextLength: 2048 }, pageCount: 256 });
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'run', maxPages: 256, arrival: 1 });
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const count = 3 * RUN_WINDOW_TOKENS;
  const run = startRun(inferlet, inferlet.createQueue('tiny'), 5, count);
  const tokens: number[] = [];
  for (let finished: string | undefined; !finished; ) {
    const chunk = must(await run.next());
    tokens.push(...chunk.tokens);
    finished = chunk.finished;
  }
  assert.equal(tokens.length, count);
  assert.deepEqual(tokens.slice(0, 64), await oracle.greedy([5], 64));
  t.mock.timers.reset();
  await inferlet.close();
});
