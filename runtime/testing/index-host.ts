import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { loadConfig } from '#infra/config.ts';

/** An index host in a process and a home of its own. */
export class TestIndexHost {
  readonly socket: string;
  readonly #home = mkdtempSync(path.join(os.tmpdir(), 'pie-index-'));
  #process: ChildProcess | undefined;

  constructor() {
    const { index } = loadConfig({ PIE_HOME: this.#home });
    this.socket = index.socket;
    mkdirSync(path.dirname(this.socket), { recursive: true });
  }

  /** Starts the process, or another one after `kill`. */
  async start(): Promise<void> {
    const child = spawn(process.execPath, [fileURLToPath(new URL('../../index-host/main.ts', import.meta.url))], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { PATH: process.env.PATH, PIE_HOME: this.#home },
    });
    this.#process = child;
    for await (const line of readline.createInterface({ input: child.stdout })) {
      if (line.startsWith('{"ready":true')) return;
    }
    throw new Error('the index host ended before it was ready');
  }

  async kill(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    rmSync(this.#home, { recursive: true, force: true });
  }
}
