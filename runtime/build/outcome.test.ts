import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { failureFrom } from './outcome.ts';

const FULL = '/dev/full';

test('a full disk is named as the cause of a failed build', { skip: !existsSync(FULL) && 'no /dev/full' }, async () => {
  const failure = await writeFile(FULL, 'x').then(() => assert.fail('there is room'), failureFrom);
  assert.deepEqual([failure.code, failure.message], ['build-failed', 'The build stopped: the disk is full.']);
  assert.match(failure.hint, /Free space/);
});
