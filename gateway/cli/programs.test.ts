import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Failure, toFailure } from './failure.ts';
import { ROOT } from './paths.ts';
import { runProgram } from './programs.ts';

describe('a program whose output is read', () => {
  let folder = '';
  before(() => {
    folder = mkdtempSync(path.join(os.tmpdir(), 'pie-programs-'));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const program = (name: string, source: string): string => {
    const file = path.join(folder, name);
    writeFileSync(file, source);
    return path.relative(ROOT, file);
  };

  it('has its last line returned, however much it prints before', async () => {
    const much = `for (let i = 0; i < 24; i++) console.log('x'.repeat(2 ** 20));`;
    const { code, stdout } = await runProgram(
      program('chatters.mjs', `${much} console.log('the answer');`),
      [],
      'read',
    );
    assert.equal(code, 0);
    assert.equal(stdout.split('\n').at(-2), 'the answer');
    assert.ok(stdout.length <= 4 * 2 ** 20, `${stdout.length}`);
  });

  it('has the exit code 128 + signal number, as in a shell, when a signal ends it', async () => {
    const { code } = await runProgram(program('killed.mjs', `process.kill(process.pid, 'SIGKILL');`), [], 'read');
    assert.equal(code, 128 + os.constants.signals.SIGKILL);
  });

  it('is killed at its time limit with its children, which hold its output open', { timeout: 240_000 }, async () => {
    const child = `'-e', 'setTimeout(() => undefined, 90_000)'`;
    const source = `
      import { spawn } from 'node:child_process';
      spawn(process.execPath, [${child}], { stdio: 'inherit' }).once('spawn', () => console.error('the child runs'));`;
    const script = program('parent.mjs', source);
    let why: string | undefined;
    // On a busy machine, the time limit may pass before the child runs: double it until the program has printed something.
    for (let timeoutMs = 1000; why === undefined; timeoutMs *= 2) {
      const failure = await runProgram(script, [], 'read', timeoutMs).catch(toFailure);
      assert.ok(failure instanceof Failure);
      assert.match(failure.message, /parent\.mjs did not end within \d+ s/);
      why = failure.why;
    }
    assert.equal(why, 'the child runs');
  });
});
