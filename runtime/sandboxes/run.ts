import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { lstat, opendir, readdir, readFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { setInterval as everyInterval } from 'node:timers/promises';
// biome-ignore lint/style/noRestrictedImports: this is the place that confines threads.
import { Worker, type WorkerOptions } from 'node:worker_threads';
import { CLOSED_MODULES, CONFINE, CONFINE_URL, type ConfinedProgram, confinedCommand, outermost } from './command.ts';
import type { Layers } from './layers.ts';

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

/**
 * Why a Node process crashed, by its standard error: the line of the error that ended it, which stands before its stack and Node's version, else the
 * last line. At most 500 characters; empty without output.
 */
export function crashReason(errors: string): string {
  const lines = errors.trim().split('\n');
  return (lines.findLast((line) => /^(?:\w*Error\b|FATAL ERROR)/.test(line)) ?? lines.at(-1) ?? '').slice(0, 500);
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

/** The last part of a text that arrives in pieces. */
export class Tail {
  readonly #maxCharacters: number;
  #text = '';

  /** @param maxCharacters number of kept characters; up to twice as many are in memory, so that few pieces cause a copy */
  constructor(maxCharacters: number) {
    this.#maxCharacters = maxCharacters;
  }

  add(piece: string): void {
    this.#text += piece;
    if (this.#text.length > 2 * this.#maxCharacters) this.#text = this.text;
  }

  clear(): void {
    this.#text = '';
  }

  get text(): string {
    return this.#text.slice(-this.#maxCharacters);
  }
}

/** Bound on the inspected threads of one tree. A larger tree is a fork bomb, whose first processes suffice. */
const MAX_THREADS = 1024;

/** Use of a process and its descendants. */
export interface TreeUse {
  /** Resident memory. */
  readonly memoryBytes: number;
  /**
   * Bytes that the living processes, and the children that they waited for, wrote to files and pipes. Includes files without a name and writing
   * through mapped memory.
   */
  readonly writtenBytes: number;
}

/** Reads the use of a process and its descendants from /proc. Numbers that are missing there count as 0. */
export async function treeUse(root: number): Promise<TreeUse> {
  const pending = [root];
  let [memoryBytes, writtenBytes, threads] = [0, 0, 0];
  for (let pid = pending.pop(); pid !== undefined && threads < MAX_THREADS; pid = pending.pop()) {
    // A process may end between two reads.
    const [status, io, tasks] = await Promise.all([
      readFile(`/proc/${pid}/status`, 'utf8').catch(() => ''),
      readFile(`/proc/${pid}/io`, 'utf8').catch(() => ''),
      readdir(`/proc/${pid}/task`).catch(() => []),
    ]);
    memoryBytes += residentBytes(status);
    // `wchar` misses writing through mapped memory; `write_bytes` misses file systems without a device.
    writtenBytes += Math.max(ioCount(io, 'wchar'), ioCount(io, 'write_bytes'));
    // The kernel lists a child under the thread that made it.
    for (const task of tasks.slice(0, MAX_THREADS - threads)) {
      const children = await readFile(`/proc/${pid}/task/${task}/children`, 'utf8').catch(() => '');
      pending.push(...children.split(' ').filter(Boolean).map(Number));
    }
    threads += Math.max(1, tasks.length);
  }
  return { memoryBytes, writtenBytes };
}

const ioCount = (io: string, name: string): number => Number(new RegExp(`^${name}: (\\d+)$`, 'm').exec(io)?.[1] ?? 0);

/** Use of a folder: the lengths of all entries that are no folders, and the number of all entries. */
export interface FolderUse {
  readonly bytes: number;
  readonly names: number;
}

/**
 * Measures a folder that an untrusted process writes, and stops counting after `maxNames`. A part that cannot be read, for example because its
 * path is too long, counts as too many names.
 */
export async function folderUse(root: string, maxNames: number): Promise<FolderUse> {
  const pending = [root];
  let [bytes, names] = [0, 0];
  try {
    for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
      for await (const entry of (await unlessGone(opendir(path))) ?? []) {
        names += 1;
        if (names > maxNames) return { bytes, names };
        const inside = join(path, entry.name);
        if (entry.isDirectory()) pending.push(inside);
        else bytes += (await unlessGone(lstat(inside)))?.size ?? 0;
      }
    }
    return { bytes, names };
  } catch {
    return { bytes, names: Number.POSITIVE_INFINITY };
  }
}

const unlessGone = <T>(read: Promise<T>): Promise<T | null> =>
  read.catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });

const KIB = 1024;

/**
 * Resident memory in the text of `/proc/PID/status`, in bytes; 0 when it is missing. `/proc/PID/statm` counts pages, whose size differs among
 * machines.
 */
export const residentBytes = (status: string): number => Number(/^VmRSS:\s*(\d+) kB$/m.exec(status)?.[1] ?? 0) * KIB;

export type Thread = Worker;

/** A worker thread that gets untrusted values. */
export interface ConfinedThread {
  /** Main module. */
  readonly program: URL;
  readonly name: string;
  /** Files and folders that contain its code or its inputs. */
  readonly read: readonly string[];
  readonly resourceLimits: NonNullable<WorkerOptions['resourceLimits']>;
  readonly args?: readonly string[];
}

/**
 * Starts a thread that may read the named files and folders and may do nothing else outside of its memory: no network, processes, threads,
 * signals or environment. A thread with its own `execArgv` does not inherit this process's permissions.
 */
export function startConfinedThread({ program, name, read, resourceLimits, args = [] }: ConfinedThread): Worker {
  return new Worker(program, {
    name,
    env: {},
    argv: [...args],
    execArgv: [
      // A thread may not read links to folders, so it does not follow them when it imports a package.
      '--preserve-symlinks',
      '--permission',
      ...outermost([CONFINE, ...read]).map((path) => `--allow-fs-read=${path}`),
      ...CLOSED_MODULES,
      `--import=${CONFINE_URL.href}`,
    ],
    resourceLimits,
  });
}
