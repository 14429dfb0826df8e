/** Why a build was refused or failed; the gateway answers these codes as they are. */
export type BuildCode =
  | 'not-wasm'
  | 'core-module'
  | 'wrong-world'
  | 'component-too-large'
  | 'unsupported-component'
  | 'build-failed'
  | 'build-timeout';

/** One fault in a source file. Lines and columns count from 1. */
export interface Diagnostic {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly text: string;
  /** The line of source that it is about. */
  readonly source: string;
}

export interface BuildFailure {
  readonly ok: false;
  readonly code: BuildCode;
  /** What happened and why. */
  readonly message: string;
  /** What to do about it. */
  readonly hint: string;
  readonly diagnostics?: readonly Diagnostic[];
}

/** A build that cannot go on. It crosses the process boundary as a BuildFailure. */
export class BuildError extends Error {
  readonly code: BuildCode;
  readonly hint: string;
  readonly diagnostics: readonly Diagnostic[];

  constructor(code: BuildCode, message: string, hint: string, diagnostics: readonly Diagnostic[] = []) {
    super(message);
    this.name = 'BuildError';
    this.code = code;
    this.hint = hint;
    this.diagnostics = diagnostics;
  }
}

/** Anything caught, as the failure that is reported. What is not a BuildError is a fault of a tool or of ours: `build-failed`. */
export function failureFrom(error: unknown): BuildFailure {
  if (error instanceof BuildError) {
    const { code, message, hint, diagnostics } = error;
    return { ok: false, code, message, hint, ...(diagnostics.length > 0 ? { diagnostics } : {}) };
  }
  const message = error instanceof Error ? error.message : String(error);
  return {
    ok: false,
    code: 'build-failed',
    message: `The build stopped: ${message}`,
    hint: 'If your inferlet is fine, this is a fault of the platform: please report it with this message.',
  };
}
