import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { patientTimer } from './patient-timer.ts';

/** Lets this thread stand still. */
const stand = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

test('the time in which the process stood still does not count, nor what it found when it went on', async () => {
  const order: string[] = [];
  const over = Promise.withResolvers<void>();
  patientTimer(20, () => {
    order.push('over');
    over.resolve();
  });
  // It takes the process some turns to get there.
  setTimeout(() => setImmediate(() => setImmediate(() => order.push('done meanwhile'))), 20);
  stand(200);
  await over.promise;
  assert.deepEqual(order, ['done meanwhile', 'over']);
});

test('it comes, however often the process stands still', async () => {
  // Before it in every turn, so that it is late each time.
  const standing = setInterval(() => stand(150), 1);
  await new Promise<void>((resolve) => void patientTimer(1, resolve));
  clearInterval(standing);
});

test('it does not come once it was ended, not even when its time was over', async () => {
  patientTimer(1, () => assert.fail('it was ended'))();
  const end = patientTimer(1, () => assert.fail('its time was over'));
  // Runs after the timer and before the callback.
  setTimeout(end, 1);
  await sleep(20);
});
