import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { PROTECTED_DEVICE_STEPS } from '#scheduler/policies/preemption.ts';
import type { Backend } from '../backends/backend.ts';
import { SharedPages } from '../protocol/client.ts';
import { RUN_WINDOW_TOKENS } from '../protocol/wire.ts';
import { type Guest, guest } from '../testing/guest.ts';
import { GREEDY, must, NONE, range, startTestHost, type TestHost, tagOf } from '../testing/host.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';

/*
 * A preempted inferlet's calls are held until its pages fit on the device again. In these tests the device is never idle while an older
 * inferlet runs, because a step takes longer than a turn of the event loop. A held call must still continue before the older run is done.
 */

const PAGES = 16;

/** @param stepMs time of a step of one input */
function slowHost(stepMs: number, pageCount = PAGES): Promise<TestHost> {
  const slow = async (inner: Backend, batch: Parameters<Backend['forward']>[0]) => {
    if (batch.every(({ positions }) => positions.length === 1)) await sleep(stepMs);
    return inner.forward(batch);
  };
  return startTestHost({
    pageCount,
    shape: { contextLength: 512 },
    model: { swapMemoryBytes: 1 << 20, prefixCache: false },
    wrap: (inner) => wrapBackend(inner, { forward: (batch) => slow(inner, batch) }),
  });
}

async function step({ inferlet, queue }: Guest, pages: Uint32Array, from: number, to: number): Promise<void> {
  const made = await inferlet.ask(queue, {
    op: 'step',
    request: {
      tokens: range(from + 1, to + 1),
      positions: range(from, to),
      mask: undefined,
      inPages: pages,
      outPages: pages,
      rows: 1,
      output: { tag: 'sample', val: GREEDY },
    },
  });
  must(made);
}

/** A run of `maxTokens` tokens, which is under way on return. */
async function startRun({ inferlet, queue }: Guest, pages: Uint32Array, position: number, maxTokens: number) {
  const request = { token: 1, position, pages, maxTokens, sampler: GREEDY, stopTokens: NONE };
  const run = inferlet.run(queue, request);
  must(await run.next());
  let ended = false;
  const done = (async () => {
    while (!must(await run.next()).finished);
    ended = true;
  })();
  return { run, done, hasEnded: () => ended };
}

const statsOf = (host: TestHost) => host.host.stats().models[0]!;

test('an inferlet that was preempted while it had no calls returns with its next call when there is room', async () => {
  await using host = await slowHost(5);
  const connection = await host.connect();
  const [older, newer] = [guest(connection, 1), guest(connection, 2)];
  const pages = must(newer.inferlet.allocatePages(newer.queue, 3));
  await step(newer, pages, 0, 20);
  const own = must(older.inferlet.allocatePages(older.queue, 15));
  await step(older, own, 0, 8);
  assert.deepEqual([statsOf(host).preemptions, statsOf(host).preempted], [1, 0]);
  older.inferlet.freePages(older.queue, own.slice(8));
  const run = await startRun(older, own.slice(0, 8), 8, 50);
  await step(newer, pages, 20, 21);
  assert.ok(!run.hasEnded(), 'the call waited for the run');
  await run.done;
});

test('a held inferlet goes on when an older one begins to wait', async () => {
  await using host = await slowHost(5);
  const connection = await host.connect();
  const [older, second, newer] = [guest(connection, 1), guest(connection, 2), guest(connection, 3)];
  const own = must(older.inferlet.allocatePages(older.queue, 8));
  const run = await startRun(older, own, 0, 60);
  const pages = must(second.inferlet.allocatePages(second.queue, 5));
  await step(second, pages, 0, 40);
  // The allocation and the step behind it are both held.
  const held = step(newer, must(newer.inferlet.allocatePages(newer.queue, 4)), 0, 20);
  while (statsOf(host).preempted === 0) await sleep(2);
  assert.equal(statsOf(host).preempted, 1);
  second.inferlet.setWaiting(true);
  await held;
  assert.ok(!run.hasEnded(), 'the call waited for the run');
  await run.done;
});

test('a family that was preempted and returned loses its protection even if it makes no steps', async () => {
  await using host = await slowHost(1);
  const connection = await host.connect();
  const [older, between, newer] = [guest(connection, 1), guest(connection, 2), guest(connection, 3)];
  const pages = must(newer.inferlet.allocatePages(newer.queue, 6));
  await step(newer, pages, 0, 40);
  const own = must(older.inferlet.allocatePages(older.queue, 14));
  older.inferlet.freePages(older.queue, own.slice(4));
  await step(older, own.slice(0, 4), 0, 8);
  // The newer inferlet was preempted, returns with this step, and then makes no more calls.
  await step(newer, pages, 40, 41);
  assert.equal(statsOf(host).preemptions, 1);
  let isHeld = true;
  must(between.inferlet.allocatePages(between.queue, 8));
  const done = between.inferlet.synchronize(between.queue).then(() => {
    isHeld = false;
  });
  const { batches } = statsOf(host);
  while (isHeld && statsOf(host).batches < batches + 3 * PROTECTED_DEVICE_STEPS) {
    const made = await older.inferlet.ask(older.queue, {
      op: 'step',
      request: {
        tokens: range(1, 2),
        positions: range(8, 9),
        mask: undefined,
        inPages: own.slice(0, 4),
        outPages: NONE,
        rows: 1,
        output: { tag: 'sample', val: GREEDY },
      },
    });
    must(made);
  }
  assert.ok(!isHeld, 'the call waits for a family that does nothing');
  await done;
});

test('a run that waits for its consumer ends when it is stopped, although its family is preempted', async () => {
  await using host = await slowHost(2, 48);
  const connection = await host.connect();
  const [older, newer] = [guest(connection, 1), guest(connection, 2)];
  const pages = must(newer.inferlet.allocatePages(newer.queue, 40));
  const request = { token: 1, position: 0, pages, maxTokens: 300, sampler: GREEDY, stopTokens: NONE };
  const stopped = newer.inferlet.run(newer.queue, request);
  while (statsOf(host).decodeTokens < RUN_WINDOW_TOKENS) await sleep(5);
  const own = must(older.inferlet.allocatePages(older.queue, 40));
  const run = await startRun(older, own, 0, 250);
  assert.equal(statsOf(host).preemptions, 1);
  stopped.stop();
  while (newer.inferlet.pendingCalls > 0 && !run.hasEnded()) await sleep(5);
  assert.ok(!run.hasEnded(), 'the stop waited for the run');
  await run.done;
});

test('a held inferlet goes on when the older one is quiet, while a third makes calls that need no step', async () => {
  await using host = await slowHost(1);
  const connection = await host.connect();
  const [older, newer, other] = [guest(connection, 1), guest(connection, 2), guest(connection, 3)];
  await step(older, must(older.inferlet.allocatePages(older.queue, 12)), 0, 90);
  let ended = false;
  const busy = (async () => {
    while (!ended) {
      const embeds = must(other.inferlet.allocateEmbeds(other.queue, 1));
      other.inferlet.freeEmbeds(other.queue, embeds);
      must(await other.inferlet.synchronize(other.queue));
      await sleep(3);
    }
  })();
  const pages = must(newer.inferlet.allocatePages(newer.queue, 8));
  await Promise.race([
    step(newer, pages, 0, 60),
    sleep(20_000, undefined, { ref: false }).then(() => assert.fail('the step is still held')),
  ]);
  ended = true;
  await busy;
});

test('closing a child that has a held call lets its family go on', async () => {
  await using host = await slowHost(5);
  const connection = await host.connect();
  const older = guest(connection, 1);
  const sharedPages = new SharedPages('root', PAGES);
  const [parent, child] = ['parent', 'child'].map((id): Guest => {
    const inferlet = connection.openInferlet({ id, maxPages: PAGES, arrival: 2, sharedPages });
    return { inferlet, queue: inferlet.createQueue('tiny') };
  });
  const run = await startRun(older, must(older.inferlet.allocatePages(older.queue, 14)), 0, 100);
  await step(parent!, must(parent!.inferlet.allocatePages(parent!.queue, 1)), 0, 4);
  const held = child!.inferlet.allocatePages(child!.queue, 4);
  const done = child!.inferlet.synchronize(child!.queue);
  while (statsOf(host).preempted === 0) await sleep(1);
  must(held);
  await child!.inferlet.close();
  assert.equal(tagOf(await done), 'cancelled');
  assert.equal(statsOf(host).preempted, 0);
  assert.ok(!run.hasEnded());
  await run.done;
});
