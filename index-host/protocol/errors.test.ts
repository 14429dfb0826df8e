import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { it } from 'node:test';
import vm from 'node:vm';
import { IndexError } from './types.ts';

it('a file system error shows its caller only the system code, such as ENOENT; its path is in the cause', async () => {
  const error = await readFile('/no/such/folder/file').then(() => assert.fail(), IndexError.from);
  assert.deepEqual([error.code, error.message], ['internal', 'the index host has a fault: ENOENT']);
  assert.match(String(error.cause), /\/no\/such\/folder/);
});

it('any other error shows its caller its message', () => {
  const { code, message } = IndexError.from(new Error('bug'));
  assert.deepEqual([code, message], ['internal', 'the index host has a fault: bug']);
});

it('the standard reasons of an AbortSignal, also of another realm, become codes of their own', () => {
  const codeOf = (reason: unknown) => IndexError.from(reason).code;
  assert.equal(codeOf(new DOMException('late', 'TimeoutError')), 'deadline-exceeded');
  assert.equal(codeOf(AbortSignal.abort().reason), 'cancelled');
  assert.equal(
    codeOf(vm.runInNewContext("Object.assign(new Error('late'), { name: 'TimeoutError' })")),
    'deadline-exceeded',
  );
  // Only the `name` of an object counts, so a text with such a name is an internal error.
  for (const other of [null, undefined, 'TimeoutError', {}]) assert.equal(codeOf(other), 'internal');
});
