import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { HEARTBEAT_VARIABLE, LIFELINE_VARIABLE, parseReadyLine, type ReadyLine } from '../lifeline.ts';
import { RESTARTS_VARIABLE } from '../telemetry/vitals.ts';
import type { SilenceFigures, WatchLimits } from './watch-policy.ts';
import { type Watch, watch } from './watchdog.ts';

/** Specification of one process of the platform. */
export interface ChildSpec {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** `line`: the child prints a ready line. A function: a probe that resolves when the child is ready. */
  readonly ready: 'line' | ((signal: AbortSignal) => Promise<void>);
  readonly readyTimeoutMs: number;
  /** `signal`: send SIGTERM. `lifeline`: close the child's standard input, on which a watched child beats. */
  readonly stop: 'signal' | 'lifeline';
  /** Time that the child has to stop before SIGKILL. */
  readonly stopTimeoutMs: number;
  /** From its ready line on, the child sends beats; the supervisor kills it when it is silent for longer than these limits. */
  readonly watch?: WatchLimits;
}

/** A child did not become ready. The message holds its name, the reason and its last lines of output. */
export class ChildStartError extends Error {
  override readonly name = 'ChildStartError';
}

type KillFigures = Partial<SilenceFigures> & { readonly stopTimeoutMs?: number };

/** Takes the lines of a child's output. */
interface LineLog {
  write(text: string): unknown;
}

/** Matches the beginning of a record of `infra/log.ts`, which has a time. Other lines, such as those of redis-server, get one here. */
const RECORD = /^(\{"level":"\w+","time":")?\d{4}-\d\d-\d\dT/;
/** The beginning of a further line of a record. */
const INDENT = '    ';

/** Lines kept of a child's output, for the report when it dies. */
const TAIL_LINES = 30;

/** One running process. Its output goes to its log; its standard input is the lifeline, on which a watched child beats. */
export class Child {
  readonly spec: ChildSpec;
  readonly startedAt = performance.now();
  readonly exited: Promise<string>;
  readonly #process: ChildProcess;
  readonly #tail: string[] = [];
  readonly #beatSocket: Socket | undefined;
  #watched: Watch | undefined;
  /** Silence at the end of the watch, ms. */
  #lastSilentMs = 0;
  /** Why the supervisor killed the child; null while it has not. */
  #killReason: string | null = null;
  /** The figures that decided this. */
  #figures: KillFigures = {};
  /** True when the last line belonged to a record. */
  #isInRecord = false;
  #onReadyLine: (line: ReadyLine) => void = () => undefined;

  /** @param restarts how often the supervisor has restarted this child */
  static async spawn(spec: ChildSpec, log: LineLog, restarts = 0): Promise<Child> {
    const pair = spec.watch === undefined ? null : await socketPair();
    try {
      return new Child(spec, log, restarts, pair);
    } catch (error) {
      // The system refused the process, for example for lack of memory: the supervisor tries again.
      for (const socket of pair ?? []) socket.destroy();
      throw error;
    }
  }

  private constructor(spec: ChildSpec, log: LineLog, restarts: number, pair: [Socket, Socket] | null) {
    this.spec = spec;
    const [ours, theirs] = pair ?? [];
    // A group of its own: Ctrl-C in the terminal reaches the supervisor alone, which then drains.
    this.#process = spawn(spec.command, spec.args, {
      stdio: [theirs ?? 'pipe', 'pipe', 'pipe'],
      detached: true,
      env: {
        ...process.env,
        ...spec.env,
        [LIFELINE_VARIABLE]: 'stdin',
        [RESTARTS_VARIABLE]: String(restarts),
        [HEARTBEAT_VARIABLE]: pair === null ? '' : String(this.spec.watch?.everyMs),
      },
    });
    theirs?.destroy();
    ours?.on('error', () => undefined).resume();
    this.#beatSocket = ours;
    // The death of a child breaks its pipe; the exit handler reports the death.
    this.#process.stdin?.on('error', () => undefined);
    this.exited = new Promise((resolve) => {
      const end = (why: string) => {
        this.#endWatch();
        this.#beatSocket?.destroy();
        // A killed shell leaves the program that it started, which must end now: a Redis that dies later would remove the next one's socket.
        this.kill();
        resolve(this.#killReason === null ? why : `${this.#killReason}, so it was killed`);
      };
      this.#process.once('error', (error) => end(error.message));
      this.#process.once('exit', (code, signal) => end(signal === null ? `exit code ${code}` : `signal ${signal}`));
    });
    for (const stream of [this.#process.stdout, this.#process.stderr]) {
      // Without a free file descriptor there are no streams; `exited` says so.
      if (!stream) continue;
      readline.createInterface({ input: stream }).on('line', (line) => this.#take(line, log));
    }
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** Facts about a child that has ended, for the log: its process, its exit, and the figures by which the supervisor killed it, if it did. */
  get endFields() {
    const { pid, exitCode, signalCode } = this.#process;
    return { pid, exitCode, signal: signalCode, figures: this.#figures };
  }

  /** The child's last lines of output. */
  get tail(): string {
    return this.#tail.join('\n');
  }

  /** Waits until the child can take work. Stops a child that does not become ready and throws {@link ChildStartError}. */
  async whenReady(): Promise<ReadyLine> {
    const deadline = AbortSignal.timeout(this.spec.readyTimeoutMs);
    const ready = this.spec.ready;
    const probing = new AbortController();
    const waiting: Promise<ReadyLine> =
      ready === 'line'
        ? new Promise((resolve) => {
            this.#onReadyLine = resolve;
          })
        : ready(AbortSignal.any([deadline, probing.signal])).then(() => ({ ready: true }));
    const timedOut = once(deadline, 'abort').then(() => {
      throw this.#failure(`was not ready after ${this.spec.readyTimeoutMs / 1000} s`);
    });
    const died = this.exited.then((why) => {
      throw this.#failure(`ended while starting (${why})`);
    });
    try {
      const line = await Promise.race([waiting, died, timedOut]);
      this.#watch();
      return line;
    } catch (error) {
      await this.stop();
      throw error instanceof ChildStartError
        ? error
        : this.#failure(error instanceof Error ? error.message : String(error));
    } finally {
      probing.abort();
    }
  }

  /** Asks the child to end and waits; kills its group after `stopTimeoutMs`. The watch looks on until the end: others excuse a child without a core. */
  async stop(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null || this.pid === undefined) return;
    this.#watched?.lookOnly();
    if (this.spec.stop === 'lifeline') (this.#beatSocket ?? this.#process.stdin)?.end();
    else this.#process.kill('SIGTERM');
    const { stopTimeoutMs } = this.spec;
    const timer = setTimeout(() => {
      this.#killFor(`it did not stop within ${stopTimeoutMs / 1000} s`, { stopTimeoutMs });
    }, stopTimeoutMs);
    try {
      await this.exited;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sends SIGKILL to the child's process group. */
  kill(): void {
    if (this.pid === undefined) return;
    try {
      process.kill(-this.pid, 'SIGKILL');
    } catch {
      // The group is gone already.
    }
  }

  /** What the child did at the last look of the watch; null when it is not watched: before its ready line, or without `watch` limits. */
  get seen(): Watch['seen'] | null {
    return this.#watched?.seen ?? null;
  }

  /** Time since the last beat at the last look, ms; also after the end of the child. */
  get silentMs(): number {
    return this.seen?.silentMs ?? this.#lastSilentMs;
  }

  #endWatch(): void {
    this.#lastSilentMs = this.silentMs;
    this.#watched?.end();
    this.#watched = undefined;
  }

  #watch(): void {
    if (this.spec.watch === undefined || this.#beatSocket === undefined || this.pid === undefined) return;
    this.#watched = watch(this.pid, this.#beatSocket, this.spec.watch, (why, figures) => {
      this.#killFor(why, figures);
    });
  }

  #killFor(why: string, figures: KillFigures): void {
    this.#killReason = why;
    this.#figures = figures;
    this.kill();
  }

  #take(line: string, log: LineLog): void {
    const ready = parseReadyLine(line);
    if (ready !== null) this.#onReadyLine(ready);
    this.#tail.push(line);
    if (this.#tail.length > TAIL_LINES) this.#tail.shift();
    this.#isInRecord = RECORD.test(line) || (this.#isInRecord && line.startsWith(INDENT));
    log.write(this.#isInRecord ? `${line}\n` : `${new Date().toISOString()} ${line}\n`);
  }

  #failure(why: string): ChildStartError {
    const output = this.tail === '' ? '' : `\nIts last lines:\n${this.tail.replaceAll(/^/gm, '  ')}`;
    return new ChildStartError(`${this.spec.name} ${why}.${output}`);
  }
}

/** Two connected unix sockets, one of them for a child's standard input: from the pipe that Node would make for it, a parent cannot read. */
export async function socketPair(): Promise<[net.Socket, net.Socket]> {
  // Only this user can enter the directory, so no other user can connect meanwhile.
  const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-pair-'));
  const server = net.createServer({ pauseOnConnect: true });
  try {
    server.listen(path.join(directory, 's'));
    await once(server, 'listening');
    const accepted = once(server, 'connection') as Promise<[net.Socket]>;
    const ours = net.connect(path.join(directory, 's'));
    const [[theirs]] = await Promise.all([accepted, once(ours, 'connect')]);
    return [ours, theirs];
  } finally {
    server.close();
    rmSync(directory, { recursive: true, force: true });
  }
}
