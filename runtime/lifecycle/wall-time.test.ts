import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { Stop } from './stopping.ts';
import { HeldTime, WallTime } from './wall-time.ts';

const LIMITS = { cpuMs: 1, wallMs: 1000, memoryMb: 1, pages: 1, tokens: 1 };
const JOB: InvocationJob = {
  id: 'one',
  tenant: 'default',
  function: 'f',
  version: '1',
  input: '{}',
  arrival: 1,
  submittedAt: 0,
  deadlineMs: 1e9,
  limits: LIMITS,
};

/** A clock whose timers and `now` move together. */
function clock(timers: { enable(options: { apis: ['setTimeout'] }): void; tick(ms: number): void }) {
  timers.enable({ apis: ['setTimeout'] });
  let now = 0;
  return {
    now: () => now,
    pass: (ms: number): void => {
      for (let i = 0; i < ms; i++) {
        now++;
        timers.tick(1);
      }
    },
  };
}

test('wall time stands still while calls of the family are held, for at most the limit in all, on random schedules', (t) => {
  const { now, pass } = clock(t.mock.timers);
  const phases = fc.array(fc.record({ ms: fc.integer({ min: 1, max: 400 }), holds: fc.nat({ max: 2 }) }), {
    minLength: 1,
    maxLength: 12,
  });
  fc.assert(
    fc.property(phases, fc.nat({ max: 2 }), (schedule, initialHolds) => {
      const held = new HeldTime(now);
      let holds = 0;
      const hold = (wanted: number): void => {
        for (; holds < wanted; holds++) held.change(true);
        for (; holds > wanted; holds--) held.change(false);
      };
      hold(initialHolds);
      // The time before the run does not count.
      pass(7);
      const startedAt = now();
      const wall = new WallTime(JOB, held, now);
      let stoppedAt = -1;
      const movedTo: number[] = [];
      const end = wall.limit(
        () => {
          stoppedAt = now();
        },
        (at) => movedTo.push(at),
      );
      // The model: time that counted, time that holds added to the limit, and the expected time of the stop (-1: none yet).
      let [ranMs, heldMs, dueAt] = [0, 0, -1];
      for (const { ms, holds: wanted } of schedule) {
        const moves = movedTo.length;
        const holdEnds = holds > 0 && wanted === 0;
        hold(wanted);
        assert.equal(movedTo.length - moves, holdEnds ? 1 : 0);
        if (holdEnds) assert.equal(movedTo.at(-1), startedAt + LIMITS.wallMs + heldMs);
        const addedMs = wanted > 0 ? Math.min(ms, LIMITS.wallMs - heldMs) : 0;
        const countedMs = ms - addedMs;
        heldMs += addedMs;
        if (dueAt < 0 && ranMs + countedMs >= LIMITS.wallMs) dueAt = now() + addedMs + LIMITS.wallMs - ranMs;
        ranMs += countedMs;
        pass(ms);
        assert.equal(wall.at, startedAt + LIMITS.wallMs + heldMs);
      }
      assert.equal(stoppedAt, dueAt);
      end();
      hold(0);
      pass(2000);
      assert.equal(stoppedAt, dueAt, 'an ended timer stops nothing');
    }),
    { seed: 20261122, numRuns: 60 },
  );
});

test('a child that starts while its family is held gets its whole wall time, and its deadline does not move', (t) => {
  const { now, pass } = clock(t.mock.timers);
  const held = new HeldTime(now);
  held.change(true);
  const stops: Stop[] = [];
  const job = { ...JOB, parent: 'root', deadlineMs: 1500 };
  const wall = new WallTime(job, held, now);
  wall.limit(
    (stop) => stops.push(stop),
    () => undefined,
  );
  pass(900);
  assert.equal(wall.at, 1500);
  held.change(false);
  pass(999);
  assert.deepEqual(stops, []);
  pass(1);
  assert.deepEqual(
    stops.map(({ code, cause, message }) => [code, cause, message]),
    [
      [
        'deadline-exceeded',
        'wall-time',
        'The inferlet ran longer than its 1000 ms (manifest: limits.wallMs, or what its parent had left).',
      ],
    ],
  );
});

test('a run takes at most twice its wall time, although calls of its family stay held', (t) => {
  const { now, pass } = clock(t.mock.timers);
  const held = new HeldTime(now);
  const stoppedAt: number[] = [];
  const wall = new WallTime(JOB, held, now);
  wall.limit(
    () => stoppedAt.push(now()),
    () => undefined,
  );
  pass(300);
  held.change(true);
  pass(1699);
  assert.deepEqual(stoppedAt, []);
  assert.equal(wall.at, 2000);
  pass(1);
  assert.deepEqual(stoppedAt, [2000]);
});
