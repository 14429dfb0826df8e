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
  setTimeout(() => order.push('done meanwhile'), 30);
  stand(200);
  await over.promise;
  assert.deepEqual(order, ['done meanwhile', 'over']);
});

test('it comes, however often the process stands still, and not once it was ended', async () => {
  let calls = 0;
  const over = new Promise<void>((resolve) => {
    patientTimer(1, () => {
      calls += 1;
      resolve();
    });
  });
  const end = patientTimer(5, () => assert.fail('it was ended'));
  const standing = setInterval(() => stand(150), 1);
  await over;
  clearInterval(standing);
  end();
  await sleep(20);
  assert.equal(calls, 1);
});
