import type { Failure } from './failure.ts';

export interface Progress {
  /** Says what is being done now. */
  update(text: string): void;
  /** Ends with a line that stays. */
  done(text: string): void;
  /** Ends without a word, for a failure that is reported elsewhere. */
  clear(): void;
}

const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const SPINNER_MS = 80;

/**
 * Where a command writes. Results go to standard output, everything about the way there to standard error. With `json`, standard output
 * holds JSON only, one value a line.
 */
export class Terminal {
  readonly json: boolean;
  #silent = false;
  readonly #out: NodeJS.WriteStream;
  readonly #err: NodeJS.WriteStream;

  constructor(options: { json: boolean; out?: NodeJS.WriteStream; err?: NodeJS.WriteStream }) {
    this.json = options.json;
    this.#out = options.out ?? process.stdout;
    this.#err = options.err ?? process.stderr;
  }

  /** Whether a person watches the results. */
  get interactive(): boolean {
    return Boolean(this.#out.isTTY) && !this.json;
  }

  /** A line of the result. */
  print(line: string): void {
    if (!this.json && !this.#silent) this.#out.write(`${line}\n`);
  }

  /** A part of the result, as it is. Resolves when there is room for more. */
  async write(text: string | Uint8Array): Promise<void> {
    if (this.json || this.#silent) return;
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
    if (this.json && !this.#silent) this.#out.write(`${JSON.stringify(value)}\n`);
  }

  /** Says nothing more: nobody reads it. */
  silence(): void {
    this.#silent = true;
  }

  /** A remark that is no part of the result. */
  note(line: string): void {
    if (!this.json && !this.#silent) this.#err.write(`${this.#style(2, line)}\n`);
  }

  /** A remark about the result that belongs at its place in it: where a person reads the result, and on standard error for whoever else does. */
  remark(line: string): void {
    if (this.#out.isTTY && !this.#err.isTTY) this.print(this.#style(2, line, this.#out));
    this.note(line);
  }

  /** Rows in columns, the first one a heading. Without rows, `empty`. */
  table(heading: readonly string[], rows: readonly (readonly string[])[], empty: string): void {
    if (rows.length === 0) {
      this.note(empty);
      return;
    }
    const widths = heading.map((title, column) =>
      Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)),
    );
    const line = (cells: readonly string[]) =>
      cells
        .map((cell, column) => (column === cells.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
        .join('  ')
        .trimEnd();
    this.print(this.#out.isTTY ? this.#style(1, line(heading), this.#out) : line(heading));
    for (const row of rows) this.print(line(row));
  }

  /** Something that takes a while: a spinner on a terminal, lines in a pipe. */
  progress(text: string): Progress {
    if (this.json) return { update: () => undefined, done: () => undefined, clear: () => undefined };
    if (!this.#err.isTTY) {
      this.#err.write(`${text} …\n`);
      return {
        update: (next) => void this.#err.write(`${next} …\n`),
        done: (last) => void this.#err.write(`${last}\n`),
        clear: () => undefined,
      };
    }
    let current = text;
    let frame = 0;
    const draw = () => this.#err.write(`\r\x1b[K${SPINNER[frame++ % SPINNER.length]} ${current} …`);
    draw();
    const timer = setInterval(draw, SPINNER_MS);
    const end = (line: string) => {
      clearInterval(timer);
      this.#err.write(`\r\x1b[K${line}`);
    };
    return {
      update: (next) => {
        current = next;
      },
      done: (last) => end(`${this.#style(32, '✓')} ${last}\n`),
      clear: () => end(''),
    };
  }

  /** What went wrong, on standard error. */
  failure(failure: Failure): void {
    if (this.json) {
      const { code, message, why, advice: hint, field, requestId, invocation } = failure;
      const diagnostics = failure.diagnostics.length > 0 ? failure.diagnostics : undefined;
      this.#err.write(
        `${JSON.stringify({ error: { code, message, why, hint, field, requestId, invocation, diagnostics } })}\n`,
      );
      return;
    }
    const label = this.#style(31, 'error:');
    const lines = [`${label} ${failure.message}`];
    for (const { file, line, column, text, source } of failure.diagnostics) {
      lines.push(
        `  ${file}:${line}:${column}: ${text}`,
        `    ${source}`,
        `    ${' '.repeat(Math.max(0, column - 1))}^`,
      );
    }
    if (failure.field !== undefined) lines.push(`  where: ${failure.field}`);
    if (failure.why !== undefined) lines.push(`  why: ${failure.why}`);
    if (failure.advice !== undefined) lines.push(`  what to do: ${failure.advice}`);
    const marks = [
      failure.code,
      failure.invocation && `invocation ${failure.invocation}`,
      failure.requestId && `request ${failure.requestId}`,
    ];
    lines.push(this.#style(2, `  (${marks.filter(Boolean).join(', ')})`));
    this.#err.write(`${lines.join('\n')}\n`);
  }

  /** Colour on a terminal that wants it (https://no-color.org). */
  #style(code: number, text: string, stream = this.#err): string {
    return stream.isTTY && !process.env.NO_COLOR ? `\x1b[${code}m${text}\x1b[0m` : text;
  }
}
