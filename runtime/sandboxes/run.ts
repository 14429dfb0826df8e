import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { StringDecoder } from 'node:string_decoder';
import { setInterval as everyInterval } from 'node:timers/promises';
import { type ConfinedProgram, confinedCommand } from './command.ts';
import type { Layers } from './layers.ts';
import { Tail } from './tail.ts';
import { folderUse, treeUse } from './tree-use.ts';

export interface ConfinedLimits {
  /** Wall-clock time after which the process and its descendants are killed. */
  readonly timeoutMs: number;
  /** CPU time of all threads. The kernel enforces it, rounded up to whole seconds. By default, that of four threads for the whole timeout. */
  readonly cpuMs?: number;
  /** Bound on the resident memory of the process and its descendants. */
  readonly memoryMb: number;
  /** Bounds on what is written; none when absent. */
  readonly files?: FileLimits;
  /**
   * True for the output line that is the answer. The process is killed after its answer, because Node may hang while it exits
   * (nodejs/node#54918).
   */
  readonly isAnswer?: (line: string) => boolean;
  readonly signal?: AbortSignal | undefined;
}

export interface FileLimits {
  /** Bound on the bytes that the process and its descendants write, and on those in the writable folders. */
  readonly megabytes: number;
  /** Bound on the files and folders in each writable folder. */
  readonly names: number;
}

/** Result of a confined process. */
export interface Ended {
  /** Exit code, 0 after an answer; null after a signal. */
  readonly code: number | null;
  /** The last 4 Mi characters of the standard output. */
  readonly output: string;
  /** The last 4 Mi characters of the standard error. */
  readonly errors: string;
}

/** A confined process passed a limit and was killed. */
export class LimitPassed extends Error {
  override readonly name = 'LimitPassed';
  readonly limit: 'time' | 'cpu' | 'memory' | 'files';
  constructor(limit: LimitPassed['limit']) {
    super(`a confined process passed its limit of ${limit}`);
    this.limit = limit;
  }
}

/** Interval of the checks. Within one interval, the process can exceed its limits; RLIMIT_DATA still bounds its memory. */
const POLL_MS = 50;
/** Bound on the kept characters of each output stream. The last ones are kept: they contain the answer, or the reason of a crash. */
const MAX_OUTPUT_CHARACTERS = 4 * 2 ** 20;
/** bubblewrap's exit code for a program that the kernel ended at its CPU limit (SIGXCPU). */
const CPU_EXIT = 128 + constants.signals.SIGXCPU;
/** Number of threads that may compute for the whole timeout, if the caller sets no CPU limit. */
const CPU_THREADS = 4;

/**
 * Runs a program once, confined and in the background, with no open descriptors but its three standard streams. When this process dies, the
 * kernel (parent-death signal), the closed lifeline or the CPU limit ends the program.
 * @throws {LimitPassed} and the signal's reason
 */
export async function runConfined(layers: Layers, program: ConfinedProgram, limits: ConfinedLimits): Promise<Ended> {
  const { timeoutMs, cpuMs = timeoutMs * CPU_THREADS, memoryMb, files, isAnswer, signal } = limits;
  signal?.throwIfAborted();
  const cpuSeconds = Math.ceil(cpuMs / 1000);
  const group = layers.groups?.create(memoryMb) ?? null;
  const command = confinedCommand(layers, program, {
    cpuSeconds,
    memoryMb,
    background: 'always',
    group: group?.directory,
  });
  let child: ChildProcessWithoutNullStreams;
  try {
    child = spawn(command.program, command.args, {
      // Gives the process its own session: no terminal, and one process group to kill.
      detached: true,
      cwd: '/',
      stdio: 'pipe',
      env: { ...command.env },
    });
  } catch (error) {
    // The system refused the process, for example for lack of memory.
    void group?.remove();
    throw error;
  }
  let killReason: unknown = null;
  const kill = (reason: unknown) => {
    killReason ??= reason;
    killGroup(child.pid);
  };
  const onAbort = () => kill(signal?.reason);
  const timer = setTimeout(() => kill(new LimitPassed('time')), timeoutMs);
  const endController = new AbortController();
  const watch = async (pid: number) => {
    for await (const _ of everyInterval(POLL_MS, null, { signal: endController.signal })) {
      const { memoryBytes, writtenBytes } = await treeUse(pid);
      if (memoryBytes > memoryMb * 2 ** 20) kill(new LimitPassed('memory'));
      if (files && (await exceeds(files, writtenBytes, program.write ?? []))) kill(new LimitPassed('files'));
    }
  };
  const onWatchError = (error: unknown) => {
    // The loop ends with an AbortError. A program that cannot be watched must not go on.
    if (!endController.signal.aborted) kill(error);
  };
  if (child.pid !== undefined) watch(child.pid).catch(onWatchError);
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    let hasAnswered = false;
    const output = collect(child.stdout, (line) => {
      if (hasAnswered || !isAnswer?.(line)) return;
      hasAnswered = true;
      killGroup(child.pid);
    });
    const errors = collect(child.stderr);
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (status, endSignal) => {
        if (endSignal === 'SIGXCPU' || status === CPU_EXIT) killReason ??= new LimitPassed('cpu');
        if (group?.outOfMemory && !hasAnswered) killReason ??= new LimitPassed('memory');
        resolve(hasAnswered ? 0 : status);
      });
    });
    if (killReason !== null) throw killReason;
    return { code, output: output(), errors: errors() };
  } finally {
    clearTimeout(timer);
    endController.abort();
    signal?.removeEventListener('abort', onAbort);
    killGroup(child.pid);
    void group?.remove();
  }
}

async function exceeds({ megabytes, names }: FileLimits, writtenBytes: number, folders: readonly string[]) {
  const uses = await Promise.all(folders.map((folder) => folderUse(folder, names)));
  return [{ bytes: writtenBytes, names: 0 }, ...uses].some(
    (use) => use.bytes > megabytes * 2 ** 20 || use.names > names,
  );
}

/** Kills a process group. With namespaces, its first process is bubblewrap, whose death ends the PID namespace. */
function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // Every process of the group has ended.
  }
}

/**
 * Collects the last characters of a stream. Returns a function that reads them.
 *
 * @param stream undefined without a free file descriptor; the process then emits an error
 * @param onLine called with the last complete line of each chunk that completes one
 */
function collect(stream: NodeJS.ReadableStream | undefined, onLine?: (line: string) => void): () => string {
  const decoder = new StringDecoder('utf8');
  const outputTail = new Tail(MAX_OUTPUT_CHARACTERS);
  const incomplete = new Tail(MAX_OUTPUT_CHARACTERS);
  stream?.on('data', (chunk: Buffer) => {
    const piece = decoder.write(chunk);
    outputTail.add(piece);
    const lastBreak = piece.lastIndexOf('\n');
    if (lastBreak >= 0) {
      // `lastIndexOf` takes position -1 for 0, so it would find a break at 0 twice.
      const previousBreak = lastBreak === 0 ? -1 : piece.lastIndexOf('\n', lastBreak - 1);
      onLine?.(
        previousBreak >= 0 ? piece.slice(previousBreak + 1, lastBreak) : incomplete.text + piece.slice(0, lastBreak),
      );
      incomplete.clear();
    }
    incomplete.add(piece.slice(lastBreak + 1));
  });
  return () => outputTail.text + decoder.end();
}
