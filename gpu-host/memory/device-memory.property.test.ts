import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from 'fast-check';
import { type Operation, type Setting, schedules, setting } from './testing/schedule.ts';
import { shrink } from './testing/shrink.ts';
import { World } from './testing/world.ts';

const SEEDS = [20261120, 7, 1001, 424242, 99];
const SCHEDULES = process.env.PIE_TEST_ALL ? 60 : 10;
const SCHEDULE_LENGTH = 500;
/** Operations between two full comparisons with the oracle. */
const BATCH = 8;

/** Totals of all schedules. Each must exceed 100 for the test to have covered it. For `taken` and `known` see `World`. */
const totals = {
  operations: 0,
  refused: 0,
  ended: 0,
  taken: 0,
  known: 0,
  pins: 0,
  leasesEnded: 0,
  swapsIn: 0,
  swapsOut: 0,
  evictions: 0,
};

function run(setting: Setting, schedule: readonly Operation[]): World {
  const world = new World(setting);
  try {
    for (const [i, operation] of schedule.entries()) {
      world.apply(operation);
      if (i % BATCH === 0) world.compare();
    }
    world.close();
    return world;
  } finally {
    world.kit.swap?.close();
  }
}

function attempt(setting: Setting, schedule: readonly Operation[]): { world: World } | { error: unknown } {
  try {
    return { world: run(setting, schedule) };
  } catch (error) {
    return { error };
  }
}

for (const seed of SEEDS) {
  test(`after any schedule, pages have the content that they would have without sharing, caching and swap (seed ${seed})`, () => {
    for (const [config, schedule] of fc.sample(fc.tuple(setting, schedules(SCHEDULE_LENGTH)), {
      seed,
      numRuns: SCHEDULES,
    })) {
      const outcome = attempt(config, schedule);
      if ('error' in outcome) throw failure(seed, config, schedule);
      count(outcome.world);
    }
  });
}

/** An error with the shortest part of the schedule that still fails, and its cause. */
function failure(seed: number, config: Setting, schedule: readonly Operation[]): Error {
  const shortest = shrink(schedule, (shorter) => 'error' in attempt(config, shorter));
  const outcome = attempt(config, shortest);
  const steps = shortest.map((operation) => JSON.stringify(operation)).join('\n');
  return new Error(`seed ${seed}: ${JSON.stringify(config)}\n${steps}`, {
    cause: 'error' in outcome ? outcome.error : undefined,
  });
}

function count({ counts, kit }: World): void {
  const { swapsIn, swapsOut, prefix } = kit.memory.stats();
  totals.operations += counts.operations;
  totals.refused += counts.refused;
  totals.ended += counts.terminated;
  totals.taken += counts.taken;
  totals.known += counts.known;
  totals.pins += counts.pins;
  totals.leasesEnded += kit.memory.snapshots.leases.endedEarlyCount;
  totals.swapsIn += swapsIn;
  totals.swapsOut += swapsOut;
  totals.evictions += prefix.evictions;
}

after(() => {
  process.stdout.write(`# ${JSON.stringify({ seeds: SEEDS, ...totals })}\n`);
  assert.equal(totals.operations, SEEDS.length * SCHEDULES * SCHEDULE_LENGTH);
  for (const [what, count] of Object.entries(totals)) assert.ok(count > 100, `only ${count} ${what} in all schedules`);
});
