import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { judgeLaunch, LAUNCH_LIMITS, LaunchClock } from './policy.ts';

const RUN = { seed: 20_261_130, numRuns: 500 };
const ms = (max: number) => fc.integer({ min: 0, max });

/** A stretch of time of a sandbox: what it computes for launches and for guests, and whether it finishes a step of a launch at the end. */
const stretch = fc.record({ forLaunchesMs: ms(1500), forGuestsMs: ms(5000), finishes: fc.boolean() });

describe('the limit on a launch', () => {
  test('time without a core and the computing of guests make no sandbox faulty; a launch is late after its whole limit', () => {
    const property = fc.property(ms(300_000), ms(300_000), ms(20_000), (waitedMs, idle, computedMs) => {
      const idleMs = Math.min(idle, waitedMs);
      const verdict = judgeLaunch({ waitedMs, idleMs, computedMs });
      const { faultyMs, faultyCpuMs, mostMs } = LAUNCH_LIMITS;
      if (idleMs >= faultyMs && computedMs >= faultyCpuMs) assert.equal(verdict, 'faulty');
      else assert.equal(verdict, waitedMs >= mostMs ? 'late' : 'wait');
    });
    fc.assert(property, RUN);
    // A launch that is starved for any time.
    assert.equal(judgeLaunch({ waitedMs: 119_000, idleMs: 119_000, computedMs: 4000 }), 'wait');
  });

  test('counts what a sandbox computes for launches since the last one that it finished, without its guests', () => {
    const property = fc.property(fc.array(stretch, { maxLength: 30, size: 'max' }), (stretches) => {
      let usedMs = 777;
      const clock = new LaunchClock(() => usedMs);
      clock.noteGuests(123);
      const times = clock.begin();
      let expectedMs = 0;
      for (const { forLaunchesMs, forGuestsMs, finishes } of stretches) {
        usedMs += forLaunchesMs + forGuestsMs;
        clock.noteGuests(forGuestsMs);
        expectedMs += forLaunchesMs;
        if (finishes) {
          clock.noteStep();
          expectedMs = 0;
        }
        assert.equal(times().computedMs, expectedMs);
      }
    });
    fc.assert(property, RUN);
  });

  test('reports no negative time when a sandbox claims more time for its guests than it got', () => {
    let usedMs = 0;
    const clock = new LaunchClock(() => usedMs);
    const times = clock.begin();
    usedMs = 10;
    clock.noteGuests(1e9);
    assert.equal(times().computedMs, 0);
  });
});
