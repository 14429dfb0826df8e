import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import path from 'node:path';
import { withLifeline } from '#infra/lifeline.ts';
import { EXIT, Failure } from './failure.ts';
import { pinnedNode, ROOT } from './paths.ts';

export interface ProgramOutcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Bound on the kept output of each stream. The last part is kept: programs print their answer, or the reason of a crash, at their end. */
const MAX_OUTPUT_CHARACTERS = 4 * 1024 * 1024;

/**
 * Runs one of the platform's programs (a path below its root) to its end. This process forwards SIGTERM to the program,
 * and kills it after `timeoutMs`. Throws {@link Failure} for a program that is missing or did not end in that time.
 *
 * @param output `inherit`: the program uses this terminal, which sends Ctrl-C to both processes. `read`: this function returns the output.
 * The program then has a process group of its own: this process forwards Ctrl-C (SIGINT) and the end of the terminal (SIGHUP) to the
 * group, and kills the whole group at the time limit. The group also ends when this process dies
 */
export async function runProgram(
  script: string,
  args: readonly string[],
  output: 'inherit' | 'read',
  timeoutMs?: number,
): Promise<ProgramOutcome> {
  const file = path.join(ROOT, script);
  if (!existsSync(file)) {
    throw new Failure(`${script} is missing.`, {
      exitCode: EXIT.unreachable,
      code: 'missing-program',
      advice: 'Run this command in a complete clone of Pie, which contains the program.',
    });
  }
  const isRead = output === 'read';
  const program = { command: pinnedNode(), args: [file, ...args] };
  // In a group of its own, the program would survive the death of this process.
  const run = isRead ? withLifeline(program.command, program.args) : program;
  const child = spawn(run.command, run.args, {
    stdio: isRead ? ['pipe', 'pipe', 'pipe'] : 'inherit',
    // A program that uses the terminal must stay in the terminal's group.
    detached: isRead,
    env: {
      ...process.env,
      PATH: `${path.dirname(pinnedNode())}${path.delimiter}${process.env.PATH ?? ''}`,
    },
  });
  // With `inherit` this listener forwards nothing, but without it Ctrl-C would end this process before the program.
  const forward = (signal: NodeJS.Signals) => {
    if (isRead) signalGroup(child, signal);
  };
  const terminate = () => child.kill('SIGTERM');
  process.on('SIGINT', forward).on('SIGTERM', terminate);
  if (isRead) process.on('SIGHUP', forward);
  let isLate = false;
  const kill = () => {
    isLate = true;
    if (isRead) signalGroup(child, 'SIGKILL');
    else child.kill('SIGKILL');
  };
  const timer = timeoutMs === undefined ? undefined : setTimeout(kill, timeoutMs);
  try {
    const [code, stdout, stderr] = await Promise.all([exitCodeOf(child), collect(child.stdout), collect(child.stderr)]);
    if (!isLate) return { code, stdout, stderr };
    throw new Failure(`${script} did not end within ${Number(timeoutMs) / 1000} s.`, {
      exitCode: EXIT.unreachable,
      code: 'program-late',
      why: stderr.trim() || undefined,
      advice: 'Try again when this machine is less busy.',
    });
  } finally {
    clearTimeout(timer);
    process.off('SIGINT', forward).off('SIGTERM', terminate).off('SIGHUP', forward);
  }
}

/** Signals a program and its children: a child, such as a compiler, keeps the output open even after the program has ended. */
function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // Every process of the group has ended.
  }
}

/** The exit code, as a shell reports it: 128 and the signal's number when a signal ended the program. */
function exitCodeOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(code ?? (signal === null ? 1 : 128 + constants.signals[signal])));
  });
}

async function collect(stream: NodeJS.ReadableStream | null): Promise<string> {
  if (!stream) return '';
  let text = '';
  stream.setEncoding('utf8');
  for await (const chunk of stream) {
    text += chunk;
    if (text.length > 2 * MAX_OUTPUT_CHARACTERS) text = text.slice(-MAX_OUTPUT_CHARACTERS);
  }
  return text.slice(-MAX_OUTPUT_CHARACTERS);
}
