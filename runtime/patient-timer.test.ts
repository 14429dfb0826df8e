import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { patientTimer } from './patient-timer.ts';

const block = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

test('a patient timer does not count blocked time, and fires after the events that waited meanwhile', async () => {
  const order: string[] = [];
  const over = Promise.withResolvers<void>();
  patientTimer(20, () => {
    order.push('over');
    over.resolve();
  });
  // The event arrives some turns later.
  setTimeout(() => setImmediate(() => setImmediate(() => order.push('done meanwhile'))), 20);
  block(200);
  await over.promise;
  assert.deepEqual(order, ['done meanwhile', 'over']);
});

test('a patient timer fires although the process blocks repeatedly', async () => {
  // Runs before the timer in every turn, so that the timer is always late.
  const blocker = setInterval(() => block(150), 1);
  await new Promise<void>((resolve) => void patientTimer(1, resolve));
  clearInterval(blocker);
});

test('a patient timer does not fire after it was ended, even when its time was over', async () => {
  patientTimer(1, () => assert.fail('the timer was ended'))();
  const end = patientTimer(1, () => assert.fail('the timer was ended after its time'));
  // Ends the timer after its time is over, and before its callback runs.
  setTimeout(end, 1);
  await sleep(20);
});
