import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClientQueues } from './queues.ts';

test('every call on a queue past the limit is refused, until a queue is closed', () => {
  const queues = new ClientQueues();
  const open = Array.from({ length: 4096 }, () => queues.add(0, 'm'));
  assert.ok(open.every(({ kept }) => kept));
  const { queue, kept } = queues.add(0, 'm');
  assert.equal(kept, false);
  assert.equal(queues.refusal(queue)?.tag, 'limit-exceeded');
  queues.remove(1);
  assert.equal(queues.refusal(queue)?.tag, 'not-found');
  assert.equal(queues.add(0, 'm').kept, true);
});
