import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { judgeLateness, type Lateness, type LatenessVerdict, MAX_EXCUSED_MS, type ProcessState } from './silence.ts';

const LIMITS = { allowedMs: 3000, graceMs: 3000 };
const STATES: readonly ProcessState[] = ['scheduled', 'computing', 'starved', 'stopped'];

/** What the supervisor sees from one check to the next, and the time until the next check, ms. */
interface Check {
  readonly state: ProcessState;
  readonly untilNextMs: number;
}

const lookOf = (state: ProcessState) => ({ name: 'runtime-1', pid: 7, state, silentMs: 0 });

/** Plays checks until the policy decides; `turnedMs` is the time between two checks of which the later saw the event loop turn. */
function play(checks: readonly Check[]) {
  let before: Lateness | undefined;
  let verdict: LatenessVerdict | undefined;
  let [nowMs, turnedMs, silentMs] = [1000, 0, LIMITS.allowedMs];
  for (const [i, { state, untilNextMs }] of checks.entries()) {
    if (i > 0) {
      const passedMs = checks[i - 1]!.untilNextMs;
      nowMs += passedMs;
      silentMs += passedMs;
      if (state === 'scheduled') turnedMs += Math.min(passedMs, LIMITS.graceMs / 3);
    }
    ({ lateness: before, verdict } = judgeLateness(before, nowMs, lookOf(state), LIMITS));
    if (verdict.kind === 'lost') break;
    assert.ok(untilNextMs > 0);
  }
  return { verdict, turnedMs, silentMs };
}

const checksOf = (states: readonly ProcessState[]) =>
  fc.array(fc.record({ state: fc.constantFrom(...states), untilNextMs: fc.integer({ min: 1, max: 1500 }) }), {
    minLength: 1,
    maxLength: 120,
    size: 'max',
  });
const RUN = { seed: 20_261_130, numRuns: 400 };

describe('the judgement of a process that misses its sign of life', () => {
  test('a process is lost only after its event loop has turned for the grace, or after the longest excuse', () => {
    const property = fc.property(checksOf(STATES), (checks) => {
      const { verdict, turnedMs, silentMs } = play(checks);
      const mayBeLost = turnedMs >= LIMITS.graceMs || silentMs >= MAX_EXCUSED_MS;
      assert.equal(verdict?.kind, mayBeLost ? 'lost' : 'wait');
      assert.equal(verdict?.silentMs, silentMs);
    });
    fc.assert(property, RUN);
  });

  test('a process without a core is excused for 60 s, and no longer', () => {
    const property = fc.property(checksOf(['starved', 'stopped', 'computing']), (checks) => {
      const { verdict, silentMs } = play(checks);
      assert.equal(verdict?.kind, silentMs >= MAX_EXCUSED_MS ? 'lost' : 'wait');
    });
    fc.assert(property, RUN);
    const starved = play(Array.from({ length: 200 }, () => ({ state: 'starved', untilNextMs: 600 })));
    assert.ok(starved.verdict?.kind === 'lost');
    assert.equal(starved.verdict.why, 'it gave no sign of life for 60.0 s (limit 60.0 s); its process got no core');
  });

  test('a process without a valid look, or that has ended, is lost at the first check, for a reason in words', () => {
    const unseen = judgeLateness(undefined, 0, undefined, LIMITS).verdict;
    assert.ok(unseen.kind === 'lost');
    assert.equal(unseen.why, 'it gave no sign of life for 3.0 s, and its supervisor reported nothing of it');
    const end = { name: 'runtime-1', pid: 7, why: 'signal SIGKILL', silentMs: 0 };
    const ended = judgeLateness(undefined, 0, end, LIMITS).verdict;
    assert.ok(ended.kind === 'lost');
    assert.equal(ended.why, 'it ended: signal SIGKILL');
    assert.equal(ended.silentMs, LIMITS.allowedMs);
  });
});
