import { addAbortSignal } from 'node:stream';
import { text } from 'node:stream/consumers';
import { EXIT, Failure } from './failure.ts';

/** Longest value from a terminal, longer than any password, key or certificate. Further characters are ignored. */
const MAX_CHARACTERS = 1 << 20;

const ENTER = ['\r', '\n'];
const BACKSPACE = ['\b', '\u007f'];
const INTERRUPT = '\u0003';
const END_OF_INPUT = '\u0004';

/**
 * Reads a secret value: from a terminal without echo, else all of standard input without its final line break. Throws
 * {@link Failure} for empty input and for an interrupted prompt, and Node's `AbortError` when the signal ends the
 * reading of a pipe.
 */
export async function readHidden(prompt: string, signal: AbortSignal): Promise<string> {
  const { stdin, stderr } = process;
  if (!stdin.isTTY) return nonEmpty((await text(addAbortSignal(signal, stdin))).replace(/\r?\n$/, ''));
  stderr.write(`${prompt}: `);
  stdin.setRawMode(true).setEncoding('utf8').resume();
  try {
    return nonEmpty(await readLine(stdin, signal));
  } finally {
    stdin.setRawMode(false).pause();
    stderr.write('\n');
  }
}

function readLine(stdin: NodeJS.ReadStream, signal: AbortSignal): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let typed = '';
  const interrupt = () => reject(new Failure('Interrupted.', { exitCode: EXIT.interrupted, code: 'interrupted' }));
  const onData = (piece: string) => {
    for (const character of piece) {
      if (character === INTERRUPT) return interrupt();
      if (ENTER.includes(character) || character === END_OF_INPUT) return resolve(typed);
      if (BACKSPACE.includes(character)) typed = [...typed].slice(0, -1).join('');
      else if (typed.length < MAX_CHARACTERS) typed += character;
    }
  };
  stdin.on('data', onData).once('end', () => resolve(typed));
  if (signal.aborted) interrupt();
  signal.addEventListener('abort', interrupt, { once: true });
  return promise.finally(() => {
    stdin.off('data', onData);
    signal.removeEventListener('abort', interrupt);
  });
}

function nonEmpty(value: string): string {
  if (value !== '') return value;
  throw new Failure('No value was given.', { advice: 'Type it at the prompt, or send it through a pipe.' });
}
