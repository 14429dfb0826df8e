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
    for (const isTTY of [true, false])
      it(`shows ${name} ${isTTY ? 'on a terminal' : 'in a pipe'} without control characters of others`, () => {
        const output = outputOf(isTTY, command);
        assert.ok(output.includes(SHOWN), JSON.stringify(output));
        for (const control of ['\x1b[2J', '\x9b', '\u202e'])
          assert.ok(!output.includes(control), JSON.stringify(output));
      });
  }

  it('sends its own escape sequences to terminals alone, and to none with NO_COLOR or on a dumb terminal', () => {
    const command = (terminal: Terminal) => {
      terminal.note('a');
      terminal.table(['NAME'], [['b']], '');
      terminal.failure(new Failure('c'));
      const progress = terminal.progress('d');
      progress.update('e');
      progress.done('f');
      terminal.progress('g').clear();
    };
    const { NO_COLOR, TERM } = process.env;
    const inEnvironment = (environment: { NO_COLOR?: string; TERM?: string }, isTTY: boolean) => {
      for (const name of ['NO_COLOR', 'TERM'] as const) {
        const value = environment[name];
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
      return outputOf(isTTY, command);
    };
    try {
      assert.ok(inEnvironment({ TERM: 'xterm' }, true).includes('\x1b[K'));
      for (const output of [
        inEnvironment({ TERM: 'xterm' }, false),
        inEnvironment({ TERM: 'xterm', NO_COLOR: '1' }, true),
        inEnvironment({ TERM: 'dumb' }, true),
      ])
        assert.equal(output, 'a\nNAME\nb\nerror: c\n  (usage)\nd …\ne …\nf\ng …\n');
    } finally {
      inEnvironment({ ...(NO_COLOR !== undefined && { NO_COLOR }), ...(TERM !== undefined && { TERM }) }, false);
    }
  });

  it('shows pieces of a text without controls, and keeps line breaks that two pieces share', async () => {
    let text = '';
    const out = new Writable({
      write(piece, _encoding, done) {
        text += piece;
        done();
      },
    }) as unknown as NodeJS.WriteStream;
    const terminal = new Terminal({ json: false, out });
    for (const piece of ['a\x1b]0;b\x07', 'c\r', '\n\td\x00\x9b', '\u202be\u202c']) await terminal.text(piece);
    assert.equal(text, 'a\ufffd]0;b\ufffdc\r\n\td\ufffd\ufffd\u202be\u202c');
  });

  it('keeps line breaks and tabs', () => {
    for (const isTTY of [true, false])
      assert.equal(
        outputOf(isTTY, (terminal) => terminal.print('a\r\n\tb\rc')),
        'a\r\n\tb\ufffdc\n',
      );
  });

  it('escapes control characters of JSON, so the value stays the same', () => {
    for (const [command, isTTY] of [true, false].flatMap((isTTY) => [
      [(terminal: Terminal) => terminal.value(HOSTILE), isTTY] as const,
      [(terminal: Terminal) => terminal.failure(new Failure(HOSTILE)), isTTY] as const,
    ])) {
      const output = outputOf(isTTY, command, true);
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
