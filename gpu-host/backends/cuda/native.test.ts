import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { build } from './build-targets.ts';

/** All of them take a few seconds; one that waits for ever is told by its name. */
const TIME_LIMIT_MS = 120_000;

test('native: kernels and engine, on the CPU', async (t) => {
  const program = await build('tests', { emulated: true });
  const run = spawnSync(program, ['--announce'], {
    encoding: 'utf8',
    timeout: TIME_LIMIT_MS,
    killSignal: 'SIGKILL',
    maxBuffer: 64 << 20,
  });
  let cases = 0;
  let begun: string | undefined;
  let notes: string[] = [];
  for (const line of run.stdout.split('\n')) {
    const result = /^(ok|not ok) \d+ - (.*?)(?: # SKIP (.*?))?(?: \(\d+ ms\))?$/.exec(line);
    if (line.startsWith('# begins: ')) begun = line.slice('# begins: '.length);
    else if (result === null) notes.push(line);
    else {
      const [, verdict, name = '', skip] = result;
      const failures = notes.join('\n');
      await t.test(name, { skip: skip ?? false }, () => assert.equal(verdict, 'ok', failures));
      cases++;
      begun = undefined;
      notes = [];
    }
  }
  if (begun !== undefined) {
    const end = run.error === undefined ? (run.signal ?? `exit code ${run.status}`) : run.error.message;
    await t.test(begun, () =>
      assert.fail(`the program ended in this case (${end})\n${notes.join('\n')}\n${run.stderr}`),
    );
  } else if (run.status !== 0 && !/^not ok/m.test(run.stdout)) {
    assert.fail(`the program ended with ${run.status ?? run.signal}\n${run.stderr}`);
  }
  assert.ok(cases > 0, 'no case ran');
});
