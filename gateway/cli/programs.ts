import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
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
 * Runs one of the platform's programs (a path below its root) to its end. `inherit` gives it this terminal; `read` returns its output.
 * The terminal sends Ctrl-C to the program too; this process forwards SIGTERM, and kills the program after `timeoutMs`.
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
  const child = spawn(pinnedNode(), [file, ...args], {
    stdio: output === 'inherit' ? 'inherit' : ['ignore', 'pipe', 'pipe'],
    ...(timeoutMs === undefined ? {} : { timeout: timeoutMs, killSignal: 'SIGKILL' }),
    env: {
      ...process.env,
      PATH: `${path.dirname(pinnedNode())}${path.delimiter}${process.env.PATH ?? ''}`,
    },
  });
  const hold = () => undefined;
  const terminate = () => child.kill('SIGTERM');
  process.on('SIGINT', hold).on('SIGTERM', terminate);
  try {
    const [code, stdout, stderr] = await Promise.all([ended(child), collect(child.stdout), collect(child.stderr)]);
    return { code, stdout, stderr };
  } finally {
    process.off('SIGINT', hold).off('SIGTERM', terminate);
  }
}

function ended(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(code ?? (signal === 'SIGINT' ? EXIT.interrupted : 128)));
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
