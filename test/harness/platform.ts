import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { FIRST_FUNCTIONS } from '#infra/bundled.ts';
import { LIFELINE_VARIABLE } from '#infra/lifeline.ts';
import { TEST_ARTIFACTS } from '#runtime/testing/cache.ts';
import { clientWith } from './events.ts';

export const ROOT = path.resolve(fileURLToPath(new URL('../..', import.meta.url)));

const READY_TIMEOUT_MS = 180_000;
/** Limit for events that never come, far beyond the delays of an overloaded machine. */
const WAIT_MS = 120_000;
/** Ports below the ephemeral range. The kernel picks ports of that range for connections and for servers that bind port 0. */
const PORTS = { first: 20_000, end: 32_768 } as const;

/** One line that `infra/up.ts --json` prints. */
type SupervisorLine = {
  kind: string;
  name?: string;
  pid?: number;
  url?: string;
  restarted?: boolean;
  [key: string]: unknown;
};

export interface ProgramResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A whole platform, as `npm start` runs it, with a home of its own. `await using` stops the platform and removes the home. */
export class Platform implements AsyncDisposable {
  readonly home: string;
  readonly port: number;
  readonly environment: NodeJS.ProcessEnv;
  readonly #root: string;
  readonly #supervisor: ChildProcess;
  readonly #keepHome: boolean;
  readonly #pids = new Map<string, number>();
  readonly #lineListeners = new Set<(line: SupervisorLine) => void>();
  readonly #exited: Promise<number | null>;
  #stderr = '';
  apiKey = '';
  /** With `proves`: why a model has not answered the platform, or null when it has. Models that were not asked yet are missing. */
  readonly proofs = new Map<string, string | null>();
  /** The machines with GPU hosts: this machine alone, unless it is a part of `Machines`. */
  gpuMachines: readonly Platform[] = [this];

  private constructor(home: string, port: number, options: StartOptions) {
    this.home = home;
    this.#keepHome = options.keepHome ?? false;
    this.#root = options.root ?? ROOT;
    this.port = port;
    this.environment = {
      ...process.env,
      PIE_HOME: home,
      PIE_PORT: String(port),
      NODE_OPTIONS: '',
      // One model takes less memory than the two that the platform serves by default.
      PIE_MODEL: 'stories15m',
      // Tests use one thread for a step: beside other tests that keep the cores busy, several threads wait for each other, and the step takes longer
      // and more processor time. A benchmark measures the platform as its users start it.
      ...(process.env.NODE_TEST_CONTEXT !== undefined && { PIE_THREADS: '1' }),
      ...options.env,
    };
    for (const name of ['REDIS_URL', 'PIE_URL', 'PIE_API_KEY'])
      if (!(name in (options.env ?? {}))) delete this.environment[name];
    const functions = options.functions ?? FIRST_FUNCTIONS;
    const flags = functionFlags(functions);
    if (!options.proves) flags.push('--no-proof');
    const [command = '', ...leadingWords] = [...(options.on ?? []), process.execPath];
    this.#supervisor = spawn(command, [...leadingWords, 'infra/up.ts', '--json', ...flags], {
      cwd: this.#root,
      // The platform ends with this process, however this process ends.
      env: { ...this.environment, [LIFELINE_VARIABLE]: 'stdin' },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    // `close` rather than `exit`: the supervisor's last output may arrive after its exit.
    this.#exited = new Promise((resolve) => this.#supervisor.once('close', (code) => resolve(code)));
    this.#supervisor.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr += text;
    });
    if (this.#supervisor.stdout === null) throw new Error('no output');
    readline.createInterface({ input: this.#supervisor.stdout }).on('line', (text) => {
      const line = JSON.parse(text) as SupervisorLine;
      if (line.kind === 'ready' && line.name !== undefined && line.pid !== undefined)
        this.#pids.set(line.name, line.pid);
      if (line.kind === 'proof') this.proofs.set(String(line.model), line.fault as string | null);
      for (const take of this.#lineListeners) take(line);
    });
  }

  /** Starts a platform and waits until it serves. */
  static async start(options: StartOptions = {}): Promise<Platform> {
    const home = options.home ?? (await newHome());
    if (options.config !== undefined) await writeFile(path.join(home, 'pie.toml'), options.config);
    const platform = new Platform(home, options.port ?? (await freePort()), options);
    try {
      await platform.event((line) => line.kind === 'serving', READY_TIMEOUT_MS);
    } catch (error) {
      await platform.kill();
      throw error;
    }
    // A machine without a gateway has no key.
    if (!platform.processes.has('gateway')) return platform;
    const credentials = JSON.parse(await readFile(path.join(home, 'credentials.json'), 'utf8')) as { apiKey: string };
    platform.apiKey = credentials.apiKey;
    return platform;
  }

  get url(): string {
    return `http://${this.environment.PIE_HOST ?? '127.0.0.1'}:${this.port}`;
  }

  get supervisorPid(): number {
    assert.ok(this.#supervisor.pid);
    return this.#supervisor.pid;
  }

  /** Process id of a child by its name: `gateway`, `runtime-1`, `gpu-host-1`, `redis` (the shell that holds redis-server). */
  pid(name: string): number {
    const pid = this.#pids.get(name);
    assert.ok(pid, `no process ${name}`);
    return pid;
  }

  pids(): number[] {
    return [...this.#pids.values()];
  }

  /** Process ids of the supervisor's children by name. */
  get processes(): ReadonlyMap<string, number> {
    return this.#pids;
  }

  /** The supervisor's next line for which `matches` returns true. */
  event(matches: (line: SupervisorLine) => boolean, timeoutMs = WAIT_MS): Promise<SupervisorLine> {
    return new Promise((resolve, reject) => {
      const end = () => {
        clearTimeout(timer);
        this.#lineListeners.delete(take);
      };
      const take = (line: SupervisorLine) => {
        if (!matches(line)) return;
        end();
        resolve(line);
      };
      const timer = setTimeout(() => {
        end();
        reject(new Error(`the supervisor printed no such event within ${timeoutMs} ms. ${this.#stderr}`));
      }, timeoutMs);
      void this.#exited.then((code) => {
        end();
        reject(new Error(`the supervisor ended with ${code}. ${this.#stderr}`));
      });
      this.#lineListeners.add(take);
    });
  }

  /** Resolves when the supervisor's next restart of a process is ready. */
  restarted(name: string): Promise<SupervisorLine> {
    return this.event((line) => line.kind === 'ready' && line.name === name && line.restarted === true);
  }

  /** A request with the platform's key. */
  fetch(route: string, init?: RequestInit): Promise<Response> {
    return clientWith(this.url, this.apiKey).fetch(route, init);
  }

  /** Runs the `pie` command against this platform, with its key or another. */
  pie(
    args: readonly string[],
    options: { input?: string; cwd?: string; onOutput?: () => void; apiKey?: string } = {},
  ): Promise<ProgramResult> {
    const { apiKey } = options;
    return runProgram(process.execPath, [path.join(this.#root, 'gateway/cli/bin.js'), ...args], {
      env: apiKey === undefined ? this.environment : { ...this.environment, PIE_URL: this.url, PIE_API_KEY: apiKey },
      cwd: options.cwd ?? this.#root,
      input: options.input,
      onOutput: options.onOutput,
    });
  }

  /** Sends a signal, by default the signal of Ctrl-C, to the supervisor and returns its exit code. */
  async stop(signal: NodeJS.Signals = 'SIGINT'): Promise<number | null> {
    this.#supervisor.kill(signal);
    return await this.#exited;
  }

  /** The exit code, once the supervisor has ended by itself. */
  exit(): Promise<number | null> {
    return this.#exited;
  }

  async kill(): Promise<void> {
    this.#supervisor.kill('SIGKILL');
    await this.#exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#supervisor.exitCode === null && this.#supervisor.signalCode === null) await this.stop();
    if (!this.#keepHome) await rm(this.home, { recursive: true, force: true, maxRetries: 10 });
  }
}

export interface StartOptions {
  readonly home?: string;
  readonly port?: number;
  readonly env?: NodeJS.ProcessEnv;
  /** The folder of the code that runs; this clone by default. See `EarlierRelease`. */
  readonly root?: string;
  /** Words before the command that starts the platform, see `Network.on`. */
  readonly on?: readonly string[];
  /** Keeps the home for a later platform. */
  readonly keepHome?: boolean;
  /** Text of the home's pie.toml. */
  readonly config?: string;
  /**
   * Bundled functions to deploy before the platform serves, by default the first ones (`FIRST_FUNCTIONS`); false for none. `all`: the first ones,
   * and the others in the background, as users start it.
   */
  readonly functions?: false | 'all' | readonly string[];
  /** Asks the models for an answer, as a start does by default; false by default. */
  readonly proves?: boolean;
}

function functionFlags(functions: NonNullable<StartOptions['functions']>): string[] {
  if (functions === 'all') return [];
  return functions === false ? ['--no-functions'] : ['--functions', functions.join(',')];
}

/** A new home that shares built artifacts with other tests: artifacts are the same everywhere, and building them takes longest. */
export async function newHome(): Promise<string> {
  const home = await mkdtemp(path.join(os.tmpdir(), 'pie-'));
  await mkdir(TEST_ARTIFACTS, { recursive: true });
  await symlink(TEST_ARTIFACTS, path.join(home, 'artifacts'));
  return home;
}

/** A port without a listener. The kernel never assigns ports of this range, so the port stays free for a platform and its restarts. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.first, PORTS.end);
    const server = net.createServer();
    const free = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}

export async function runProgram(
  command: string,
  args: readonly string[],
  options: { env?: NodeJS.ProcessEnv; cwd?: string; input?: string; onOutput?: () => void } = {},
): Promise<ProgramResult> {
  const child = spawn(command, args, { cwd: options.cwd, env: options.env, stdio: ['pipe', 'pipe', 'pipe'] });
  // A program may end without reading its input.
  child.stdin.on('error', () => undefined).end(options.input ?? '');
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    options.onOutput?.();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  return { code, stdout, stderr };
}

/** True while a process runs. A zombie counts as running until all of its threads have ended: until then its ports may be open. */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The fields after the name of the program, see proc_pid_stat(5).
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [state, threads] = [fields[0], Number(fields[17])];
    return state !== 'Z' || threads > 1;
  } catch {
    return false;
  }
}

/** Polls `isTrue` until it returns true. @throws Error after `timeoutMs` */
export async function until(
  what: string,
  isTrue: () => boolean | Promise<boolean>,
  timeoutMs = WAIT_MS,
): Promise<void> {
  const end = performance.now() + timeoutMs;
  while (!(await isTrue())) {
    if (performance.now() > end) throw new Error(`${what}: not within ${timeoutMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
