import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import fc from 'fast-check';
import type { BatchLimits } from '../select.ts';
import { schedules } from './operations.ts';
import type { BatchPolicy } from './policies.ts';
import { World } from './world.ts';

/** Number of random operations to check a property against. */
const OPERATIONS = process.env.PIE_TEST_ALL ? 100_000 : 30_000;
/** Maximum operations of one schedule. */
const MAX_LENGTH = 500;

/** Plays random schedules, {@link OPERATIONS} or more over all seeds, in a `World` that checks every rule. */
export function checkSchedules(
  t: TestContext,
  seeds: readonly number[],
  policies: fc.Arbitrary<BatchPolicy>,
  limits: fc.Arbitrary<BatchLimits>,
): void {
  let operations = 0;
  let batches = 0;
  let softJoins = 0;
  let projections = 0;
  for (const seed of seeds) {
    // Schedules have half of `MAX_LENGTH` on average; the factor 1.5 is a margin.
    const numRuns = Math.ceil((OPERATIONS / seeds.length / (MAX_LENGTH / 2)) * 1.5);
    fc.assert(
      fc.property(schedules(MAX_LENGTH), policies, limits, (schedule, policy, bounds) => {
        const world = new World(policy, bounds);
        for (const operation of schedule) world.apply(operation);
        world.drain();
        operations += schedule.length;
        batches += world.batches;
        softJoins += world.batcher.rides.softJoins;
        projections += world.batcher.rides.projections;
      }),
      { seed, numRuns },
    );
  }
  t.diagnostic(
    `seeds ${seeds.join(', ')}: ${operations} operations, ${batches} batches, ${softJoins} soft joins, ${projections} riding projections`,
  );
  assert.ok(operations >= OPERATIONS, `${operations} operations`);
}
