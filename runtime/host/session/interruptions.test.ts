import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { it } from 'node:test';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { logUnexpected } from '../../unexpected.ts';
import { Interruptions } from '../services/ask.ts';

it('a fault of the platform reaches an inferlet without paths, and the log with them', async (t) => {
  const log = new CollectedLog();
  logUnexpected(log);
  t.after(() => logUnexpected(silentLog));
  const outcome = await new Interruptions().until(readFile('/no/such/folder/file').then(() => assert.fail()));
  assert.deepEqual(outcome, { tag: 'err', val: { tag: 'internal', val: 'ENOENT: no such file or directory, open' } });
  assert.match(String(log.errors[0]), /\/no\/such\/folder\/file/);
});
