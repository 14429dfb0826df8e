import { spawn } from 'node:child_process';
import os from 'node:os';
import readline from 'node:readline';
import type { Config } from './config.ts';
import { withLifeline } from './lifeline.ts';

interface ProgramOptions {
  /** `inherit` shows all of the program's output, `progress` only its standard error. A function gets each line of both instead. */
  readonly output: 'inherit' | 'progress' | ((line: string) => void);
  readonly signal?: AbortSignal;
  /** True to run the program and its children at the lowest priority. */
  readonly background?: boolean;
}

/**
 * Runs one of the platform's own programs to its end and returns its exit code. The program and its children end with this process, even when
 * SIGKILL ends it.
 */
export async function runProgram(
  config: Config,
  args: readonly string[],
  { output, signal, background = false }: ProgramOptions,
): Promise<number | null> {
  const isRead = typeof output === 'function';
  const program = withLifeline(process.execPath, args);
  const child = spawn(program.command, program.args, {
    cwd: config.root,
    // A process group of its own, like every child of the supervisor: only the supervisor handles Ctrl-C.
    detached: true,
    stdio: ['pipe', isRead ? 'pipe' : output === 'inherit' ? 'inherit' : 'ignore', isRead ? 'pipe' : 'inherit'],
    env: {
      ...process.env,
      // The program works on this platform, even when the operator's shell points `pie` at another one.
      PIE_URL: undefined,
      PIE_API_KEY: undefined,
      PIE_HOME: config.home,
      PIE_PORT: String(config.port),
      PIE_HOST: config.host,
    },
  });
  // The end of the program breaks the lifeline.
  child.stdin?.on('error', () => undefined);
  if (isRead) {
    for (const stream of [child.stdout, child.stderr])
      if (stream) readline.createInterface({ input: stream }).on('line', output);
  }
  if (background && child.pid !== undefined) lowerPriority(child.pid);
  const abort = () => child.kill('SIGTERM');
  signal?.addEventListener('abort', abort, { once: true });
  if (signal?.aborted) abort();
  try {
    return await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

function lowerPriority(pid: number): void {
  try {
    os.setPriority(pid, os.constants.priority.PRIORITY_LOW);
  } catch {
    // The program has ended already, or this system has no priorities.
  }
}
