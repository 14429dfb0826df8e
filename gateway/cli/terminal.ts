import readline from 'node:readline/promises';
import { addAbortSignal } from 'node:stream';
import { text } from 'node:stream/consumers';
import { EXIT, Failure } from './failure.ts';

interface Progress {
  /** Shows the current step. */
  update(text: string): void;
  /** Ends with a line that stays on the screen. */
  done(text: string): void;
  /** Ends without output, for a failure that is reported elsewhere. */
  clear(): void;
}

/** Characters that a terminal obeys instead of showing: controls except line breaks and tabs, and marks that set the direction of text. */
const TERMINAL_CONTROLS = /(?!\r?\n|\t)\p{Cc}|[\u202a-\u202e\u2066-\u2069]/gu;
/** The controls among them, for pieces of a text: a piece may end between the two characters of a line break, and a text may need its marks. */
const TEXT_CONTROLS = /(?![\t\n\r])\p{Cc}/gu;
/** Stands in place of a character that a terminal would obey. */
const MARK = '\ufffd';
/** Characters that end a line. */
const LINE_ENDS = /[\n\v\f\r\u0085\u2028\u2029]+/g;

const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const SPINNER_MS = 80;

/** Codes of the escape sequences that set the style of text. */
const STYLE = { bold: 1, dim: 2, red: 31, green: 32 } as const;

/**
 * A command's output. Results go to standard output, progress and remarks to standard error. With `json`, standard output holds JSON only,
 * one value per line. Other users may have written a text: a log line, the message of a deploy, the output of a function. Control characters are
 * therefore replaced (in JSON: escaped), also in a pipe, whose reader may show the text on a terminal; only `write` passes them on. The command's own
 * escape sequences go to terminals alone, and to none if `NO_COLOR` is set or `TERM` is `dumb`.
 */
export class Terminal {
  readonly json: boolean;
  #isSilent = false;
  readonly #out: NodeJS.WriteStream;
  readonly #err: NodeJS.WriteStream;

  constructor(options: { json: boolean; out?: NodeJS.WriteStream; err?: NodeJS.WriteStream }) {
    this.json = options.json;
    this.#out = options.out ?? process.stdout;
    this.#err = options.err ?? process.stderr;
  }

  /** True when standard output is a terminal and shows no JSON: a person watches the results. */
  get interactive(): boolean {
    return Boolean(this.#out.isTTY) && !this.json;
  }

  /** True when, in addition, the command may clear and redraw the screen. */
  get redraws(): boolean {
    return this.interactive && obeysEscapes(this.#out);
  }

  /** A line of the result. */
  print(line: string): void {
    this.#printStyled(displayText(line));
  }

  /** A piece of a text that belongs to the result. Resolves when there is room for more. */
  async text(piece: string): Promise<void> {
    await this.write(piece.replace(TEXT_CONTROLS, MARK));
  }

  /** Bytes of the result, or text without control characters of others, unchanged. Resolves when there is room for more. */
  async write(text: string | Uint8Array): Promise<void> {
    if (this.json || this.#isSilent) return;
    if (!this.#out.write(text)) {
      await new Promise<void>((resolve) => {
        const end = () => {
          this.#out.off('drain', end).off('close', end).off('error', end);
          resolve();
        };
        this.#out.once('drain', end).once('close', end).once('error', end);
      });
    }
  }

  /** The result as JSON, on one line. */
  value(value: unknown): void {
    if (this.json && !this.#isSilent) this.#out.write(`${jsonLine(value)}\n`);
  }

  /** Suppresses further results and remarks, because standard output cannot be written any more. */
  silence(): void {
    this.#isSilent = true;
  }

  /** A remark outside the result. */
  note(line: string): void {
    if (!this.json && !this.#isSilent) this.#err.write(`${this.#style(STYLE.dim, displayText(line))}\n`);
  }

  /** A remark between parts of the result. Goes to standard error, and also to standard output when only standard output is a terminal. */
  remark(line: string): void {
    if (this.#out.isTTY && !this.#err.isTTY) this.#printStyled(this.#style(STYLE.dim, displayText(line), this.#out));
    this.note(line);
  }

  /** Prints rows in columns, below a heading; without rows, the remark `empty`. Line breaks within a cell become spaces. */
  table(heading: readonly string[], rawRows: readonly (readonly string[])[], empty: string): void {
    if (rawRows.length === 0) {
      this.note(empty);
      return;
    }
    const rows = rawRows.map((row) => row.map((cell) => displayText(cell.replace(LINE_ENDS, ' '))));
    const widths = heading.map((title, column) =>
      Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)),
    );
    const line = (cells: readonly string[]) =>
      cells
        .map((cell, column) => (column === cells.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
        .join('  ')
        .trimEnd();
    this.#printStyled(this.#style(STYLE.bold, line(heading), this.#out));
    for (const row of rows) this.print(line(row));
  }

  /** Progress of long work: a spinner on a terminal, lines in a pipe. */
  progress(text: string): Progress {
    if (this.json) return { update: () => undefined, done: () => undefined, clear: () => undefined };
    if (!obeysEscapes(this.#err)) {
      this.#err.write(`${displayText(text)} …\n`);
      return {
        update: (next) => void this.#err.write(`${displayText(next)} …\n`),
        done: (last) => void this.#err.write(`${displayText(last)}\n`),
        clear: () => undefined,
      };
    }
    let currentText = text;
    let frame = 0;
    const draw = () => this.#err.write(`\r\x1b[K${SPINNER[frame++ % SPINNER.length]} ${displayText(currentText)} …`);
    draw();
    const timer = setInterval(draw, SPINNER_MS);
    const end = (line: string) => {
      clearInterval(timer);
      this.#err.write(`\r\x1b[K${line}`);
    };
    return {
      update: (next) => {
        currentText = next;
      },
      done: (last) => end(`${this.#style(STYLE.green, '✓')} ${displayText(last)}\n`),
      clear: () => end(''),
    };
  }

  /** Writes the error to standard error, with its stack when the command itself is at fault. */
  failure(failure: Failure): void {
    const { exitCode, cause } = failure;
    const stack = exitCode === EXIT.internal && cause instanceof Error ? cause.stack : undefined;
    if (this.json) {
      const { code, message, why, advice: hint, field, requestId, invocation } = failure;
      const diagnostics = failure.diagnostics.length > 0 ? failure.diagnostics : undefined;
      const error = { code, message, why, hint, field, requestId, invocation, diagnostics, stack };
      this.#err.write(`${jsonLine({ error })}\n`);
      return;
    }
    const lines = [failure.message];
    for (const { file, line, column, text, source } of failure.diagnostics) {
      lines.push(
        `  ${file}:${line}:${column}: ${text}`,
        `    ${source}`,
        `    ${' '.repeat(Math.max(0, column - 1))}^`,
      );
    }
    if (failure.field) lines.push(`  where: ${failure.field}`);
    if (failure.why !== undefined) lines.push(`  why: ${failure.why}`);
    if (failure.advice !== undefined) lines.push(`  what to do: ${failure.advice}`);
    const marks = [
      failure.code,
      failure.invocation && `invocation ${failure.invocation}`,
      failure.requestId && `request ${failure.requestId}`,
    ];
    const marksLine = this.#style(STYLE.dim, displayText(`  (${marks.filter(Boolean).join(', ')})`));
    this.#err.write(`${this.#style(STYLE.red, 'error:')} ${displayText(lines.join('\n'))}\n${marksLine}\n`);
    if (stack !== undefined) this.#err.write(`${displayText(stack)}\n`);
  }

  #printStyled(line: string): void {
    if (!this.json && !this.#isSilent) this.#out.write(`${line}\n`);
  }

  #style(code: number, text: string, stream = this.#err): string {
    return obeysEscapes(stream) ? `\x1b[${code}m${text}\x1b[0m` : text;
  }
}

/** True for a stream that may get escape sequences (https://no-color.org). */
function obeysEscapes(stream: NodeJS.WriteStream): boolean {
  return Boolean(stream.isTTY) && !process.env.NO_COLOR && process.env.TERM !== 'dumb';
}

/** The text with a mark in place of each character that a terminal obeys. */
export function displayText(text: string): string {
  return text.replace(TERMINAL_CONTROLS, MARK);
}

/** JSON on one line, with escapes in place of the characters that a terminal obeys, so the value stays the same. */
function jsonLine(value: unknown): string {
  return JSON.stringify(value).replace(
    TERMINAL_CONTROLS,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

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
