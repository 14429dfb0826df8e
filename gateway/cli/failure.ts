import { CODES, RETRYABLE_CODES } from '../app/errors/codes.ts';
import { PieError } from '../client/errors.ts';

/** Exit codes. README.md of this folder documents them; scripts rely on them. */
export const EXIT = {
  ok: 0,
  /** The command line is wrong, or a file or output that it names cannot be read or written. */
  usage: 1,
  /** The platform or the build refused the request: wrong input, key, name, manifest or component; the source does not build. */
  refused: 2,
  /** The invocation ran and failed; or the sides of `pie demo` differ, or the client of `pie mcp` reads no answers. */
  failed: 3,
  /** The platform cannot be reached, or a part of it is down. */
  unreachable: 4,
  /** `pie doctor` found a fault. */
  unhealthy: 5,
  /** Runtimes of another release still take invocations. */
  upgrading: 6,
  /** A fault of the command itself. */
  internal: 70,
  /** Interrupted, the invocation was cancelled, or the user declined. */
  interrupted: 130,
} as const;

/** `Diagnostic` of `runtime/build/failure-schema.ts`, which this room may not import: `builder.ts` reads it from the build program's output. */
export interface Diagnostic {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly text: string;
  /** The faulty line of source. */
  readonly source: string;
}

interface FailureOptions {
  readonly exitCode?: number;
  /** A code of the API, or of the command itself (`usage`, `no-credentials`, …). */
  readonly code?: string;
  readonly why?: string | undefined;
  readonly advice?: string | undefined;
  readonly requestId?: string | undefined;
  readonly field?: string | undefined;
  readonly invocation?: string | undefined;
  readonly diagnostics?: readonly Diagnostic[];
  readonly cause?: unknown;
}

/** An error for the terminal: message, cause and remedy. */
export class Failure extends Error {
  override readonly name = 'Failure';
  readonly exitCode: number;
  readonly code: string;
  readonly why: string | undefined;
  readonly advice: string | undefined;
  readonly requestId: string | undefined;
  readonly field: string | undefined;
  readonly invocation: string | undefined;
  readonly diagnostics: readonly Diagnostic[];

  constructor(message: string, options: FailureOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.exitCode = options.exitCode ?? EXIT.usage;
    this.code = options.code ?? 'usage';
    this.why = options.why;
    this.advice = options.advice;
    this.requestId = options.requestId;
    this.field = options.field;
    this.invocation = options.invocation;
    this.diagnostics = options.diagnostics ?? [];
  }
}

/** Codes for an unavailable part of the platform, as opposed to a wrong request. */
const UNAVAILABLE_CODES: ReadonlySet<string> = new Set([
  'connection-failed',
  'bad-response',
  ...RETRYABLE_CODES.filter((code) => CODES[code].status === 503),
]);

/** Converts any caught value to a Failure. */
export function toFailure(thrown: unknown): Failure {
  if (thrown instanceof Failure) return thrown;
  if (thrown instanceof PieError) {
    return new Failure(thrown.message, {
      exitCode: UNAVAILABLE_CODES.has(thrown.code) ? EXIT.unreachable : EXIT.refused,
      code: thrown.code,
      advice: thrown.hint,
      requestId: thrown.requestId,
      field: thrown.field,
      invocation: thrown.invocation,
      cause: thrown,
    });
  }
  const error: NodeJS.ErrnoException = thrown instanceof Error ? thrown : new Error(String(thrown));
  // A system call on a file or program, for example in a folder that this user may not write.
  if (error.syscall !== undefined && error.path !== undefined)
    return new Failure(`${error.path} cannot be used.`, {
      code: 'file-failed',
      why: error.message,
      advice: 'Check that it exists, and that this user may use it.',
      cause: error,
    });
  return new Failure(error.message, {
    exitCode: EXIT.internal,
    code: 'internal',
    why: 'This is a fault of the command itself.',
    advice: 'Report it with the lines below.',
    cause: error,
  });
}
