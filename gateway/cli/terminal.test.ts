import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { Writable } from 'node:stream';
import { describe, it } from 'node:test';
import { PieError } from '../client/errors.ts';
import { EXIT, Failure, toFailure } from './failure.ts';
import { Terminal } from './terminal.ts';

/** A sequence that clears the screen, in its 7-bit and its 8-bit form, and a character that reverses the direction of the text after it. */
const HOSTILE = 'a\x1b[2Jb\x9b2Jc\u202ed';
const SHOWN = 'a\ufffd[2Jb\ufffd2Jc\ufffdd';

/** The output of a command on two terminals, or on two pipes. */
function outputOf(isTTY: boolean, command: (terminal: Terminal) => void, json = false): string {
  let output = '';
  const stream = () => {
    const writable = new Writable({
      write(text, _encoding, done) {
        output += text;
        done();
      },
    });
    return Object.assign(writable, { isTTY }) as unknown as NodeJS.WriteStream;
  };
  command(new Terminal({ json, out: stream(), err: stream() }));
  return output;
}

describe('the output of a command', () => {
  for (const [name, command] of [
    ['a line', (terminal) => terminal.print(HOSTILE)],
    ['a note', (terminal) => terminal.note(HOSTILE)],
    ['a remark', (terminal) => terminal.remark(HOSTILE)],
    ['a cell', (terminal) => terminal.table(['NAME', 'MESSAGE'], [['live', HOSTILE]], '')],
    ['an error', (terminal) => terminal.failure(new Failure(HOSTILE, { why: HOSTILE, advice: HOSTILE }))],
    ['the code of an error', (terminal) => terminal.failure(new Failure('No.', { code: HOSTILE, requestId: HOSTILE }))],
  ] satisfies [string, (terminal: Terminal) => void][]) {
    it(`shows ${name} on a terminal without control characters`, () => {
      const output = outputOf(true, command);
      assert.ok(output.includes(SHOWN), JSON.stringify(output));
      for (const control of ['\x1b[2J', '\x9b', '\u202e']) assert.ok(!output.includes(control), JSON.stringify(output));
    });
  }

  it('keeps line breaks and tabs on a terminal, and every character in a pipe', () => {
    assert.equal(
      outputOf(true, (terminal) => terminal.print('a\r\n\tb\rc')),
      'a\r\n\tb\ufffdc\n',
    );
    assert.equal(
      outputOf(false, (terminal) => terminal.print(HOSTILE)),
      `${HOSTILE}\n`,
    );
  });

  it('escapes control characters of JSON on a terminal, so the value stays the same', () => {
    for (const command of [
      (terminal: Terminal) => terminal.value(HOSTILE),
      (terminal: Terminal) => terminal.failure(new Failure(HOSTILE)),
    ]) {
      const output = outputOf(true, command, true);
      for (const control of ['\x1b', '\x9b', '\u202e']) assert.ok(!output.includes(control), JSON.stringify(output));
      assert.ok(JSON.stringify(JSON.parse(output)).includes(JSON.stringify(HOSTILE)), output);
    }
  });

  it('shows a stack for a report only when the command itself is at fault', () => {
    const failureOutput = (thrown: unknown) => outputOf(false, (terminal) => terminal.failure(toFailure(thrown)));
    assert.match(
      failureOutput(new TypeError('A bug.')),
      /Report it with the lines below.*TypeError: A bug\.\n +at .*terminal\.test\.ts/s,
    );
    assert.doesNotMatch(failureOutput(new PieError('conflict', 'Refused.')), / at /);
    const fault = toFailure(new TypeError('A bug.'));
    const { error } = JSON.parse(outputOf(false, (terminal) => terminal.failure(fault), true));
    assert.match(error.stack, /^TypeError: A bug\.\n +at .*terminal\.test\.ts/);
  });

  it('shows line breaks in a cell as spaces, so that a row stays on one line', () => {
    const rows = [['now', 'message=a\r\nlater  forged\u2028row']];
    assert.equal(
      outputOf(false, (terminal) => terminal.table(['WHEN', 'DETAILS'], rows, '')),
      'WHEN  DETAILS\nnow   message=a later  forged row\n',
    );
  });
});

it('toFailure reports a file that cannot be used as wrong usage, with the cause', async () => {
  const { message, exitCode, why } = toFailure(await readFile('/no/such/file').catch((error: unknown) => error));
  assert.deepEqual([message, exitCode], ['/no/such/file cannot be used.', EXIT.usage]);
  assert.match(why ?? '', /^ENOENT/);
});

it('toFailure counts a busy part of the platform as unreachable, and a request that came too soon as refused', () => {
  assert.equal(toFailure(new PieError('gateway-busy', 'Busy.')).exitCode, EXIT.unreachable);
  assert.equal(toFailure(new PieError('too-many-requests', 'Wait.')).exitCode, EXIT.refused);
});
