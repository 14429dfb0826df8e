import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { constants } from 'node:os';
import { join, relative, resolve } from 'node:path';
import type { Source } from '../component/source.ts';
import { BuildError } from '../outcome.ts';

/** Maximum characters of a compiler's output. */
const MAX_OUTPUT_CHARACTERS = 1_000_000;

/** A compiler's wall-clock limit is this multiple of its CPU limit, because on a busy machine a compiler mostly waits for a core. */
const WALL_CLOCK_FACTOR = 4;

/** Exit code of the shell when the program does not exist. */
const NOT_FOUND = 127;
/**
 * Exit codes of a compiler that crashed; one that refuses a source has others. clang exits with 70 after an internal error, and with 254 when
 * a program that it started crashed. rustc exits with 101 after a panic. The other codes are 128 + SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE or
 * SIGSEGV: clang catches these signals.
 */
const CRASH_CODES: ReadonlySet<number | null> = new Set([70, 101, 132, 133, 134, 135, 136, 139, 254]);

/** Thrown when a compiler, or a part of it, is not installed. */
export class MissingCompilerError extends BuildError {
  constructor(message: string, hint: string) {
    super('build-failed', message, hint);
    this.name = 'MissingCompilerError';
  }
}

export interface Compiled {
  readonly module: Uint8Array;
  /** Paths of the project's files that were compiled, relative to the project. */
  readonly files: readonly string[];
}

/** Result of a compiler's run. */
export interface Ran {
  readonly code: number;
  readonly output: string;
  readonly errors: string;
}

interface CompilerLimits {
  readonly cwd: string;
  /** Limit on CPU time. */
  readonly limitMs: number;
  /** Limit on address space. */
  readonly limitKib: number;
}

const running = new Set<ChildProcess>();

/** Does work in a temporary folder below `parent`. SIGINT and SIGTERM end the running compilers, remove the folder and end this process. */
export async function inFolder<T>(parent: string, work: (folder: string) => Promise<T>): Promise<T> {
  let folder = '';
  const interrupted = (signal: 'SIGINT' | 'SIGTERM'): void => {
    for (const child of running) child.kill('SIGKILL');
    if (folder !== '') rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    process.exit(128 + constants.signals[signal]);
  };
  process.on('SIGINT', interrupted).on('SIGTERM', interrupted);
  try {
    folder = mkdtempSync(join(resolve(parent), '.native-'));
    return await work(folder);
  } finally {
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
    if (folder !== '') await rm(folder, { recursive: true, force: true });
  }
}

/** Runs a compiler with limits; null when the program does not exist. @throws BuildError when it passes a limit or crashes */
export async function runCompiler(
  program: string,
  args: readonly string[],
  { cwd, limitMs, limitKib }: CompilerLimits,
): Promise<Ran | null> {
  // A timer bounds the time, too: not every system has these limits, and a compiler that hangs uses no CPU time.
  const limits = `ulimit -c 0; ulimit -t ${limitMs / 1000}; ulimit -v ${limitKib} 2>/dev/null`;
  const child = spawn('/bin/sh', ['-c', `${limits}; exec "$@"`, 'sh', program, ...args], {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  const timer = setTimeout(() => child.kill('SIGKILL'), limitMs * WALL_CLOCK_FACTOR);
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    if (output.length < MAX_OUTPUT_CHARACTERS) output += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (errors.length < MAX_OUTPUT_CHARACTERS) errors += text;
  });
  try {
    const [code, signal] = await new Promise<[code: number | null, signal: NodeJS.Signals | null]>((settle, reject) => {
      child.once('error', reject);
      child.once('close', (...end) => settle(end));
    });
    if (code === NOT_FOUND) return null;
    if (code !== null && !CRASH_CODES.has(code)) return { code, output, errors };
    if (signal === 'SIGXCPU' || signal === 'SIGKILL') {
      throw new BuildError(
        'build-timeout',
        `The compiler took more than ${limitMs / 1000} s of CPU time, ${(limitMs * WALL_CLOCK_FACTOR) / 1000} s in all, or more memory than there is, and was stopped.`,
        'Make the source smaller.',
      );
    }
    throw new BuildError(
      'build-failed',
      `The compiler crashed (${signal ?? `exit code ${code}`}). It may have needed more than its ${limitKib / 1024} MiB of address space.`,
      'Make the source smaller; if the compiler crashes outside of Pie too, report the source to its makers.',
    );
  } finally {
    clearTimeout(timer);
    running.delete(child);
  }
}

/** The source's path in a form that a compiler cannot take for an option (`-…`) or a file of options (`@file`). */
export function inputPath({ directory, entry }: Source): string {
  const path = relative(directory, entry);
  if (!path.split(/[/\\]/).some((segment) => /^[-@]/.test(segment))) return `./${path}`;
  throw new BuildError(
    'build-failed',
    `The name ${path} begins with - or @, which compilers take for an option.`,
    'Rename the file or the folder.',
  );
}

/** The project's own files that a dependency list in `make` format names. */
export function projectFiles(rule: string, directory: string): string[] {
  const paths = rule
    .slice(rule.indexOf(':') + 1)
    .replaceAll('\\\n', ' ')
    .match(/(?:\\ |\S)+/g);
  const relativePaths = (paths ?? []).map((path) =>
    relative(directory, resolve(directory, path.replaceAll('\\ ', ' '))),
  );
  return [...new Set(relativePaths)].filter((path) => !path.startsWith('..'));
}
