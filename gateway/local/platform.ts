import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import readline from 'node:readline';
import { defaultHome, pinnedNode, ROOT } from '#infra/install.ts';
import { PieClient } from '../client/client.ts';

/** Loading a large model takes its time; downloads come on top and are waited for as long as they say something. */
const SILENCE_LIMIT_MS = 120_000;
/** On top of the drain that the platform gives running invocations. */
const STOP_LIMIT_MS = 20_000;
const TAIL_LINES = 30;

export interface LocalPlatformOptions {
  /** Where it keeps everything: `PIE_HOME`, else the usual home. */
  readonly home?: string | undefined;
  /** Where it listens: `PIE_PORT`, else what its configuration says. */
  readonly port?: number | undefined;
  /** On top of this process's environment; `undefined` takes a variable away. */
  readonly environment?: NodeJS.ProcessEnv;
  /** Ends the start. */
  readonly signal?: AbortSignal | undefined;
  /** Called with each line about downloads and the like. */
  readonly onProgress?: (line: string) => void;
}

/** The platform could not be started; the message says why and what to do. */
export class LocalPlatformError extends Error {
  override readonly name = 'LocalPlatformError';
}

/** A platform that this process started and that ends with it, even when this process is killed. */
export class LocalPlatform implements AsyncDisposable {
  readonly url: string;
  readonly apiKey: string;
  readonly home: string;
  readonly client: PieClient;
  /** Resolves with the exit code when the platform has ended, by itself or stopped. */
  readonly exited: Promise<number | null>;
  readonly #supervisor: Supervisor;

  private constructor(supervisor: Supervisor, serving: Serving) {
    this.#supervisor = supervisor;
    this.exited = supervisor.exited;
    this.home = serving.home;
    const { url, apiKey } = credentialsIn(serving.home);
    this.url = url;
    this.apiKey = apiKey;
    this.client = new PieClient({ url, apiKey });
  }

  /** Starts a platform without the bundled functions and waits until it serves. Throws {@link LocalPlatformError}, or the signal's reason. */
  static async start(options: LocalPlatformOptions = {}): Promise<LocalPlatform> {
    options.signal?.throwIfAborted();
    const supervisor = new Supervisor(options);
    try {
      return new LocalPlatform(supervisor, await supervisor.serving(options.signal));
    } catch (error) {
      await supervisor.stop();
      throw error;
    }
  }

  /** Drains and ends it. */
  async stop(): Promise<void> {
    await this.#supervisor.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

interface Serving {
  readonly kind: 'serving';
  readonly home: string;
}

/** The program `infra/up.ts` with its lifeline. */
class Supervisor {
  readonly exited: Promise<number | null>;
  readonly #process: ChildProcess;
  readonly #tail: string[] = [];
  #onLine: (line: string) => void = () => undefined;
  #problem = '';

  constructor({ home, port, environment, onProgress }: LocalPlatformOptions) {
    this.#process = spawn(pinnedNode(), [path.join(ROOT, 'infra/up.ts'), '--json', '--no-functions'], {
      // A group of its own: Ctrl-C in the terminal is for whoever started the platform to answer.
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
      env: {
        ...process.env,
        NODE_OPTIONS: undefined,
        ...environment,
        PIE_HOME: home ?? (process.env.PIE_HOME || defaultHome()),
        ...(port === undefined ? {} : { PIE_PORT: String(port) }),
        PIE_LIFELINE: 'stdin',
      },
    });
    this.exited = new Promise((resolve) => {
      this.#process.once('error', (error) => {
        this.#problem = error.message;
        resolve(null);
      });
      // Not its exit: what it said last comes after that.
      this.#process.once('close', (code) => resolve(code));
    });
    const { stdin, stdout, stderr } = this.#process;
    // A platform that ends breaks its pipe; its exit says so already.
    stdin?.on('error', () => undefined);
    if (stdout !== null) readline.createInterface({ input: stdout }).on('line', (line) => this.#onLine(line));
    if (stderr !== null) {
      readline.createInterface({ input: stderr }).on('line', (line) => {
        this.#tail.push(line);
        if (this.#tail.length > TAIL_LINES) this.#tail.shift();
        onProgress?.(line);
        this.#onLine(line);
      });
    }
    // Nobody is kept from ending by a platform that ends with him.
    this.#process.unref();
    for (const stream of [stdin, stdout, stderr]) (stream as net.Socket | null)?.unref();
  }

  serving(signal: AbortSignal | undefined): Promise<Serving> {
    return new Promise((resolve, reject) => {
      let timer = setTimeout(() => undefined, 0);
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', abort);
        this.#onLine = () => undefined;
      };
      const fail = (why: string) => {
        end();
        reject(new LocalPlatformError(`The platform did not start: ${why}.\n${this.#said()}`.trim()));
      };
      const abort = () => {
        end();
        reject(signal?.reason);
      };
      const wait = () => {
        clearTimeout(timer);
        timer = setTimeout(() => fail(`it said nothing for ${SILENCE_LIMIT_MS / 1000} s`), SILENCE_LIMIT_MS);
      };
      signal?.addEventListener('abort', abort, { once: true });
      this.#onLine = (line) => {
        wait();
        const serving = servingIn(line);
        if (serving === null) return;
        end();
        resolve(serving);
      };
      wait();
      void this.exited.then((code) => fail(code === null ? 'it was ended' : `it ended with exit code ${code}`));
    });
  }

  async stop(): Promise<void> {
    this.#process.ref();
    this.#process.kill('SIGTERM');
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), STOP_LIMIT_MS);
    await this.exited;
    clearTimeout(timer);
    this.#process.stdin?.destroy();
  }

  #said(): string {
    return [this.#problem, ...this.#tail].join('\n').trim();
  }
}

function servingIn(line: string): Serving | null {
  if (!line.startsWith('{')) return null;
  try {
    const event = JSON.parse(line) as { kind?: unknown };
    return event.kind === 'serving' ? (event as Serving) : null;
  } catch {
    return null; // A line for people that happens to begin alike.
  }
}

function credentialsIn(home: string): { url: string; apiKey: string } {
  return JSON.parse(readFileSync(path.join(home, 'credentials.json'), 'utf8')) as { url: string; apiKey: string };
}

/** Below the ports that systems hand out to whoever asks for any. */
const PORTS = { from: 10_000, to: 32_767 };

/** A port on which nothing listens at this moment, and that nobody is given by chance before it is used. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to + 1);
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  const server = net.createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
