import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { it } from 'node:test';
import vm from 'node:vm';
import { IndexError } from './errors.ts';

it('an error of a file tells its code and not its path; the cause keeps it', async () => {
  const error = await readFile('/no/such/folder/file').then(() => assert.fail(), IndexError.from);
  assert.deepEqual([error.code, error.message], ['internal', 'the index host has a fault: ENOENT']);
  assert.match(String(error.cause), /\/no\/such\/folder/);
  assert.equal(IndexError.from(new Error('bug')).message, 'the index host has a fault: bug');
});

it('the standard reasons of an AbortSignal, also of another realm, become codes of their own', () => {
  const codeOf = (reason: unknown) => IndexError.from(reason).code;
  assert.equal(codeOf(new DOMException('late', 'TimeoutError')), 'deadline-exceeded');
  assert.equal(codeOf(AbortSignal.abort().reason), 'cancelled');
  assert.equal(
    codeOf(vm.runInNewContext("Object.assign(new Error('late'), { name: 'TimeoutError' })")),
    'deadline-exceeded',
  );
  for (const other of [null, undefined, 'TimeoutError', {}]) assert.equal(codeOf(other), 'internal');
});
