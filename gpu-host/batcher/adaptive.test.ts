import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULT_GRACE, graceMs } from './adaptive.ts';
import { Batcher } from './batcher.ts';
import { BatchQueue, Scoreboard } from './call.ts';
import { AwaitedQueues, learnResponse } from './departure.ts';
import { SimCall } from './testing/sim-call.ts';

/** Duration of a client's absence in `simulate`. */
const AWAY_MS = 60;
/** Steps at the start of `simulate` that its results leave out. */
const WARM_UP_STEPS = 10;

test('the wait is bounded by the policy, and by the time that it can save', () => {
  const grace = ({ ready, losing, stepMs }: { ready: number; losing: number; stepMs: number }) =>
    graceMs(DEFAULT_GRACE, ready, losing, stepMs);
  assert.equal(grace({ ready: 0, losing: 5, stepMs: 10 }), 0);
  assert.equal(grace({ ready: 5, losing: 0, stepMs: 10 }), 0);
  assert.equal(grace({ ready: 16, losing: 16, stepMs: 20 }), 10, 'the maximum of the policy');
  assert.equal(grace({ ready: 16, losing: 16, stepMs: 2 }), 2, 'one step');
  assert.equal(grace({ ready: 32, losing: 1, stepMs: 3.2 }), 0.1, 'a step divided by the ready calls');
});

test('a queue is late after twice its usual response time and half a millisecond', () => {
  const awaited = new AwaitedQueues(10);
  const queue = new BatchQueue(new Scoreboard(), 0, '', 0);
  awaited.answered(queue, 0);
  awaited.came(queue, 2);
  awaited.answered(queue, 10);
  assert.deepEqual(awaited.within(10, 10), { count: 1, leftMs: 4.5 });
  assert.deepEqual(awaited.within(10, 14.5), { count: 0, leftMs: 0 });
});

test('the learned response time moves halfway to each new one', () => {
  assert.equal(learnResponse(undefined, 4), 4);
  assert.equal(learnResponse(4, 0), 2);
  assert.equal(learnResponse(2, 4), 3);
});

interface Client {
  readonly queue: BatchQueue;
  readonly thinkMs: number;
  nextMs: number;
  readonly awayEvery: number;
  calls: number;
}

/**
 * Clients in a closed loop: each sends its next call `thinkMs` after a result, but `AWAY_MS` after every `awayEvery`th result. Returns the mean
 * batch size after the warm-up, and the calls per millisecond. A step takes 5 ms plus 0.05 ms per sequence.
 */
function simulate(
  clients: readonly { thinkMs: number; startMs: number; awayEvery?: number }[],
  grace: { maxMs: number; stepShare: number },
  steps: number,
): { mean: number; rate: number } {
  const batcher = new Batcher({ grace });
  const all: Client[] = clients.map(({ thinkMs, startMs, awayEvery = Number.POSITIVE_INFINITY }, i) => ({
    queue: batcher.openQueue(new Scoreboard()),
    thinkMs,
    nextMs: startMs,
    awayEvery,
    // Clients begin at different counts, so that they are away at different times.
    calls: i,
  }));
  const owner = new Map(all.map((client) => [client.queue, client]));
  let nowMs = 0;
  let sequences = 0;
  let counted = 0;
  const arrive = (): void => {
    for (const client of all) {
      if (client.nextMs > nowMs) continue;
      batcher.push(new SimCall(client.queue, { kind: 'forward' }), client.nextMs);
      client.nextMs = Number.POSITIVE_INFINITY;
    }
  };
  for (let step = 0; step < steps; ) {
    arrive();
    const decision = batcher.next(nowMs);
    const soonest = Math.min(...all.map((client) => client.nextMs));
    if (decision.kind === 'idle') {
      nowMs = soonest;
      continue;
    }
    if (decision.kind === 'wait') {
      nowMs = Math.min(soonest, nowMs + decision.ms);
      continue;
    }
    const size = decision.batch.forwards.length;
    nowMs += 5 + 0.05 * size;
    for (const { call } of decision.batch.forwards) {
      batcher.finish(call, nowMs);
      const client = owner.get(call.queue)!;
      client.calls++;
      client.nextMs = nowMs + (client.calls % client.awayEvery === 0 ? AWAY_MS : client.thinkMs);
    }
    batcher.ended(nowMs);
    if (step++ < WARM_UP_STEPS) continue;
    sequences += size;
    counted++;
  }
  return { mean: sequences / counted, rate: sequences / nowMs };
}

const meanBatchSize = (...setup: Parameters<typeof simulate>): number => simulate(...setup).mean;

test('two groups that started apart come together', () => {
  const clients = Array.from({ length: 32 }, (_, i) => ({ thinkMs: 0.1 + i * 0.01, startMs: i < 16 ? 0 : 3 }));
  assert.ok(meanBatchSize(clients, { maxMs: 0, stepShare: 0 }, 100) <= 17, 'without the grace they alternate for ever');
  const together = meanBatchSize(clients, DEFAULT_GRACE, 100);
  assert.ok(together >= 30, `mean batch ${together}`);
});

test('latecomers join a group whose calls come one after another', () => {
  // Inferlets of one thread behave like this. A step of all 32 takes 6.6 ms, and the last one asks for its next step 5.15 ms after its result.
  const clients = Array.from({ length: 32 }, (_, i) => ({ thinkMs: 0.5 + 0.15 * i, startMs: i < 2 ? 8 : 0 }));
  const together = meanBatchSize(clients, DEFAULT_GRACE, 100);
  assert.ok(together >= 31, `mean batch ${together}`);
});

test('a group that is slower than a step waits for quick latecomers', () => {
  const clients = Array.from({ length: 32 }, (_, i) => ({ thinkMs: i < 2 ? 2 : 7 + 0.02 * i, startMs: i < 2 ? 4 : 0 }));
  // The two quick clients have a step alone while the others think. The next step must have all clients, or the groups miss each other for ever.
  const together = meanBatchSize(clients, DEFAULT_GRACE, 100);
  assert.ok(together >= 16.9, `mean batch ${together}; steps of 2 and of 32 in turns have 17`);
});

test('the waits pay although quick clients are away now and then', () => {
  const clients = Array.from({ length: 32 }, (_, i) => ({
    thinkMs: 0.5 + 0.03 * i,
    startMs: 0,
    awayEvery: 9 + (i % 7),
  }));
  const { rate } = simulate(clients, DEFAULT_GRACE, 1000);
  const { rate: without } = simulate(clients, { maxMs: 0, stepShare: 0 }, 1000);
  assert.ok(rate >= 1.14 * without, `${rate} calls a millisecond, ${without} without any wait`);
});

test('a call of a queue that was never answered prolongs no wait', () => {
  const batcher = new Batcher();
  const [ready, awaited, other] = [0, 1, 2].map(() => batcher.openQueue(new Scoreboard())) as [
    BatchQueue,
    BatchQueue,
    BatchQueue,
  ];
  const calls = [ready, awaited].map((queue) => new SimCall(queue, { kind: 'forward' }));
  for (const call of calls) batcher.push(call, 0);
  assert.equal(batcher.next(0).kind, 'batch');
  for (const call of calls) batcher.finish(call, 8);
  batcher.ended(8);
  // With 16 ready calls, a wait for one more pays for half a millisecond: a sixteenth of the step's eight.
  for (let i = 0; i < 16; i++)
    batcher.push(new SimCall(i === 0 ? ready : batcher.openQueue(new Scoreboard()), { kind: 'forward' }), 8.1);
  const { ms } = batcher.next(8.1) as { ms: number };
  batcher.push(new SimCall(other, { kind: 'instant' }), 8.3);
  const later = batcher.next(8.3) as { ms: number };
  // 0.2 ms have passed between the two decisions.
  assert.ok(Math.abs(ms - later.ms - 0.2) < 1e-9, `${ms} ms, then ${later.ms} ms`);
});

test('a call of a slow queue prolongs no wait', () => {
  const batcher = new Batcher();
  const queues = Array.from({ length: 18 }, () => batcher.openQueue(new Scoreboard()));
  const [slow, awaited, ...ready] = queues as [BatchQueue, BatchQueue, ...BatchQueue[]];
  const forwards = (of: readonly BatchQueue[]) => of.map((queue) => new SimCall(queue, { kind: 'forward' }));
  const step = (of: readonly BatchQueue[], beginMs: number, endMs: number) => {
    const calls = forwards(of);
    for (const call of calls) batcher.push(call, beginMs);
    assert.equal(batcher.next(beginMs).kind, 'batch');
    for (const call of calls) batcher.finish(call, endMs);
    batcher.ended(endMs);
  };
  // The slow queue sends its second call 100 ms after its first result, and no batch waits for this queue from then on.
  step([slow], 0, 8);
  step([slow, awaited], 108, 116);
  for (const call of forwards(ready)) batcher.push(call, 116.1);
  const { ms } = batcher.next(116.1) as { ms: number };
  batcher.push(new SimCall(slow, { kind: 'instant' }), 116.3);
  const later = batcher.next(116.3) as { ms: number };
  assert.ok(Math.abs(ms - later.ms - 0.2) < 1e-9, `${ms} ms, then ${later.ms} ms`);
});

test('the policy waits for queues that return within a step, and for no others', () => {
  // A step with one sequence takes 5.05 ms.
  const twins = (thinkMs: number) => [
    { thinkMs, startMs: 0 },
    { thinkMs, startMs: 3 },
  ];
  assert.ok(meanBatchSize(twins(3), DEFAULT_GRACE, 200) >= 1.9);
  assert.ok(meanBatchSize(twins(3), { maxMs: 1, stepShare: 0.25 }, 200) <= 1.1);
  assert.ok(meanBatchSize(twins(8), DEFAULT_GRACE, 200) <= 1.1);
});

test('the policy does not wait for slow clients', () => {
  const quick = Array.from({ length: 8 }, () => ({ thinkMs: 0.1, startMs: 0 }));
  const slow = Array.from({ length: 8 }, (_, i) => ({ thinkMs: 200 + i, startMs: 0 }));
  assert.ok(meanBatchSize([...quick, ...slow], DEFAULT_GRACE, 300) >= 8);
  // Batches wait for a slow client only until its first slow response, so the quick clients lose next to nothing.
  const batcher = new Batcher();
  const queue = batcher.openQueue(new Scoreboard());
  const other = batcher.openQueue(new Scoreboard());
  let nowMs = 0;
  let waits = 0;
  for (let round = 0; round < 20; round++) {
    batcher.push(new SimCall(queue, { kind: 'forward' }), nowMs);
    if (round % 5 === 0) batcher.push(new SimCall(other, { kind: 'forward' }), nowMs);
    let decision = batcher.next(nowMs);
    while (decision.kind === 'wait') {
      waits++;
      nowMs += decision.ms;
      decision = batcher.next(nowMs);
    }
    assert.equal(decision.kind, 'batch');
    nowMs += 5;
    if (decision.kind === 'batch') for (const { call } of decision.batch.forwards) batcher.finish(call, nowMs);
    batcher.ended(nowMs);
    nowMs += 0.05;
  }
  assert.ok(waits <= 3, `${waits} waits for a queue that comes back after 20 ms`);
});
