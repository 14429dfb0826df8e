import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import type { Measurement, Task } from './engines.ts';

const START_TIMEOUT_MS = 60_000;
/** llama.cpp's threads busy-wait for each other, so a task can take minutes on a busy machine. */
const TASK_TIMEOUT_MS = 300_000;

/** An engine in a process of its own, so that the threads of idle engines take no time from the measured one. */
export class EngineProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  /** File and arguments, for errors. */
  readonly #command: string;

  private constructor(child: ChildProcess, command: string) {
    this.#child = child;
    this.#command = command;
  }

  static async start(file: string, args: readonly string[]): Promise<EngineProcess> {
    const child = fork(path.join(import.meta.dirname, file), args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    const engine = new EngineProcess(child, [file, ...args].join(' '));
    try {
      await engine.#nextAnswer(START_TIMEOUT_MS);
    } catch (error) {
      await engine[Symbol.asyncDispose]();
      throw error;
    }
    return engine;
  }

  async measure(task: Task): Promise<Measurement> {
    const answer = this.#nextAnswer(TASK_TIMEOUT_MS);
    this.#child.send(task);
    const measured = (await answer) as Measurement & { error?: string };
    if (measured.error !== undefined) throw new Error(`${this.#command}: ${measured.error}`);
    return measured;
  }

  /** Tokens a second of sequences that decode together, each with `context` tokens in its cache at first. */
  async tokensPerSecond(batch: number, context: number, steps: number): Promise<number> {
    return (batch * 1000) / (await this.measure({ kind: 'decode', batch, context, steps })).ms;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = new Promise((resolve) => this.#child.once('exit', resolve));
    // The process has nothing to save, and its thread may be busy with a task for long.
    this.#child.kill('SIGKILL');
    await exited;
  }

  #nextAnswer(timeoutMs: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const end = (settle: () => void) => {
        clearTimeout(timer);
        this.#child.off('message', onMessage);
        this.#child.off('exit', onExit);
        settle();
      };
      const onMessage = (message: unknown) => end(() => resolve(message));
      const onExit = (code: number | null) => end(() => reject(new Error(`${this.#command} ended with ${code}`)));
      const timer = setTimeout(
        () => end(() => reject(new Error(`${this.#command} did not answer within ${timeoutMs} ms`))),
        timeoutMs,
      );
      this.#child.once('message', onMessage);
      this.#child.once('exit', onExit);
    });
  }
}
