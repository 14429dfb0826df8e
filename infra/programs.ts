import { spawn } from 'node:child_process';
import os from 'node:os';
import type { Config } from './config.ts';

/**
 * Runs one of the platform's own programs to its end and returns its exit code. `inherit` shows all of its output, `progress` only its
 * standard error. With `background`, the program and its children run at the lowest priority.
 */
export async function runProgram(
  config: Config,
  args: readonly string[],
  options: { output: 'inherit' | 'progress'; signal?: AbortSignal; background?: boolean },
): Promise<number | null> {
  const child = spawn(process.execPath, args, {
    cwd: config.root,
    // A process group of its own, like every child of the supervisor: only the supervisor handles Ctrl-C.
    detached: true,
    stdio: ['ignore', options.output === 'inherit' ? 'inherit' : 'ignore', 'inherit'],
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
  if (options.background === true && child.pid !== undefined) lowerPriority(child.pid);
  const abort = () => child.kill('SIGTERM');
  options.signal?.addEventListener('abort', abort, { once: true });
  if (options.signal?.aborted) abort();
  try {
    return await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
  } finally {
    options.signal?.removeEventListener('abort', abort);
  }
}

function lowerPriority(pid: number): void {
  try {
    os.setPriority(pid, os.constants.priority.PRIORITY_LOW);
  } catch {
    // The program has ended already, or this system has no priorities.
  }
}
