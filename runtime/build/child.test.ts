import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { answerIn } from './child.ts';

test('a line that is neither a result nor a failure with a known code is no answer of a build process', () => {
  const diagnostic = { file: 'a.ts', line: 1, column: 2, text: 'Unexpected ";"', source: 'const a = ;' };
  const failure = { ok: false, code: 'build-failed', message: 'No.', hint: 'Try again.' };
  const answers = [{ ok: true, meta: 1 }, failure, { ...failure, diagnostics: [diagnostic] }];
  for (const answer of answers) assert.deepEqual(answerIn(JSON.stringify(answer)), answer);
  const others = [
    { ...failure, code: 'forbidden' },
    { ...failure, message: 5 },
    { ...failure, hint: undefined },
    { ...failure, diagnostics: [{ ...diagnostic, line: '1' }] },
    { ok: 1 },
  ];
  for (const other of others) assert.equal(answerIn(JSON.stringify(other)), null, JSON.stringify(other));
  for (const line of ['', 'text', '{"ok":true', '{"ok":']) assert.equal(answerIn(line), null, line);
});

test('the build program answers an unknown option with its usage', () => {
  const main = fileURLToPath(new URL('main.ts', import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, [main, 'load', '--unknown'], { encoding: 'utf8' });
  assert.equal(status, 2);
  assert.match(stderr, /'--unknown'.*\nusage: main\.ts component/s);
});
