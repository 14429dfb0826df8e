import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { it } from 'node:test';
import { IndexError } from './errors.ts';

it('an error of a file tells its code and not its path; the cause keeps it', async () => {
  const error = await readFile('/no/such/folder/file').then(() => assert.fail(), IndexError.from);
  assert.deepEqual([error.code, error.message], ['internal', 'the index host has a fault: ENOENT']);
  assert.match(String(error.cause), /\/no\/such\/folder/);
  assert.equal(IndexError.from(new Error('bug')).message, 'the index host has a fault: bug');
});
