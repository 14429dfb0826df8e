import { destination, pino, stdSerializers, stdTimeFunctions } from 'pino';
import type { Logger } from '#scheduler/policies/logger.ts';
import { DEFAULT_LOG, type LogSettings } from './log-settings.ts';

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
  /** With the stacks of its causes. */
  readonly stack: string;
}

/**
 * Opens the log of this process. Each record is on standard error when the call returns, because a process may end right after it:
 * `process.stderr` keeps the text in memory when the reader of a pipe is slow, and would lose it then.
 *
 * @param process name of the process, such as `gpu-host-1`
 */
export function openLog(
  process: string,
  { level, format }: LogSettings = DEFAULT_LOG,
  write: (record: string) => void = standardError(),
): Logger {
  return pino(
    {
      level,
      base: { process },
      messageKey: 'message',
      errorKey: 'error',
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: errorRecord },
    },
    { write: (line) => write(format === 'json' ? escapeControls(line.trimEnd()) : textOf(JSON.parse(line))) },
  );
}

/** The parts of an error that are safe to log. Other members may hold data of tenants: ioredis adds the arguments of the failed command. */
function errorRecord(error: unknown): ErrorRecord | string {
  if (!(error instanceof Error)) return String(error);
  const { type, message, stack } = stdSerializers.err(error);
  const { code } = error as NodeJS.ErrnoException;
  return { type, message, ...(typeof code === 'string' && { code }), stack: stack || `${type}: ${message}` };
}

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

/** A value that has spaces or quotes in JSON's quotes. */
function shown(value: unknown): string {
  return typeof value === 'string' && /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
}

function isErrorRecord(value: unknown): value is ErrorRecord {
  return typeof value === 'object' && value !== null && 'stack' in value && typeof value.stack === 'string';
}

/** Characters that a terminal obeys instead of showing, that end a line, or that set the direction of text. */
const CONTROLS = /\p{Cc}|\p{Bidi_Control}|[\u2028\u2029]/gu;

/** Replaces them by JSON's escapes: texts of strangers must neither reach a terminal as they are nor look like another record. */
function escapeControls(text: string): string {
  return text.replace(CONTROLS, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

const STANDARD_ERROR = 2;

function standardError(): (record: string) => void {
  const stream = destination({ fd: STANDARD_ERROR, sync: true });
  // Without a listener, a reader that has gone or a full disk would end the process.
  stream.on('error', () => undefined);
  return (record) => void stream.write(`${record}\n`);
}
