import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Batcher } from './batcher.ts';
import { type BatchCall, Scoreboard } from './call.ts';
import { SimCall } from './testing/sim-call.ts';
import { mostYieldMs, sortByUrgency, takeTurnsInTopology } from './urgency.ts';

const AGING_MS = 20;
const RUNS = process.env.PIE_TEST_ALL ? 20_000 : 2_000;

const waiting = fc.array(
  fc.record({
    tenant: fc.constantFrom('one', 'two'),
    query: fc.nat({ max: 3 }),
    /** Undefined for a call outside workflows. */
    depth: fc.option(fc.constantFrom(0, 1, 2, 0xffff_ffff), { nil: undefined }),
    priority: fc.integer({ min: -3, max: 3 }),
    /** Up to 1.5 times as long as a call may yield. */
    arrivedMs: fc.nat({ max: 300 }),
  }),
  { minLength: 2, maxLength: 24, size: 'max' },
);

type Waiting = (typeof waiting extends fc.Arbitrary<infer T> ? T : never)[number];

/** Calls in order of arrival; the depths are those that `depthOf` gives. */
function callsOf(all: readonly Waiting[], depthOf: (one: Waiting) => number | undefined): BatchCall[] {
  const batcher = new Batcher();
  return all
    .toSorted((a, b) => a.arrivedMs - b.arrivedMs)
    .map((one, i) => {
      const { tenant, query, priority } = one;
      const queue = batcher.openQueue(new Scoreboard(), { tenant, query, maxPriority: 3 });
      batcher.setPriority(queue, priority);
      const call = new SimCall(queue, { kind: 'forward' });
      call.arrival = i;
      call.turn = i;
      call.arrivedMs = one.arrivedMs;
      call.depth = depthOf(one);
      return call;
    });
}

function orderOf(calls: readonly BatchCall[]): BatchCall[] {
  takeTurnsInTopology(calls.toReversed(), AGING_MS, 1);
  const order = [...calls];
  sortByUrgency(order, AGING_MS);
  return order;
}

/** For each place of an order, the call's number of arrival; for `marked` calls, which may exchange their turns, only their tenant and priority. */
const placesOf = (order: readonly BatchCall[], marked: ReadonlySet<number>): (string | number)[] =>
  order.map(({ arrival, queue }) => (marked.has(arrival) ? `${queue.tenant} ${queue.priority}` : arrival));

test('calls with a depth keep the places that their tenant has without depths, and every other call keeps its own', () => {
  fc.assert(
    fc.property(waiting, fc.array(fc.nat(), { minLength: 1, maxLength: 5 }), (all, hostile) => {
      let claims = 0;
      const calls = callsOf(all, ({ tenant, depth }) =>
        tenant === 'one' && depth !== undefined ? hostile[claims++ % hostile.length] : depth,
      );
      const marked = new Set(calls.flatMap(({ arrival, depth }) => (depth === undefined ? [] : [arrival])));
      const plain = callsOf(all, () => undefined);
      assert.deepEqual(placesOf(orderOf(calls), marked), placesOf(orderOf(plain), marked));
    }),
    { seed: 20261124, numRuns: RUNS },
  );
});

test('calls with a depth go by query, depth and arrival, as far as the bound on yielding allows', () => {
  fc.assert(
    fc.property(waiting, (all) => {
      const order = orderOf(callsOf(all, ({ depth }) => depth)).filter(({ depth }) => depth !== undefined);
      // A settled call keeps its turn, because another call of its group came later than the settled call may yield.
      const isSettled = (call: BatchCall) =>
        order.some(
          (other) =>
            other.queue.tenant === call.queue.tenant &&
            other.queue.priority === call.queue.priority &&
            other.arrivedMs > call.arrivedMs + mostYieldMs(call, AGING_MS),
        );
      for (const [i, call] of order.entries()) {
        assert.ok(call.yieldMs <= mostYieldMs(call, AGING_MS));
        if (isSettled(call)) continue;
        for (const later of order.slice(i + 1)) {
          if (later.queue.tenant !== call.queue.tenant || later.queue.priority !== call.queue.priority) continue;
          const difference =
            later.queue.query - call.queue.query ||
            (call.depth ?? 0) - (later.depth ?? 0) ||
            later.arrival - call.arrival;
          assert.ok(
            difference > 0 || isSettled(later),
            'out of order although neither call has yielded as long as it may',
          );
        }
      }
    }),
    { seed: 7, numRuns: RUNS },
  );
});

/** The calls in the order in which they leave a batcher with one call per batch, when they come over time. */
function leavingOrder(all: readonly Waiting[], depthOf: (one: Waiting, i: number) => number | undefined): SimCall[] {
  const batcher = new Batcher({
    limits: { maxCalls: 1, maxTokens: 8, agingMs: AGING_MS },
    grace: { maxMs: 0, stepShare: 0 },
  });
  const toCome = all.map((one, i) => ({ one, i })).sort((a, b) => a.one.arrivedMs - b.one.arrivedMs || a.i - b.i);
  const departed: SimCall[] = [];
  for (let nowMs = 0; departed.length < all.length; nowMs += STEP_MS) {
    while ((toCome[0]?.one.arrivedMs ?? Number.POSITIVE_INFINITY) <= nowMs) {
      const { one, i } = toCome.shift() as (typeof toCome)[number];
      const queue = batcher.openQueue(new Scoreboard(), { tenant: one.tenant, query: one.query, maxPriority: 3 });
      const depth = depthOf(one, i);
      if (depth !== undefined) batcher.setDepth(queue, depth);
      batcher.setPriority(queue, one.priority);
      batcher.push(new SimCall(queue, { kind: 'forward' }, `${i}`), nowMs);
    }
    const decision = batcher.next(nowMs);
    if (decision.kind !== 'batch') continue;
    for (const { call } of decision.batch.forwards) {
      batcher.finish(call, nowMs);
      departed.push(call as SimCall);
    }
    batcher.ended(nowMs);
  }
  return departed;
}

const STEP_MS = 7;

test('when calls come over time, no depth moves a call of another tenant or a call without a depth', () => {
  fc.assert(
    fc.property(waiting, fc.array(fc.nat(), { minLength: 1, maxLength: 5 }), (all, hostile) => {
      const plain = leavingOrder(all, () => undefined);
      const deep = leavingOrder(all, ({ depth }, i) => (depth === undefined ? undefined : hostile[i % hostile.length]));
      const others = (order: readonly SimCall[]) =>
        order.map(({ name, queue }) =>
          all[Number(name)]?.depth === undefined ? name : `${queue.tenant} ${queue.priority}`,
        );
      assert.deepEqual(others(deep), others(plain));
    }),
    { seed: 18, numRuns: RUNS / 4 },
  );
});
