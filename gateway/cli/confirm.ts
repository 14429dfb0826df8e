import readline from 'node:readline/promises';
import { EXIT, Failure } from './failure.ts';

/** A terminal's input, and the stream that shows the question. */
interface Prompt {
  readonly input: NodeJS.ReadStream;
  readonly output: NodeJS.WriteStream;
}

/**
 * Asks the user whether to go on. Throws {@link Failure} when the answer is no, or when there is no terminal to ask on.
 *
 * @param question such as `Cancel 3 invocations?`
 * @param isConfirmed true with the option `--yes`: the function then asks nothing
 */
export async function confirm(
  question: string,
  isConfirmed: boolean,
  signal: AbortSignal,
  { input, output }: Prompt = { input: process.stdin, output: process.stderr },
): Promise<void> {
  if (isConfirmed) return;
  if (!input.isTTY) {
    throw new Failure(`${question} The input is not a terminal, so you cannot answer.`, {
      advice: 'Repeat the command with --yes.',
    });
  }
  const lines = readline.createInterface({ input, output });
  // If the question goes to a file, the end of the input (Ctrl-D) closes the prompt without an answer: then end the wait for one.
  const closed = new AbortController();
  lines.once('close', () => closed.abort());
  try {
    const answer = await lines.question(`${question} [y/N] `, { signal: AbortSignal.any([signal, closed.signal]) });
    if (/^y(es)?$/i.test(answer.trim())) return;
  } catch (error) {
    signal.throwIfAborted();
    // On a terminal, the prompt reads Ctrl-C and Ctrl-D itself, and fails with an abort of its own.
    if (!(error instanceof Error) || error.name !== 'AbortError') throw error;
  } finally {
    lines.close();
  }
  throw new Failure('Nothing was done.', { exitCode: EXIT.interrupted, code: 'not-confirmed' });
}
