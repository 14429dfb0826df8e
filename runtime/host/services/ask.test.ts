import assert from 'node:assert/strict';
import { it } from 'node:test';
import { StoreError } from '#scheduler/store/errors.ts';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { logUnexpected } from '../../unexpected.ts';
import { fromStore } from './ask.ts';

it('errors of the store reach an inferlet without paths of the host, and unexpected errors also reach the log', (t) => {
  const log = new CollectedLog();
  logUnexpected(log);
  t.after(() => logUnexpected(silentLog));
  const unreachable = fromStore(new StoreError('store-unavailable', 'connect ENOENT /var/lib/pie/redis.sock'));
  assert.deepEqual(unreachable, {
    tag: 'unavailable',
    val: "the platform's store cannot be reached now: connect ENOENT redis.sock",
  });
  const full = fromStore(new Error('MISCONF Errors writing to the AOF file: No space left on device'));
  assert.match(full.val, /^Redis cannot write to its disk \(No space left on device\)/);
  assert.equal(log.errors.length, 0);
  const fault = fromStore(new Error('no key in /var/lib/pie/keys.json'));
  assert.deepEqual(fault, { tag: 'internal', val: 'no key in keys.json' });
  assert.equal(log.errors.length, 1);
});
