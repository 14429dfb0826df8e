import type { Platform } from '#test/harness/platform.ts';
import {
  belowRoots,
  programOf,
  readCommand,
  readPssBytes,
  readStats,
  readThreadWork,
  type ThreadWork,
} from './proc.ts';

/** The supervisor and its children by name, as roots of the process trees of a whole platform. */
export const rootsOf = ({ processes, supervisorPid }: Pick<Platform, 'processes' | 'supervisorPid'>) =>
  new Map([...processes, ['supervisor', supervisorPid]]);

/** One process of the platform. */
export interface PlatformProcess {
  readonly pid: number;
  /** Name of the nearest root. A process that is not a root adds its program: `runtime-1`, `runtime-1: guest/main.ts`. */
  readonly name: string;
  readonly pssBytes: number;
  readonly work: ThreadWork;
}

/**
 * CPU time of process trees in µs since their processes began, by the names of their roots. A process counts for its nearest root: a sandbox for
 * its runtime, and the Redis server for the shell that started it. Ended children count for the parent that waited for them.
 */
export function cpuOfTrees(roots: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const stats = readStats();
  const totals = new Map([...roots.keys()].map((name) => [name, 0]));
  for (const [pid, name] of belowRoots(stats, roots))
    totals.set(name, (totals.get(name) ?? 0) + (stats.get(pid)?.cpuUs ?? 0));
  return totals;
}

/** Proportional memory of process trees in bytes, by the names of their roots. Pages that processes share count once in the sum. */
export function memoryOfTrees(roots: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const totals = new Map([...roots.keys()].map((name) => [name, 0]));
  for (const [pid, name] of belowRoots(readStats(), roots))
    totals.set(name, (totals.get(name) ?? 0) + (readPssBytes(pid) ?? 0));
  return totals;
}

/** Every process of the trees, in the order of their names. */
export function processesOf(roots: ReadonlyMap<string, number>): PlatformProcess[] {
  const pids = new Set(roots.values());
  const found: PlatformProcess[] = [];
  for (const [pid, root] of belowRoots(readStats(), roots)) {
    const [pssBytes, work] = [readPssBytes(pid), readThreadWork(pid)];
    if (pssBytes === undefined || work === undefined) continue;
    found.push({ pid, name: pids.has(pid) ? root : `${root}: ${programOf(readCommand(pid))}`, pssBytes, work });
  }
  return found.sort((a, b) => a.name.localeCompare(b.name) || a.pid - b.pid);
}

/** CPU time of all processes but the GPU hosts between two readings, in µs. */
export function outsideEngine(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): number {
  const outside = [...after].filter(([name]) => isOutsideEngine(name));
  return outside.reduce((sum, [name, cpuUs]) => sum + cpuUs - (before.get(name) ?? 0), 0);
}

const isOutsideEngine = (name: string): boolean => !name.startsWith('gpu-host');

/** Number of sandboxes below `roots`, spares included. */
export function sandboxesOf(roots: ReadonlyMap<string, number>): number {
  // bubblewrap's command line ends with the same arguments, but its program is not Node.
  return [...belowRoots(readStats(), roots).keys()].filter((pid) => programOf(readCommand(pid)) === 'guest/main.ts')
    .length;
}
