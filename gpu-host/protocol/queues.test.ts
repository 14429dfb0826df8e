import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClientQueues } from './device-client.ts';

test('a queue past the limit refuses every call; after another queue is closed, a new queue fits', () => {
  const queues = new ClientQueues();
  const limit = 4096;
  const open = Array.from({ length: limit }, () => queues.add(0, 'm'));
  assert.ok(open.every(({ kept }) => kept));
  const { queue, kept } = queues.add(0, 'm');
  assert.equal(kept, false);
  assert.equal(queues.refusal(queue)?.tag, 'limit-exceeded');
  queues.remove(1);
  assert.equal(queues.refusal(queue)?.tag, 'not-found');
  assert.equal(queues.add(0, 'm').kept, true);
});
