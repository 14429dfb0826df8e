import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { describe, it } from 'node:test';
import { EXIT } from './failure.ts';
import { confirm } from './terminal.ts';

/** The outcome of a question to a person at a terminal. If `isShown` is false, the question goes to a file. */
function outcomeOf(answer: (input: PassThrough, interrupted: AbortController) => void, isShown = true): Promise<void> {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const interrupted = new AbortController();
  const terminal = {
    input: Object.assign(input, { isTTY: true }) as unknown as NodeJS.ReadStream,
    output: Object.assign(output, { isTTY: isShown }) as unknown as NodeJS.WriteStream,
  };
  const outcome = confirm('Cancel 3 invocations?', false, interrupted.signal, terminal);
  answer(input, interrupted);
  return outcome;
}

describe('a question to a person', { timeout: 240_000 }, () => {
  it('is confirmed only by "y" or "yes"', async () => {
    for (const text of ['y', 'Yes']) await outcomeOf((input) => input.write(`${text}\r`));
    for (const text of ['', 'n', 'yesterday'])
      await assert.rejects(
        outcomeOf((input) => input.write(`${text}\r`)),
        { code: 'not-confirmed' },
      );
  });

  for (const [name, answer, isShown] of [
    ['Ctrl-C', (input) => input.write('\x03'), true],
    ['Ctrl-D', (input) => input.write('\x04'), true],
    ['the end of the input', (input) => input.end(), true],
    ['the end of the input while the question goes to a file', (input) => input.end(), false],
  ] satisfies [string, (input: PassThrough) => void, boolean][]) {
    it(`is declined by ${name}, with the exit code of an interruption`, async () => {
      await assert.rejects(outcomeOf(answer, isShown), { code: 'not-confirmed', exitCode: EXIT.interrupted });
    });
  }

  it("rejects with the signal's reason when the command is interrupted", async () => {
    const reason = new Error('enough');
    await assert.rejects(
      outcomeOf((_, interrupted) => interrupted.abort(reason)),
      reason,
    );
  });
});
