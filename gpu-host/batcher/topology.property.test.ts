import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Batcher } from './batcher.ts';
import type { BatchCall } from './call.ts';
import { Scoreboard } from './scoreboard.ts';
import { SimCall } from './testing/sim-call.ts';
import { mostYieldMs, yieldInTopology } from './topology.ts';
import { sortByUrgency, urgency } from './urgency.ts';

const AGING_MS = 20;
const RUNS = process.env.PIE_TEST_ALL ? 20_000 : 2_000;

const waiting = fc.array(
  fc.record({
    tenant: fc.constantFrom('one', 'two'),
    query: fc.nat({ max: 3 }),
    /** Undefined for a call of no workflow. */
    depth: fc.option(fc.constantFrom(0, 1, 2, 0xffff_ffff), { nil: undefined }),
    priority: fc.integer({ min: -3, max: 3 }),
    arrivedMs: fc.nat({ max: 100 }),
  }),
  { minLength: 2, maxLength: 24 },
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
      call.arrivedMs = one.arrivedMs;
      call.depth = depthOf(one);
      return call;
    });
}

function ordered(calls: readonly BatchCall[]): BatchCall[] {
  yieldInTopology(calls, AGING_MS);
  const order = [...calls];
  sortByUrgency(order, AGING_MS);
  return order;
}

/** Numbers of the calls ahead of each call of `order`, by the call's number. */
function aheadOf(order: readonly BatchCall[]): ReadonlyMap<number, ReadonlySet<number>> {
  return new Map(order.map((call, i) => [call.arrival, new Set(order.slice(0, i).map(({ arrival }) => arrival))]));
}

test('no call of another tenant, and none without a depth, gets a call ahead that had not been ahead without depths', () => {
  fc.assert(
    fc.property(waiting, (all) => {
      const plain = aheadOf(ordered(callsOf(all, () => undefined)));
      const calls = callsOf(all, ({ depth }) => depth);
      const aware = aheadOf(ordered(calls));
      for (const { arrival, depth } of calls) {
        for (const ahead of aware.get(arrival) ?? []) {
          // A call of a workflow yields, and so may fall behind any other.
          if (depth !== undefined) continue;
          assert.ok(plain.get(arrival)?.has(ahead), `call ${ahead} got ahead of ${arrival}`);
        }
      }
    }),
    { seed: 20261124, numRuns: RUNS },
  );
});

test('whatever depths a tenant claims, no call of another one counts later', () => {
  fc.assert(
    fc.property(waiting, fc.array(fc.nat(), { minLength: 1, maxLength: 5 }), (all, hostile) => {
      const honest = ordered(callsOf(all, ({ depth }) => depth));
      let claims = 0;
      const lying = ordered(
        callsOf(all, ({ tenant, depth }) => (tenant === 'one' ? hostile[claims++ % hostile.length] : depth)),
      );
      const urgencies = (calls: readonly BatchCall[]) =>
        new Map(calls.map((call) => [call.arrival, urgency(call, AGING_MS)]));
      const before = urgencies(honest);
      for (const call of lying) {
        const { arrivedMs, queue } = call;
        const own = arrivedMs - queue.priority * AGING_MS;
        if (queue.tenant === 'two') assert.equal(urgency(call, AGING_MS), before.get(call.arrival));
        else assert.ok(urgency(call, AGING_MS) >= own, 'a claim made a call more urgent');
      }
    }),
    { seed: 404, numRuns: RUNS },
  );
});

test('calls of workflows go by query, depth and arrival, as far as the bound on yielding allows', () => {
  fc.assert(
    fc.property(waiting, (all) => {
      const order = ordered(callsOf(all, ({ depth }) => depth)).filter(({ depth }) => depth !== undefined);
      for (const [i, call] of order.entries()) {
        assert.ok(call.yieldMs >= 0 && call.yieldMs <= mostYieldMs(call, AGING_MS));
        for (const later of order.slice(i + 1)) {
          if (later.queue.tenant !== call.queue.tenant) continue;
          const first =
            later.queue.query - call.queue.query ||
            (call.depth ?? 0) - (later.depth ?? 0) ||
            later.arrival - call.arrival;
          assert.ok(
            first > 0 || call.yieldMs === mostYieldMs(call, AGING_MS),
            'out of order without having yielded all',
          );
        }
      }
    }),
    { seed: 7, numRuns: RUNS },
  );
});
