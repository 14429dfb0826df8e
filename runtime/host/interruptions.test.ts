import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { it } from 'node:test';
import { Interruptions } from './interruptions.ts';

it('a fault of the platform reaches an inferlet without paths, and the log with them', async (t) => {
  const logged = t.mock.method(console, 'error', () => undefined);
  const outcome = await new Interruptions().until(readFile('/no/such/folder/file').then(() => assert.fail()));
  assert.deepEqual(outcome, { tag: 'err', val: { tag: 'internal', val: 'ENOENT: no such file or directory, open' } });
  assert.match(String(logged.mock.calls[0]?.arguments.at(-1)), /\/no\/such\/folder\/file/);
});
