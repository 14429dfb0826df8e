import { fileURLToPath } from 'node:url';
import { packageFolders } from '#infra/install.ts';
import {
  type ConfinedLimits,
  type ConfinedProgram,
  type Ended,
  type Layers,
  LimitPassed,
  machineLayers,
  type ProgramCode,
  runConfined,
} from '../sandboxes/index.ts';
import { type BuildFailure, failureSchema } from './failure-schema.ts';
import { BuildError } from './outcome.ts';

/** Program that runs in the child. */
const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));
/** The child's code, and the file with the versions of its tools. */
const SOURCES = ['runtime/build', 'wit', 'package.json'].map((path) =>
  fileURLToPath(new URL(`../../${path}`, import.meta.url)),
);
/** Folders of the child's code and its tools. The whole repository is not readable: it may contain a home directory with keys. */
const CODE = [...SOURCES, ...packageFolders()];
/** The part of the program that all stages share. */
const PROGRAM = {
  main: MAIN,
  // jco's own WASI shim starts a thread.
  workers: true,
  // V8 then compiles only the functions that run: a build runs a small part of jco's 6 MB of WebAssembly, for less than a second.
  once: true,
} satisfies Partial<ConfinedProgram>;

/** A program that loads the code of the artifact stage and ends. The runtime runs it to fill the code cache of builds. */
export const LOADING: ProgramCode = { program: { ...PROGRAM, args: ['load'], read: CODE }, sources: SOURCES };

/** Permissions of a stage beyond reading its own code. */
interface StagePermissions {
  readonly read: readonly string[];
  readonly write: readonly string[];
  /** Permits native addons and child processes; the bundler, the QuickJS componentizer and the compilers need them. */
  readonly tools: boolean;
}

/**
 * Runs `main.ts` with these arguments in a process confined by `layers` (by default, the strongest of this machine), and returns the
 * answer in the last line that it prints. Throws BuildError `build-timeout` or `build-failed`, or the signal's reason.
 */
export async function runStage<T extends { readonly ok: true }>(
  args: readonly string[],
  { read, write, tools }: StagePermissions,
  limits: ConfinedLimits,
  layers?: Layers,
): Promise<T | BuildFailure> {
  const program = {
    ...PROGRAM,
    args: [...args, '--json'],
    read: [...CODE, ...read],
    write,
    tools,
    environment: tools ? toolEnvironment(write) : {},
  };
  const ended = await runConfined(layers ?? (await machineLayers()), program, { ...limits, isAnswer }).catch(
    (error: unknown) => {
      throw error instanceof LimitPassed ? limitError(error, limits) : error;
    },
  );
  const answer = answerIn<T>(ended.output.trimEnd().split('\n').at(-1) ?? '');
  if (answer === null) throw crashError(ended);
  return answer;
}

const isAnswer = (line: string): boolean => line.startsWith('{"ok":');

/** The answer in a line of the child; null for a line without one. Failures are validated, because untrusted bytes may have taken the child over. */
export function answerIn<T extends { readonly ok: true }>(line: string): T | BuildFailure | null {
  if (!isAnswer(line)) return null;
  try {
    const answer = JSON.parse(line) as T | BuildFailure;
    return answer.ok === true ? answer : failureSchema.parse(answer);
  } catch {
    return null;
  }
}

/** Compilers need the PATH to find each other, and a folder for temporary files: the first that the stage may write. */
function toolEnvironment([folder]: readonly string[]): Readonly<Record<string, string>> {
  const { PATH } = process.env;
  return { ...(PATH ? { PATH } : {}), ...(folder ? { TMPDIR: folder } : {}) };
}

function limitError({ limit }: LimitPassed, { timeoutMs, cpuMs, memoryMb, files }: ConfinedLimits): BuildError {
  if (limit === 'memory') {
    return new BuildError(
      'build-failed',
      `The build needed more than ${memoryMb} MiB of memory and was stopped.`,
      'Make the component smaller, or raise the build memory limit of the platform.',
    );
  }
  if (limit === 'files') {
    return new BuildError(
      'build-failed',
      `The build wrote more than ${files?.megabytes} MiB, or more than ${files?.names} files, and was stopped.`,
      'Make the component smaller.',
    );
  }
  return new BuildError(
    'build-timeout',
    limit === 'cpu' && cpuMs !== undefined
      ? `The build took more than ${cpuMs / 1000} s of CPU time and was stopped.`
      : `The build took longer than ${timeoutMs / 1000} s and was stopped.`,
    'Make the component smaller, or raise the build time limit of the platform.',
  );
}

function crashError({ code, errors }: Ended): BuildError {
  const last = errors.trim().split('\n').slice(-5).join('\n').slice(-2000);
  const cause = /heap out of memory|Allocation failed|could not allocate memory/.test(errors)
    ? 'it ran out of memory'
    : last || 'no message';
  return new BuildError(
    'build-failed',
    `The build process ended with ${code === null ? 'a signal' : `code ${code}`}: ${cause}`,
    'Try again; if it happens again, make the component smaller or report it.',
  );
}
