import { test } from 'node:test';
import { limits, policies } from './testing/operations.ts';
import { checkSchedules } from './testing/suite.ts';

test('under every policy: order in queues, conflicts, limits, waits, and every call leaves', (t) => {
  checkSchedules(t, [20261121, 3, 77, 4096], policies, limits);
});
