import assert from 'node:assert/strict';
import { it } from 'node:test';
import { StoreError } from '#scheduler/store/errors.ts';
import { fromStore } from './ask.ts';

it('errors of the store reach an inferlet without paths, and unexpected ones reach the log', (t) => {
  const log = t.mock.method(console, 'error', () => undefined);
  const away = fromStore(new StoreError('store-unavailable', 'connect ENOENT /var/lib/pie/redis.sock'));
  assert.deepEqual(away, {
    tag: 'unavailable',
    val: "the platform's store cannot be reached now: connect ENOENT redis.sock",
  });
  assert.equal(log.mock.callCount(), 0);
  const fault = fromStore(new Error('no key in /var/lib/pie/keys.json'));
  assert.deepEqual(fault, { tag: 'internal', val: 'no key in keys.json' });
  assert.equal(log.mock.callCount(), 1);
});
