import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Machines } from '#test/harness/machines.ts';
import { Network } from '#test/harness/network.ts';
import { type FaultRun, faultRun, SHAPE, startMachines } from './fault-runs.ts';
import { leavesCapacity, scheduleOf } from './fault-schedules.ts';

const RUNS = 100;
const SEED = 1;

test('a hundred schedules have every kind of fault, and most leave capacity', () => {
  const schedules = Array.from({ length: RUNS }, (_, i) => scheduleOf(SEED + i, SHAPE));
  const kinds = new Set(schedules.flat().map(({ fault }) => fault.kind));
  assert.deepEqual([...kinds].sort(), ['cut', 'disk', 'kill', 'mute', 'power', 'stop']);
  assert.deepEqual(new Set(schedules.flat().map(({ fault }) => fault.machine)).size, 1 + Object.keys(SHAPE).length);
  assert.ok(schedules.filter((schedule) => leavesCapacity(schedule, SHAPE)).length > RUNS / 2);
  assert.deepEqual(scheduleOf(7, SHAPE), scheduleOf(7, SHAPE));
});

const skip =
  Network.missingReason() || (!process.env.PIE_TEST_ALL && 'it takes a quarter of an hour; `npm run test:all` runs it');

describe('machines that fail', { skip }, () => {
  let machines: Machines;
  before(async () => {
    machines = await startMachines();
  });
  after(() => machines?.[Symbol.asyncDispose]());

  test(`in each of ${RUNS} schedules, every invocation ends once, its usage counts the stored tokens, and later ones succeed`, async (t) => {
    const runs: FaultRun[] = [];
    for (let seed = SEED; seed < SEED + RUNS; seed++) runs.push(await faultRun(machines, seed));
    const served = runs.filter((run) => run.leavesCapacity).flatMap(({ nextSuccessMs }) => nextSuccessMs);
    t.diagnostic(`next success where capacity was left: at most ${Math.round(Math.max(...served))} ms`);
  });
});
