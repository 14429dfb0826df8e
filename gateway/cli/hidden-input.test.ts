import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { it } from 'node:test';

const PROGRAM = `
  import { readHidden } from ${JSON.stringify(new URL('terminal.ts', import.meta.url))};
  const interrupted = new AbortController();
  process.once('SIGINT', () => interrupted.abort());
  const value = readHidden('Value', interrupted.signal);
  console.error('reading');
  console.log(await value.catch(({ name }) => name));`;

it('a secret is read from a pipe without its final line break, and Ctrl-C ends the reading', {
  timeout: 240_000,
}, async () => {
  const start = () => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM], { stdio: 'pipe' });
    return { child, output: text(child.stdout), reading: once(child.stderr, 'data') };
  };
  const whole = start();
  whole.child.stdin.end('two\nlines\r\n');
  assert.equal(await whole.output, 'two\nlines\n');
  const waiting = start();
  await waiting.reading;
  waiting.child.kill('SIGINT');
  assert.equal(await waiting.output, 'AbortError\n');
});
