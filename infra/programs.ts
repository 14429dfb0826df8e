import { spawn } from 'node:child_process';
import type { Config } from './config.ts';

/** Runs one of the platform's own programs to its end. `inherit` shows its output, `progress` only what it says on standard error; the rest is returned. */
export async function runProgram(
  config: Config,
  args: readonly string[],
  options: { output: 'inherit' | 'progress' | 'capture'; signal?: AbortSignal; url?: string },
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, args, {
    cwd: config.root,
    // A group of its own, as every child of the supervisor: Ctrl-C is the supervisor's to answer.
    detached: true,
    stdio: [
      'ignore',
      options.output === 'inherit' ? 'inherit' : 'pipe',
      options.output === 'capture' ? 'pipe' : 'inherit',
    ],
    env: { ...process.env, PIE_HOME: config.home, PIE_PORT: String(config.port), PIE_HOST: config.host },
  });
  const abort = () => child.kill('SIGTERM');
  options.signal?.addEventListener('abort', abort, { once: true });
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    return { code, stdout, stderr };
  } finally {
    options.signal?.removeEventListener('abort', abort);
  }
}
