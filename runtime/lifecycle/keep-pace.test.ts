import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { failingLog } from '#scheduler/testing/log.ts';
import { keepPace, Pace } from './pace.ts';

test('keepPace lowers the limit when the event loop lags, restores it in steps, and reports one change at a time', async () => {
  const limits: number[] = [];
  let callsInProgress = 0;
  let running = 60;
  const end = keepPace(new Pace({ most: 64, least: 4, lagMs: 10 }), {
    running: () => running,
    tell: async (limit) => {
      assert.equal(++callsInProgress, 1);
      limits.push(limit);
      await sleep(20);
      callsInProgress -= 1;
    },
    log: failingLog,
  });
  try {
    // Makes the event loop lag by 40 ms, four times `lagMs`.
    const busy = setInterval(() => {
      const until = performance.now() + 40;
      while (performance.now() < until);
    }, 1);
    while (limits.length === 0) await sleep(5);
    clearInterval(busy);
    assert.equal(limits[0], 45, 'three quarters of the running invocations');
    // While no invocation runs, keepPace measures no lag, so the limit only rises, however busy this machine is.
    running = 0;
    while (limits.at(-1) !== 64) await sleep(20);
    const raises = limits.slice(1);
    assert.deepEqual(
      raises,
      raises.toSorted((a, b) => a - b),
    );
  } finally {
    end();
  }
  const count = limits.length;
  // Two reviews of the limit would fit into this time.
  await sleep(250);
  assert.equal(limits.length, count, 'no change after the end');
});
