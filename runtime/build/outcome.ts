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
  if (isDiskFull(error))
    return {
      ok: false,
      code: 'build-failed',
      message: 'The build stopped: the disk is full.',
      hint:
        'Free space on the machine that builds: on the disk of its home for a deploy, which its operator does, and on that of the folder for temporary ' +
        'files for `pie build`. Then build again.',
    };
  const message = error instanceof Error ? error.message : String(error);
  return {
    ok: false,
    code: 'build-failed',
    message: `The build stopped: ${message}`,
    hint: 'If your inferlet is fine, this is a fault of the platform: please report it with this message.',
  };
}

/** True for the error of a write for which the disk, or the quota of the user, has no room. */
function isDiskFull(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'ENOSPC' || code === 'EDQUOT';
}
