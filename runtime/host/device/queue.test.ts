import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TestInferlet } from '../../testing/inferlet.ts';
import { DeviceQueue } from './queue.ts';

test('a queue for an unknown model keeps only the beginning of the name', () => {
  const { inferlet } = new TestInferlet(null);
  const queue = new DeviceQueue(inferlet, 'n'.repeat(16 << 20));
  assert.equal(queue.name, 'n'.repeat(128));
  const refusal = queue.refusal();
  assert.match(refusal.tag === 'err' ? refusal.val.val : '', /^this function was granted no model named n{128};/);
});
