import readline from 'node:readline/promises';
import { EXIT, Failure } from './failure.ts';

/**
 * Asks the user whether to go on. Without a terminal it requires `--yes`; throws {@link Failure} when that is missing, or the answer is no.
 *
 * @param question such as `Cancel 3 invocations?`
 */
export async function confirm(question: string, yes: boolean, signal: AbortSignal): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY) {
    throw new Failure(`${question} The input is not a terminal, so you cannot answer.`, {
      advice: 'Repeat the command with --yes.',
    });
  }
  const lines = readline.createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await lines.question(`${question} [y/N] `, { signal });
    if (/^y(es)?$/i.test(answer.trim())) return;
  } finally {
    lines.close();
  }
  throw new Failure('Nothing was done.', { exitCode: EXIT.interrupted, code: 'not-confirmed' });
}
