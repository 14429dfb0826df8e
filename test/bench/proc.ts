/** Readings of Linux's `/proc`. */
import { readdirSync, readFileSync } from 'node:fs';

/** Clock ticks a second of `/proc`; Linux gives 100 to user space on every architecture that Node runs on. */
const TICKS_PER_SECOND = 100;
const KIB = 1024;

export interface ProcessStat {
  readonly parent: number;
  /** CPU time since the process began, in µs, including that of ended children that it has waited for. */
  readonly cpuUs: number;
}

/** Work of all threads of a process since they began. */
export interface ThreadWork {
  /** CPU time in µs, as the scheduler counts it. */
  readonly cpuUs: number;
  /** Times that a thread gave its core away to wait for something. A wake-up follows each wait. */
  readonly waits: number;
}

/** All processes of the machine by id. */
export function readStats(): Map<number, ProcessStat> {
  const stats = new Map<number, ProcessStat>();
  for (const pid of numbersIn('/proc')) {
    const text = contentOf(`/proc/${pid}/stat`);
    if (text !== undefined) stats.set(pid, parseStat(text));
  }
  return stats;
}

/** Time of all processors since the machine's start, in ticks. */
export interface ProcessorTime {
  readonly all: number;
  readonly idle: number;
  /** Time that the hypervisor gave to other virtual machines. */
  readonly stolen: number;
}

export function readProcessorTime(): ProcessorTime {
  return parseProcessorTime(readFileSync('/proc/stat', 'utf8'));
}

/** @throws Error when the text of `/proc/stat` does not begin with the sum of all processors */
export function parseProcessorTime(text: string): ProcessorTime {
  const line = /^cpu +([\d ]+)$/m.exec(text)?.[1];
  if (line === undefined) throw new Error('/proc/stat has no line "cpu"');
  // The first eight numbers include the time of virtual machines, which the ninth and tenth repeat.
  const ticks = line.split(' ').map(Number).slice(0, 8);
  const [, , , idle = 0, ioWait = 0, , , stolen = 0] = ticks;
  return { all: ticks.reduce((sum, count) => sum + count, 0), idle: idle + ioWait, stolen };
}

/** The processes below `roots`, roots included, each with the name of its nearest root. */
export function belowRoots(
  parents: ReadonlyMap<number, { readonly parent: number }>,
  roots: ReadonlyMap<string, number>,
): Map<number, string> {
  const nameOf = new Map([...roots].map(([name, pid]) => [pid, name]));
  const found = new Map<number, string>();
  for (const pid of parents.keys()) {
    let ancestor = pid;
    while (ancestor > 1 && !nameOf.has(ancestor)) ancestor = parents.get(ancestor)?.parent ?? 0;
    const name = nameOf.get(ancestor);
    if (name !== undefined) found.set(pid, name);
  }
  return found;
}

/** Proportional memory of a process in bytes: n processes that share a page count 1/n of it each. Undefined when the process has ended. */
export function readPssBytes(pid: number): number | undefined {
  const text = contentOf(`/proc/${pid}/smaps_rollup`);
  return text === undefined ? undefined : parsePssBytes(text);
}

/** Undefined when the process has ended. */
export function readThreadWork(pid: number): ThreadWork | undefined {
  let [cpuUs, waits, threads] = [0, 0, 0];
  for (const thread of numbersIn(`/proc/${pid}/task`)) {
    const times = contentOf(`/proc/${pid}/task/${thread}/schedstat`);
    const status = contentOf(`/proc/${pid}/task/${thread}/status`);
    if (times === undefined || status === undefined) continue;
    cpuUs += Number.parseInt(times, 10) / 1000;
    waits += parseWaits(status);
    threads++;
  }
  return threads === 0 ? undefined : { cpuUs, waits };
}

/** Program and arguments of a process; empty when the process has ended. */
export const readCommand = (pid: number): string[] => (contentOf(`/proc/${pid}/cmdline`) ?? '').split('\0');

/** Parses the line of `/proc/PID/stat`. */
export function parseStat(text: string): ProcessStat {
  // The command's name may contain spaces and parentheses; the numbers follow the last parenthesis.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  // proc(5) numbers the fields from 1; `fields` begins with the third.
  const fieldAt = (field: number): number => Number(fields[field - 3]);
  return {
    parent: fieldAt(4),
    // User and system time of the process, then of its children, in ticks.
    cpuUs: ((fieldAt(14) + fieldAt(15) + fieldAt(16) + fieldAt(17)) * 1e6) / TICKS_PER_SECOND,
  };
}

/**
 * Returns 0 for a process without memory, whose `/proc/PID/smaps_rollup` is empty.
 *
 * @throws Error when the text has no proportional size
 */
export function parsePssBytes(text: string): number {
  if (text.trim() === '') return 0;
  const kib = /^Pss:\s+(\d+) kB$/m.exec(text)?.[1];
  if (kib === undefined) throw new Error('smaps_rollup has no line "Pss"');
  return Number(kib) * KIB;
}

/** @throws Error when the text of `/proc/PID/task/TID/status` does not count the thread's waits. */
export function parseWaits(text: string): number {
  const count = /^voluntary_ctxt_switches:\s+(\d+)$/m.exec(text)?.[1];
  if (count === undefined) throw new Error('status has no line "voluntary_ctxt_switches"');
  return Number(count);
}

/** A short name of a command: the script of a Node process, else the program. */
export function programOf([program = '', ...args]: readonly string[]): string {
  const base = (file: string) => file.slice(file.lastIndexOf('/') + 1);
  const script = base(program) === 'node' ? args.find((arg) => /^[^-].*\.[cm]?[jt]s$/.test(arg)) : undefined;
  if (script === undefined) return base(program.split(' ', 1)[0] ?? '');
  return script.split('/').slice(-2).join('/');
}

/** Text of a file in `/proc`; undefined when its process or thread has ended. */
function contentOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (isEnded(error)) return undefined;
    throw error;
  }
}

function numbersIn(folder: string): number[] {
  try {
    return readdirSync(folder).map(Number).filter(Number.isInteger);
  } catch (error) {
    if (isEnded(error)) return [];
    throw error;
  }
}

const isEnded = (error: unknown): boolean => ['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '');
