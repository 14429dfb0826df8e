import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Backend } from '../../backends/backend.ts';
import { type Guest, guest } from '../../testing/guest.ts';
import {
  GREEDY,
  generate,
  must,
  NONE,
  range,
  samplingStep,
  startTestHost,
  type TestHost,
  tagOf,
  until,
} from '../../testing/host.ts';
import { wrapBackend } from '../../testing/wrapped-backend.ts';

const PAGES = 16;
const SWAP = { swapMemoryBytes: 1 << 18, prefixCache: false };

/** A step of `tokens` from position 0 on, with the best token after them. */
async function prefill({ inferlet, queue }: Guest, pages: Uint32Array, tokens: readonly number[]): Promise<number> {
  return must(await inferlet.ask(queue, samplingStep(tokens, 0, pages))).tokens[0]!;
}

const statsOf = (host: TestHost) => host.host.stats().models[0]!;

test('a run of the newest inferlet is preempted for an older one, and goes on with the same tokens when that one has ended', async () => {
  await using host = await startTestHost({ pageCount: PAGES, shape: { contextLength: 128 }, model: SWAP });
  const connection = await host.connect();
  const [older, newer] = [guest(connection, 1), guest(connection, 2)];
  const pages = must(newer.inferlet.allocatePages(newer.queue, 10));
  const run = newer.inferlet.run(newer.queue, {
    token: 1,
    position: 0,
    pages,
    maxTokens: 80,
    sampler: GREEDY,
    stopTokens: NONE,
  });
  const made = [...must(await run.next()).tokens];
  const own = must(older.inferlet.allocatePages(older.queue, 14));
  await prefill(older, own, new Array(112).fill(9));
  const { preemptions, preempted, terminations } = statsOf(host);
  assert.deepEqual([preemptions, preempted, terminations], [1, 1, 0]);
  const { decodeTokens } = statsOf(host);
  await prefill(older, must(older.inferlet.allocatePages(older.queue, 1)), [3]);
  assert.ok(statsOf(host).decodeTokens <= decodeTokens + 1, 'the run stands still');
  await older.inferlet.close();
  for (let finished: string | undefined; !finished; ) {
    const chunk = must(await run.next());
    made.push(...chunk.tokens);
    finished = chunk.finished;
  }
  await newer.inferlet.close();
  const alone = guest(connection, 3);
  assert.deepEqual(made, await generate(alone.inferlet, alone.queue, [1], 80));
  await alone.inferlet.close();
  assert.deepEqual([statsOf(host).pages.free, statsOf(host).preempted], [PAGES, 0]);
});

test('a host reports the start and the end of a hold, also when the held or the running inferlet ends', async () => {
  await using host = await startTestHost({ pageCount: PAGES, shape: { contextLength: 512 }, model: SWAP });
  const connection = await host.connect();
  const holdChanges: string[] = [];
  const open = (arrival: number): Guest =>
    guest(connection, arrival, { onHeld: (isHeld) => holdChanges.push(`${arrival} ${isHeld}`) });
  const older = open(1);
  const own = must(older.inferlet.allocatePages(older.queue, 12));
  await prefill(older, own, new Array(90).fill(9));
  /** Keeps the device busy, so that held calls stay held. */
  const busy = async (isDone: () => boolean): Promise<void> => {
    const again = async () => {
      while (!isDone()) {
        const step = await older.inferlet.ask(older.queue, {
          op: 'step',
          request: {
            tokens: range(1, 60),
            positions: range(90, 149),
            mask: undefined,
            inPages: own,
            outPages: NONE,
            rows: 1,
            output: { tag: 'sample', val: GREEDY },
          },
        });
        if (step.tag === 'err') return;
      }
    };
    await Promise.all([again(), again(), again()]);
  };
  const grow = ({ inferlet, queue }: Guest) => {
    must(inferlet.allocatePages(queue, 8));
    must(inferlet.allocatePages(queue, 1));
    return inferlet.synchronize(queue);
  };

  let ended = false;
  const working = busy(() => ended);
  const [second, third] = [open(2), open(3)];
  const [secondGrown, thirdGrown] = [grow(second), grow(third)];
  await until(() => holdChanges.length === 2);
  assert.deepEqual(holdChanges.splice(0), ['2 true', '3 true']);
  await third.inferlet.close();
  assert.deepEqual(holdChanges.splice(0), ['3 false'], 'the end of a held inferlet ends its hold');
  assert.equal(tagOf(await thirdGrown), 'cancelled');
  ended = true;
  await working;
  await older.inferlet.close();
  must(await secondGrown);
  assert.deepEqual(holdChanges.splice(0), ['2 false']);
  await second.inferlet.close();
  assert.deepEqual(holdChanges, []);
});

test('the loss of the connection to a host ends the holds of its inferlets', async () => {
  let isOver = false;
  // Steps of one token last until the connection is lost.
  const forward = async (inner: Backend, batch: Parameters<Backend['forward']>[0]) => {
    while (!isOver && batch[0]?.positions.length === 1) await sleep(1);
    return inner.forward(batch);
  };
  const wrap = (inner: Backend): Backend => wrapBackend(inner, { forward: (batch) => forward(inner, batch) });
  await using host = await startTestHost({ pageCount: PAGES, model: SWAP, wrap });
  const connection = await host.connect();
  const holdChanges: boolean[] = [];
  const [older, newer] = [guest(connection, 1), guest(connection, 2, { onHeld: (isHeld) => holdChanges.push(isHeld) })];
  const pages = must(newer.inferlet.allocatePages(newer.queue, 8));
  await prefill(newer, pages, [1, 2, 3]);
  const own = must(older.inferlet.allocatePages(older.queue, 12));
  await prefill(older, own, [1, 2, 3]);
  const step = (by: Guest, at: Uint32Array, position: number) =>
    by.inferlet.ask(by.queue, samplingStep([4], position, at));
  const answers = [step(newer, pages, 3), step(older, own, 3)];
  await until(() => holdChanges.length === 1);
  connection.close();
  isOver = true;
  assert.deepEqual(holdChanges, [true, false]);
  for (const answer of await Promise.all(answers)) assert.equal(tagOf(answer), 'unavailable');
});

test('a call waits for memory that an older inferlet holds, and ends when its own inferlet closes', async () => {
  let openGate = (): void => {};
  const gate = new Promise<void>((resolve) => {
    openGate = resolve;
  });
  // The older inferlet's run keeps the device busy until both others are held; from then on a step waits for the gate.
  const areBothHeld = () => host.host.engines[0]?.memory.stats().preempted === 2;
  const forward = async (inner: Backend, batch: Parameters<Backend['forward']>[0]) => {
    await (areBothHeld() ? gate : sleep(5));
    return inner.forward(batch);
  };
  const wrap = (inner: Backend): Backend => wrapBackend(inner, { forward: (batch) => forward(inner, batch) });
  await using host = await startTestHost({ pageCount: PAGES, model: SWAP, wrap });
  const connection = await host.connect();
  const [older, second, third] = [guest(connection, 1), guest(connection, 2), guest(connection, 3)];
  const own = must(older.inferlet.allocatePages(older.queue, 12));
  const text = range(1, 90);
  const run = older.inferlet.run(older.queue, {
    token: 1,
    position: 0,
    pages: own,
    maxTokens: 90,
    sampler: GREEDY,
    stopTokens: NONE,
  });
  const [secondAnswer, thirdAnswer] = [second, third].map(({ inferlet, queue }) => {
    const pages = must(inferlet.allocatePages(queue, 8));
    return inferlet.ask(queue, samplingStep(text.slice(0, 60), 0, pages));
  });
  await until(areBothHeld);
  const closed = third.inferlet.close();
  openGate();
  await closed;
  assert.notEqual(tagOf(await thirdAnswer!), 'ok');
  while (!must(await run.next()).finished);
  await older.inferlet.close();
  must(await secondAnswer!);
  await second.inferlet.close();
  host.host.engines[0]!.memory.audit();
  assert.equal(statsOf(host).pages.free, PAGES);
  assert.equal(statsOf(host).terminations, 0);
});

test('a preempted call gives its adapter back, so that an older inferlet gets another adapter while the device is busy', async () => {
  const adapters = { first: { seed: 3, rank: 2 }, second: { seed: 4, rank: 2 } };
  await using probe = await startTestHost({ adapters });
  const adapterMemoryBytes = probe.adapters.get('first')!.bytes;
  const isOlderThere = () => {
    const spaces = [...(host.host.engines[0]?.spaces ?? [])];
    return spaces.some(({ owner, scoreboard }) => owner.arrival === 2 && scoreboard.size > 0);
  };
  let hasBegun = false;
  // The first part of the newer inferlet's prompt lasts until the calls of the older one have come.
  const forward = async (inner: Backend, batch: Parameters<Backend['forward']>[0]) => {
    if (!hasBegun && batch.some(({ adapter }) => adapter)) {
      hasBegun = true;
      await until(isOlderThere);
    }
    return inner.forward(batch);
  };
  const wrap = (inner: Backend): Backend => wrapBackend(inner, { forward: (batch) => forward(inner, batch) });
  const model = { ...SWAP, adapterMemoryBytes, maxBatchTokens: 20 };
  await using host = await startTestHost({ pageCount: PAGES, adapters, wrap, model });
  const connection = await host.connect();
  const [busy, older, newer] = [guest(connection, 1), guest(connection, 2), guest(connection, 3)];
  const step = ({ inferlet, queue }: Guest, adapter: string | undefined, inPages: Uint32Array, outPages = inPages) => {
    const tokens = adapter ? range(1, 61) : Uint32Array.of(5);
    const request = { tokens, positions: range(0, tokens.length), mask: undefined, inPages, outPages, rows: 1 };
    const wanted = { output: { tag: 'sample' as const, val: GREEDY }, ...(adapter ? { adapter } : {}) };
    return inferlet.ask(queue, { op: 'step', request: { ...request, ...wanted } });
  };
  const pages = must(newer.inferlet.allocatePages(newer.queue, 8));
  const prompt = step(newer, 'first', pages);
  await until(() => hasBegun);
  let answered = false;
  const answer = step(older, 'second', must(older.inferlet.allocatePages(older.queue, 12))).finally(() => {
    answered = true;
  });
  const deadlineMs = performance.now() + 120_000;
  while (!answered && performance.now() < deadlineMs) must(await step(busy, undefined, NONE));
  assert.ok(answered, 'the older inferlet got its adapter although the device was never idle');
  assert.equal(statsOf(host).preemptions, 1);
  const olderTokens = must(await answer).tokens;
  await older.inferlet.close();
  const newerTokens = must(await prompt).tokens;
  await newer.inferlet.close();
  const alone = guest(connection, 2);
  for (const [adapter, expected] of [
    ['first', newerTokens],
    ['second', olderTokens],
  ] as const) {
    const own = must(alone.inferlet.allocatePages(alone.queue, 8));
    assert.deepEqual(must(await step(alone, adapter, own)).tokens, expected);
    alone.inferlet.freePages(alone.queue, own);
  }
});

test('a held inferlet goes on when the older ones neither call nor wait, and the older ones get their pages back later', async () => {
  await using host = await startTestHost({ pageCount: PAGES, model: SWAP });
  const connection = await host.connect();
  const [older, newer] = [guest(connection, 1), guest(connection, 2)];
  const own = must(older.inferlet.allocatePages(older.queue, 12));
  const text = [...range(1, 80)];
  await prefill(older, own, text);
  const pages = must(newer.inferlet.allocatePages(newer.queue, 10));
  const said = await prefill(newer, pages, text.slice(0, 70));
  assert.ok(statsOf(host).swapsOut > 0, 'the older one made room');
  const again = await older.inferlet.ask(older.queue, samplingStep([5], 79, own));
  await Promise.all([older.inferlet.close(), newer.inferlet.close()]);
  const alone = guest(connection, 3);
  assert.deepEqual(await generate(alone.inferlet, alone.queue, [...text, 5], 1), [...must(again).tokens]);
  assert.deepEqual(await generate(alone.inferlet, alone.queue, text.slice(0, 70), 1), [said]);
  assert.equal(statsOf(host).terminations, 0);
});
