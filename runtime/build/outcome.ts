import type { BuildCode, BuildFailure, Diagnostic } from './failure-schema.ts';

/** Ends a build. It crosses the process boundary as a BuildFailure. */
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

/** Turns a caught error into a failure to report. An error other than a BuildError is a fault of a tool or of the platform: `build-failed`. */
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
