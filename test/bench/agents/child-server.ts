import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';

/** Long enough to load a model on a busy machine. */
const START_TIMEOUT_MS = 60_000;

/** A server in a child process, which sends its ports over the IPC channel. `await using` ends the process. */
export class ChildServer implements AsyncDisposable {
  readonly ports: readonly number[];
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, ports: readonly number[]) {
    this.#child = child;
    this.ports = ports;
  }

  /** Starts a program of this folder and waits until it listens. */
  static async start(file: string, args: readonly string[]): Promise<ChildServer> {
    const child = fork(path.join(import.meta.dirname, file), args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    try {
      const signal = AbortSignal.timeout(START_TIMEOUT_MS);
      const [ports] = (await Promise.race([
        once(child, 'message', { signal }),
        once(child, 'exit', { signal }).then(([code]) => {
          throw new Error(`${file} ended with ${code} before it listened`);
        }),
      ])) as [number[]];
      child.once('exit', (code, signal) => {
        if (!child.killed) console.error(`${file} ended with ${signal ?? code}`);
      });
      return new ChildServer(child, ports);
    } catch (error) {
      child.kill('SIGKILL');
      throw error;
    }
  }

  get port(): number {
    return this.ports[0] as number;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exited;
  }
}

/** Sends the ports from the child to the parent, and ends the child with the parent. */
export function announce(ports: readonly number[]): void {
  process.once('disconnect', () => process.exit(0));
  process.send?.(ports);
}
