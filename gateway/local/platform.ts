import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import readline from 'node:readline';
import { defaultHome, pinnedNode, ROOT } from '#infra/install.ts';
import { PieClient } from '../client/client.ts';
import { type Credentials, parseCredentials } from '../node/credentials-file.ts';

/** Longest time for a stop, the drain of running invocations included. */
const STOP_LIMIT_MS = 20_000;
/** Number of last lines of standard error that the error of a failed start quotes. */
const TAIL_LINES = 30;

export interface LocalPlatformOptions {
  /** The platform's home; by default `PIE_HOME`, else the default home. */
  readonly home?: string | undefined;
  /** The platform's port; by default `PIE_PORT`, else the port in its configuration. */
  readonly port?: number | undefined;
  /** Additions to this process's environment; `undefined` removes a variable. */
  readonly environment?: NodeJS.ProcessEnv;
  /** Aborts the start. */
  readonly signal?: AbortSignal | undefined;
  /** Receives each line of progress, such as that of downloads. */
  readonly onProgress?: (line: string) => void;
}

/** The platform could not be started; the message names the cause and the remedy. */
export class LocalPlatformError extends Error {
  override readonly name = 'LocalPlatformError';
}

/** A platform that this process starts. It ends with this process, even when this process is killed. */
export class LocalPlatform implements AsyncDisposable {
  readonly url: string;
  readonly apiKey: string;
  readonly home: string;
  readonly client: PieClient;
  /** Resolves with the exit code when the platform has ended, also without a call of `stop`. */
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

  /** Starts a platform without the bundled functions; resolves once it serves. Throws {@link LocalPlatformError} or the signal's reason. */
  static async start(options: LocalPlatformOptions = {}): Promise<LocalPlatform> {
    options.signal?.throwIfAborted();
    const supervisor = new Supervisor(options);
    try {
      return new LocalPlatform(supervisor, await supervisor.whenServing(options.signal));
    } catch (error) {
      await supervisor.stop();
      throw error;
    }
  }

  /** Drains and ends the platform. */
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

/** The process of `infra/up.ts`. It ends when its standard input closes, and so with this process. */
class Supervisor {
  readonly exited: Promise<number | null>;
  readonly #process: ChildProcess;
  readonly #stderrTail: string[] = [];
  #onLine: (line: string) => void = () => undefined;
  #problem = '';

  constructor({ home, port, environment, onProgress }: LocalPlatformOptions) {
    this.#process = spawn(pinnedNode(), [path.join(ROOT, 'infra/up.ts'), '--json', '--no-functions'], {
      // In a process group of its own, so that Ctrl-C in the terminal reaches only the starting process.
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
      // `close` comes after the last output, `exit` may not.
      this.#process.once('close', (code) => resolve(code));
    });
    const { stdin, stdout, stderr } = this.#process;
    // An ending platform breaks its pipe; `close` already reports the end.
    stdin?.on('error', () => undefined);
    if (stdout !== null) readline.createInterface({ input: stdout }).on('line', (line) => this.#onLine(line));
    if (stderr !== null) {
      readline.createInterface({ input: stderr }).on('line', (line) => {
        this.#stderrTail.push(line);
        if (this.#stderrTail.length > TAIL_LINES) this.#stderrTail.shift();
        onProgress?.(line);
        this.#onLine(line);
      });
    }
    // Let this process end while the platform runs: the platform then ends, too.
    this.#process.unref();
    for (const stream of [stdin, stdout, stderr]) (stream as net.Socket | null)?.unref();
  }

  whenServing(signal: AbortSignal | undefined): Promise<Serving> {
    return new Promise((resolve, reject) => {
      // Keep this process alive until the start has ended.
      this.#process.ref();
      const end = () => {
        this.#process.unref();
        signal?.removeEventListener('abort', abort);
        this.#onLine = () => undefined;
      };
      const fail = (reason: string) => {
        end();
        reject(new LocalPlatformError(`The platform did not start: ${reason}.\n${this.#outputTail()}`.trim()));
      };
      const abort = () => {
        end();
        reject(signal?.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
      this.#onLine = (line) => {
        const serving = servingIn(line);
        if (serving === null) return;
        end();
        resolve(serving);
      };
      // No time limit here: the supervisor bounds the start of each process, and the conversion of a model may be silent for long.
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

  #outputTail(): string {
    return [this.#problem, ...this.#stderrTail].join('\n').trim();
  }
}

function servingIn(line: string): Serving | null {
  if (!line.startsWith('{')) return null;
  try {
    const event = JSON.parse(line) as { kind?: unknown };
    return event.kind === 'serving' ? (event as Serving) : null;
  } catch {
    return null; // A line of text that begins with a brace.
  }
}

function credentialsIn(home: string): Credentials {
  return parseCredentials(readFileSync(path.join(home, 'credentials.json'), 'utf8'));
}

/** Range below the ports that operating systems assign to outgoing connections. */
const PORTS = { from: 10_000, to: 32_767 };

/** A port on which nothing listens now, outside the range from which the operating system assigns ports to other programs. */
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
