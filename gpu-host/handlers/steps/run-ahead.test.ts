import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SequenceInput } from '../../backends/backend.ts';
import type { DeviceClient, RunHandle } from '../../protocol/client.ts';
import { GREEDY, must, NONE, Oracle, range, startTestHost, tagOf } from '../../testing/host.ts';
import { SteppedDevice } from '../../testing/stepped-device.ts';
import { PROMPT } from '../../testing/workbench.ts';
import { wrapBackend } from '../../testing/wrapped-backend.ts';
import { type RowUnderWay, rowsAhead } from './run-ahead.ts';

const going = { maxTokens: 10, produced: 3, taken: 2, stopped: false };

test('the next step is handed over ahead when at least half of the rows are runs that continue with any token', () => {
  const rows = (...rows: RowUnderWay[]) => [...rowsAhead(rows, 4)];
  assert.deepEqual(rows(going), [0]);
  assert.deepEqual(rows(), []);
  assert.deepEqual(rows({ ...going, stopped: true }), []);
  assert.deepEqual(rows({ ...going, maxTokens: 4 }), [], 'the token under way is the last');
  assert.deepEqual(rows({ ...going, maxTokens: 5 }), [0]);
  assert.deepEqual(rows({ ...going, taken: 0 }), [], 'the run will wait for its inferlet');
  assert.deepEqual(rows({ ...going, taken: 1 }), [0]);
  assert.deepEqual(rows('ended', going, { ...going, stopped: true }, going), [1, 3], 'rows keep their places');
  assert.deepEqual(rows('ended', going, 'ended'), [], 'fewer than half');
  assert.deepEqual(rows(going, going, 'other'), [], 'the inferlet of the other call may call again by then');
});

function startRun(inferlet: DeviceClient, queue: number, token: number, maxTokens: number): RunHandle {
  const pages = must(inferlet.allocatePages(queue, Math.ceil(maxTokens / 8)));
  return inferlet.run(queue, { token, position: 0, pages, maxTokens, sampler: GREEDY, stopTokens: NONE });
}

async function read(run: RunHandle): Promise<number[]> {
  const tokens: number[] = [];
  for (;;) {
    const chunk = must(await run.next());
    tokens.push(...chunk.tokens);
    if (chunk.finished !== undefined) return tokens;
  }
}

test('the next step is handed over before the current one has ended, and a call that arrives waits for at most these two', async () => {
  const device = new SteppedDevice();
  await using host = await startTestHost({ wrap: device.wrap });
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'run', maxPages: 10, arrival: 1 });
  const runTokens = read(startRun(inferlet, inferlet.createQueue('tiny'), 5, 30));
  for (let step = 1; step < 6; step++) {
    await device.reaches(step + 1);
    assert.equal(device.underWay, 2);
    device.end();
  }
  await device.reaches(7);
  const other = connection.openInferlet({ id: 'step', maxPages: 10, arrival: 2 });
  const answer = other.ask(other.createQueue('tiny'), {
    op: 'step',
    request: {
      tokens: Uint32Array.from(PROMPT),
      positions: range(0, PROMPT.length),
      inPages: NONE,
      outPages: NONE,
      mask: undefined,
      rows: 1,
      output: { tag: 'sample', val: GREEDY },
    },
  });
  await connection.stats();
  assert.equal(device.batches.length, 7, 'nothing more was handed over when the call came');
  for (let ended = 0; ended < 2; ended++) {
    device.end();
    await connection.stats();
  }
  await device.reaches(8);
  assert.equal(device.batches[7]!.length, 2, 'the call shares the next step');
  assert.equal(device.underWay, 1, 'no step follows yet: the other inferlet may call again when this one ends');
  // An answered queue that stays open may send its next call: for some milliseconds the host hands no step over ahead.
  const closed = answer.then(() => other.close());
  const ended = Promise.all([answer, runTokens, closed]);
  let over = false;
  void ended.then(() => {
    over = true;
  });
  while (!over) {
    device.end();
    await connection.stats();
  }
  const [stepped, tokens] = await ended;
  assert.deepEqual([...must(stepped).tokens], await oracle.greedy(PROMPT, 1));
  assert.deepEqual(tokens, await oracle.greedy([5], 30));
  assert.equal(device.batches.length, 30);
  // On a busy machine, some steps have no step ahead behind them.
  assert.ok(host.host.stats().models[0]!.stepsAhead > 10);
});

test('a failed step fails its runs once, and the step behind it delivers to no run', async () => {
  for (const failing of [4, 5]) {
    let calls = 0;
    let isLost = false;
    await using host = await startTestHost({
      wrap: (inner) =>
        wrapBackend(inner, {
          async forward(batch: readonly SequenceInput[]) {
            const outputs = await inner.forward(batch);
            if (++calls === failing) isLost = true;
            if (isLost) throw new Error('lost');
            return outputs;
          },
        }),
    });
    const oracle = await Oracle.of(host.model);
    const connection = await host.connect();
    const inferlets = [1, 2, 3].map((i) => connection.openInferlet({ id: `${i}`, maxPages: 10, arrival: i }));
    const runs = inferlets.map((inferlet, i) => startRun(inferlet, inferlet.createQueue('tiny'), i, 20));
    for (const [i, run] of runs.entries()) {
      const tokens: number[] = [];
      for (;;) {
        const chunk = await run.next();
        if (chunk.tag === 'err') {
          assert.equal(tagOf(chunk), 'internal');
          break;
        }
        tokens.push(...chunk.val.tokens);
      }
      assert.deepEqual(tokens, (await oracle.greedy([i], 20)).slice(0, tokens.length));
    }
    isLost = false;
    const again = inferlets[0]!;
    const run = startRun(again, again.createQueue('tiny'), 7, 9);
    assert.deepEqual(await read(run), await oracle.greedy([7], 9));
    assert.equal(host.host.engines[0]!.stats.failedCalls, 3);
    await Promise.all(inferlets.map((inferlet) => inferlet.close()));
    assert.equal(host.host.stats().models[0]!.pages.owned, 0);
  }
});

test('a run of a queue that is stopped ends after the steps under way', async () => {
  const device = new SteppedDevice();
  await using host = await startTestHost({ wrap: device.wrap });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'run', maxPages: 10, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const run = startRun(inferlet, queue, 5, 30);
  await device.reaches(2);
  inferlet.send(queue, { op: 'stop-queue' });
  await connection.stats();
  const ended = async (): Promise<string> => {
    for (;;) {
      const outcome = await run.next();
      if (outcome.tag === 'err' || outcome.val.finished) return tagOf(outcome);
    }
  };
  assert.equal(await device.endUntil(connection, ended()), 'cancelled');
  assert.equal(device.batches.length, 2);
});

test('a run whose connection is closed, or whose engine stops, ends after the steps under way', async () => {
  const device = new SteppedDevice();
  await using host = await startTestHost({ wrap: device.wrap });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'run', maxPages: 10, arrival: 1 });
  startRun(inferlet, inferlet.createQueue('tiny'), 5, 60);
  await device.reaches(2);
  connection.close();
  const other = await host.connect();
  await other.stats();
  device.end();
  device.end();
  while (host.host.stats().models[0]!.pages.owned > 0) await other.stats();
  assert.equal(device.batches.length, 2);
  const last = other.openInferlet({ id: 'last', maxPages: 10, arrival: 2 });
  void startRun(last, last.createQueue('tiny'), 5, 60).next();
  await device.reaches(4);
  const stopped = host.host.engines[0]!.stop();
  device.end();
  device.end();
  await stopped;
  assert.equal(device.batches.length, 4);
});
