import { writeSync } from 'node:fs';
import { inspect } from 'node:util';
import { pino, stdTimeFunctions } from 'pino';
import type { Logger } from '#scheduler/policies/logger.ts';
import { environmentLog, type LogSettings } from './log-settings.ts';

export type { Logger };

/** The members of a record that every record has; the others are the fields. */
interface LogRecord {
  readonly level: string;
  readonly time: string;
  readonly process: string;
  readonly message: string;
  readonly error?: unknown;
}

/** An error in a record. */
interface ErrorRecord {
  readonly type: string;
  readonly message: string;
  readonly code?: string;
  /** Stack of the error, followed by those of the errors that it unites and of its causes. */
  readonly stack: string;
}

/**
 * Opens the log of this process, on standard error.
 *
 * @param process name of the process, such as `gpu-host-1`
 * @param settings those of the environment by default, for a process that has not read its configuration
 * @param write gets the records instead of standard error
 * @param copy gets each record, too
 */
export function openLog(
  process: string,
  { level, format }: LogSettings = environmentLog(),
  write?: (record: string) => void,
  copy?: (record: string) => void,
): Logger {
  const output = write === undefined ? standardError() : { write };
  const log: Logger = pino(
    {
      level,
      base: { process },
      messageKey: 'message',
      errorKey: 'error',
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: errorRecord },
    },
    {
      write: (line) => {
        const record = format === 'json' ? escapeControls(line.trimEnd()) : textOf(JSON.parse(line));
        output.write(record);
        copy?.(record);
      },
    },
  );
  if (output instanceof StandardError)
    output.onDropped = (records) => log.warn({ records }, 'the reader of the log was slow, and records are missing');
  return log;
}

let ownStandardError: StandardError | undefined;

/** The one object through which all logs of the process write. */
function standardError(): StandardError {
  ownStandardError ??= new StandardError();
  return ownStandardError;
}

/**
 * Logs the error that ends a process. A `TypeError`, `RangeError` or `ReferenceError`, or a value that is no error, is a fault of Pie and is logged
 * with its stack. Any other error addresses the operator, who needs only its message.
 */
export function logEnding(log: Logger, error: unknown, what: string): void {
  const isFault =
    !(error instanceof Error) || [TypeError, RangeError, ReferenceError].some((kind) => error instanceof kind);
  if (isFault) log.error({ error }, what);
  else log.error({}, `${what}: ${error.message}`);
}

/** The parts of an error that are safe to log. Other members may hold data of tenants: ioredis adds the arguments of the failed command. */
function errorRecord(error: unknown): ErrorRecord | string {
  if (!(error instanceof Error)) return plainText(error);
  const { name, message, code } = error as NodeJS.ErrnoException;
  return { type: name, message, ...(typeof code === 'string' && { code }), stack: stackOf(error) };
}

/** Maximum errors below each other in a stack: a chain of causes may be a circle. */
const MAX_DEPTH = 8;
/** Maximum errors of an `AggregateError` in a stack. */
const MAX_UNITED = 8;

function stackOf(error: unknown, depth = 0): string {
  if (!(error instanceof Error)) return plainText(error);
  const own = error.stack || `${error.name}: ${error.message}`;
  if (depth === MAX_DEPTH) return own;
  const united: readonly unknown[] = error instanceof AggregateError ? error.errors.slice(0, MAX_UNITED) : [];
  const below = error.cause === undefined ? united : [...united, error.cause];
  return [own, ...below.map((each) => `caused by: ${stackOf(each, depth + 1)}`)].join('\n');
}

const plainText = (value: unknown): string => (typeof value === 'string' ? value : inspect(value, { depth: 1 }));

/** `2026-05-01T12:00:00.000Z warn runtime-1: the sandbox ended tenant=acme`, and the stack below it. */
function textOf({ level, time, process, message, error, ...fields }: LogRecord): string {
  const shownFields = Object.entries({ ...fields, ...(typeof error === 'string' && { error }) });
  const line = [
    `${time} ${level} ${process}: ${message}`,
    ...shownFields.map(([key, value]) => `${key}=${shown(value)}`),
  ];
  const stack = isErrorRecord(error) ? error.stack.split('\n') : [];
  return [line.join(' '), ...stack.map((frame) => `    ${frame}`)].map(escapeControls).join('\n');
}

/** A text without spaces, quotes and equals signs as it is; any other value as JSON. */
function shown(value: unknown): string {
  return typeof value === 'string' && /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
}

function isErrorRecord(value: unknown): value is ErrorRecord {
  return typeof value === 'object' && value !== null && 'stack' in value && typeof value.stack === 'string';
}

/** Characters that a terminal obeys instead of showing, that end a line, or that set the direction of text. */
const CONTROLS = /\p{Cc}|\p{Bidi_Control}|[\u2028\u2029]/gu;

/** Replaces these characters by JSON's escapes: a stranger's text must neither control a terminal nor look like another record. */
function escapeControls(text: string): string {
  return text.replace(CONTROLS, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

const STANDARD_ERROR = 2;
/** Maximum bytes that wait for the reader of a pipe. */
const MAX_WAITING_BYTES = 4 * 2 ** 20;
const RETRY_MS = 20;
/** Time that an ending process gives the reader to take the last lines. */
const EXIT_MS = 1000;
const EXIT_RETRY_MS = 5;

/**
 * Writes lines to standard error at once, because a process may end right after. A full pipe must not hold up the process, so lines wait in
 * memory, up to a bound, until the pipe's reader takes them. `process.stderr` would lose such lines when the process ends.
 */
export class StandardError {
  /** Called with the number of dropped lines, once all waiting lines are written. */
  onDropped: (count: number) => void = () => undefined;
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #droppedCount = 0;
  #retry: NodeJS.Timeout | undefined;

  constructor() {
    process.once('exit', () => this.#finish());
  }

  write(line: string): void {
    const bytes = Buffer.from(`${line}\n`);
    if (this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) {
      this.#droppedCount++;
      return;
    }
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    if (this.#retry === undefined) this.#flush();
  }

  #flush(): void {
    this.#retry = undefined;
    if (!this.#writeWaiting()) {
      this.#retry = setTimeout(() => this.#flush(), RETRY_MS).unref();
      return;
    }
    const count = this.#droppedCount;
    this.#droppedCount = 0;
    if (count > 0) this.onDropped(count);
  }

  /** Writes waiting lines while the reader takes them. Returns false when some still wait. */
  #writeWaiting(): boolean {
    const waiting = Buffer.concat(this.#waiting);
    let written = 0;
    try {
      while (written < waiting.length) written += writeSync(STANDARD_ERROR, waiting, written);
    } catch (error) {
      // After any other failure, such as a full disk or a closed pipe, the lines cannot be written and are dropped.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') written = waiting.length;
    }
    this.#waiting = written < waiting.length ? [waiting.subarray(written)] : [];
    this.#waitingBytes = waiting.length - written;
    return this.#waitingBytes === 0;
  }

  #finish(): void {
    clearTimeout(this.#retry);
    // `Atomics.wait` on a value that never changes is a sleep: a process that exits runs no timers.
    const unchanged = new Int32Array(new SharedArrayBuffer(4));
    for (const end = performance.now() + EXIT_MS; !this.#writeWaiting() && performance.now() < end; )
      Atomics.wait(unchanged, 0, 0, EXIT_RETRY_MS);
  }
}
