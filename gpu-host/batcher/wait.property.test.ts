import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Flood, floodOperations, floodSetups } from './testing/flood.ts';
import { limits } from './testing/operations.ts';
import { checkSchedules } from './testing/suite.ts';

/** Number of random operations to check the bound against. */
const OPERATIONS = process.env.PIE_TEST_ALL ? 100_000 : 15_000;
/** Maximum operations of one schedule. */
const LENGTH = 600;

test('amid a flood of the highest priority every call leaves within its bound', (t) => {
  const seeds = [5, 20261122, 909, 65];
  let operations = 0;
  let settled = 0;
  for (const seed of seeds) {
    fc.assert(
      fc.property(floodSetups, floodOperations(LENGTH), (setup, schedule) => {
        const flood = new Flood(setup);
        for (const operation of schedule) flood.apply(operation);
        flood.drain();
        operations += schedule.length;
        settled += flood.settled;
      }),
      // Schedules have half of `LENGTH` on average; the factor 1.5 is a margin.
      { seed, numRuns: Math.ceil((OPERATIONS / seeds.length / (LENGTH / 2)) * 1.5) },
    );
  }
  t.diagnostic(`seeds ${seeds.join(', ')}: ${operations} operations, the bounds of ${settled} calls`);
  assert.ok(operations >= OPERATIONS, `${operations} operations`);
  assert.ok(settled >= OPERATIONS / 20, `the bounds of ${settled} calls`);
});

test('adaptive: the device never idles with ready calls beyond the grace, and no call that fits stays behind', (t) => {
  checkSchedules(t, [11, 20261123, 404, 8191], fc.constant({ kind: 'adaptive' }), limits);
});
