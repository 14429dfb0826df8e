import { test } from 'node:test';
import { limits, policies } from './testing/operations.ts';
import { checkSchedules } from './testing/suite.ts';

test('every policy keeps the order of queues, conflicts, limits and bounds of waits, and every call leaves', (t) => {
  checkSchedules(t, [20261121, 3, 77, 4096], policies, limits);
});
