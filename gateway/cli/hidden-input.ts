import { text } from 'node:stream/consumers';
import { EXIT, Failure } from './failure.ts';

/** Longer is no password, key or certificate. */
const MAX_CHARACTERS = 1 << 20;

const ENTER = ['\r', '\n'];
const BACKSPACE = ['\b', '\u007f'];
const INTERRUPT = '\u0003';
const END = '\u0004';

/**
 * A value that must not be seen: asked for without an echo on a terminal, else standard input as it is, without the line break at its end.
 * Throws {@link Failure} when nothing was given, or it was interrupted.
 */
export async function readHidden(prompt: string, signal: AbortSignal): Promise<string> {
  const { stdin, stderr } = process;
  if (!stdin.isTTY) return given((await text(stdin)).replace(/\r?\n$/, ''));
  stderr.write(`${prompt}: `);
  stdin.setRawMode(true).setEncoding('utf8').resume();
  try {
    return given(await readLine(stdin, signal));
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
      if (ENTER.includes(character) || character === END) return resolve(typed);
      if (BACKSPACE.includes(character)) typed = [...typed].slice(0, -1).join('');
      else if (typed.length < MAX_CHARACTERS) typed += character;
    }
  };
  stdin.on('data', onData).once('end', () => resolve(typed));
  signal.addEventListener('abort', interrupt, { once: true });
  return promise.finally(() => {
    stdin.off('data', onData);
    signal.removeEventListener('abort', interrupt);
  });
}

function given(value: string): string {
  if (value !== '') return value;
  throw new Failure('No value was given.', { advice: 'Type it at the prompt, or send it through a pipe.' });
}
