import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { StringDecoder } from 'node:string_decoder';
import { type ConfinedProgram, confinedCommand } from './command.ts';
import type { Layers } from './layers.ts';
import { treeMemoryBytes } from './memory.ts';

export interface ConfinedLimits {
  /** Wall-clock time, after which the process and all that it started are killed. */
  readonly timeoutMs: number;
  /** CPU time of all its threads, to the second, which the kernel keeps; by default that of four threads all the time. */
  readonly cpuMs?: number;
  /** Resident memory of the process and all that it started. */
  readonly memoryMb: number;
  /**
   * Whether a line of its output is its answer, the last thing that is wanted of it. The process is killed then: Node may hang while it exits
   * (nodejs/node#54918).
   */
  readonly isAnswer?: (line: string) => boolean;
  readonly signal?: AbortSignal | undefined;
}

/** How a confined process ended. */
export interface Ended {
  /** Its exit code, 0 once it has answered; null after a signal. */
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
}

/** A confined process passed a limit and was killed. */
export class LimitPassed extends Error {
  override readonly name = 'LimitPassed';
  readonly limit: 'time' | 'cpu' | 'memory';
  constructor(limit: LimitPassed['limit']) {
    super(`a confined process passed its limit of ${limit}`);
    this.limit = limit;
  }
}

/** How often the tree's resident memory is looked at. It can pass the limit by what it touches in that time, up to its RLIMIT_DATA. */
const MEMORY_POLL_MS = 50;
/** Bound on what is kept of each of its outputs. */
const MAX_OUTPUT_BYTES = 4 * 2 ** 20;
/** What bubblewrap answers for a program that the kernel has ended at its CPU limit (SIGXCPU). */
const CPU_EXIT = 128 + constants.signals.SIGXCPU;
/** Threads that compute at once, for the kernel's limit on CPU time. */
const CPU_THREADS = 4;

/**
 * Runs a program once, confined and in the background. It gets its three standard streams and nothing else that is open. It ends when this process dies, by
 * the kernel's hand (the layers' parent-death signal), by its lifeline or by its CPU limit.
 * @throws {LimitPassed} and the signal's reason
 */
export async function runConfined(layers: Layers, program: ConfinedProgram, limits: ConfinedLimits): Promise<Ended> {
  const { timeoutMs, cpuMs = timeoutMs * CPU_THREADS, memoryMb, isAnswer, signal } = limits;
  signal?.throwIfAborted();
  const cpuSeconds = Math.ceil(cpuMs / 1000);
  const group = layers.groups?.create(memoryMb) ?? null;
  const command = confinedCommand(layers, program, {
    ...{ cpuSeconds, memoryMb, background: 'always' },
    group: group?.directory,
  });
  const child = spawn(command.program, command.args, {
    // A session of its own: no terminal, and one group to kill.
    detached: true,
    cwd: '/',
    stdio: 'pipe',
    env: { ...command.env },
  });
  let killed: unknown = null;
  const kill = (reason: unknown) => {
    killed ??= reason;
    killGroup(child.pid);
  };
  const onAbort = () => kill(signal?.reason);
  const timer = setTimeout(() => kill(new LimitPassed('time')), timeoutMs);
  const poll = setInterval(() => void watchMemory(), MEMORY_POLL_MS);
  const watchMemory = async () => {
    if (child.pid === undefined) return;
    if ((await treeMemoryBytes(child.pid)) > memoryMb * 2 ** 20) kill(new LimitPassed('memory'));
  };
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    let answered = false;
    const output = collect(child.stdout, (line) => {
      if (answered || !isAnswer?.(line)) return;
      answered = true;
      killGroup(child.pid);
    });
    const errors = collect(child.stderr);
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (status, by) => {
        if (by === 'SIGXCPU' || status === CPU_EXIT) killed ??= new LimitPassed('cpu');
        if (group?.outOfMemory) killed ??= new LimitPassed('memory');
        resolve(answered ? 0 : status);
      });
    });
    if (killed !== null) throw killed;
    return { code, output: output(), errors: errors() };
  } finally {
    clearTimeout(timer);
    clearInterval(poll);
    signal?.removeEventListener('abort', onAbort);
    killGroup(child.pid);
    void group?.remove();
  }
}

/** In namespaces the first process of the group is bubblewrap: with it dies its PID namespace. */
function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // Every process of the group has ended.
  }
}

/** @param onLine told of the last whole line of each piece that ends one */
function collect(stream: NodeJS.ReadableStream, onLine?: (line: string) => void): () => string {
  const decoder = new StringDecoder('utf8');
  const pieces: string[] = [];
  /** Pieces of the line that has not ended. */
  let line: string[] = [];
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_OUTPUT_BYTES) return;
    const piece = decoder.write(chunk);
    pieces.push(piece);
    const last = piece.lastIndexOf('\n');
    if (last >= 0) {
      const first = piece.lastIndexOf('\n', last - 1);
      onLine?.(first >= 0 && last > 0 ? piece.slice(first + 1, last) : line.join('') + piece.slice(0, last));
      line = [];
    }
    line.push(piece.slice(last + 1));
  });
  return () => pieces.join('') + decoder.end();
}
