import { readdirSync, readFileSync } from 'node:fs';

/** Clock ticks a second of `/proc`; Linux gives 100 to user space on every architecture that Node runs on. */
const TICKS_PER_SECOND = 100;
const KERNEL_PAGE_BYTES = 4096;

/** CPU time and resident memory of one named part of the platform. */
export interface ProcessUsage {
  /** CPU time since its processes began, in µs. */
  readonly cpuUs: number;
  readonly residentBytes: number;
}

interface Stat {
  readonly parent: number;
  readonly cpuUs: number;
  readonly residentBytes: number;
}

/**
 * Usage of process trees, by the names of their roots: a process counts for its nearest named ancestor, so that sandboxes count for their
 * runtime, and the Redis server for the shell that holds it.
 *
 * A reading does not include ended processes, so the difference of two readings is exact only for processes that live through both.
 */
export function usageOfTrees(roots: ReadonlyMap<string, number>): ReadonlyMap<string, ProcessUsage> {
  const stats = readStats();
  const totals = new Map([...roots.keys()].map((name) => [name, { cpuUs: 0, residentBytes: 0 }]));
  for (const [pid, name] of namedAncestors(stats, roots)) {
    const total = totals.get(name);
    const stat = stats.get(pid);
    if (!total || !stat) continue;
    total.cpuUs += stat.cpuUs;
    total.residentBytes += stat.residentBytes;
  }
  return totals;
}

/** CPU time of all processes but the GPU hosts between two readings, in µs. */
export function outsideEngine(
  before: ReadonlyMap<string, ProcessUsage>,
  after: ReadonlyMap<string, ProcessUsage>,
): number {
  const outside = [...after].filter(([name]) => isOutsideEngine(name));
  return outside.reduce((sum, [name, { cpuUs }]) => sum + cpuUs - (before.get(name)?.cpuUs ?? 0), 0);
}

export const isOutsideEngine = (name: string): boolean => !name.startsWith('gpu-host');

/** Number of sandboxes below `roots`, spares included. */
export function sandboxesOf(roots: ReadonlyMap<string, number>): number {
  return [...namedAncestors(readStats(), roots).keys()].filter((pid) => {
    try {
      const [program = '', ...args] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      // bubblewrap's command line ends with the same arguments, so check the program as well.
      return program.endsWith('/node') && args.some((arg) => arg.endsWith('/runtime/guest/main.ts'));
    } catch {
      return false;
    }
  }).length;
}

/** The nearest named ancestor of each process that has one. */
function namedAncestors(stats: ReadonlyMap<number, Stat>, roots: ReadonlyMap<string, number>): Map<number, string> {
  const nameOf = new Map([...roots].map(([name, pid]) => [pid, name]));
  const found = new Map<number, string>();
  for (const pid of stats.keys()) {
    let at = pid;
    while (at > 1 && !nameOf.has(at)) at = stats.get(at)?.parent ?? 0;
    const name = nameOf.get(at);
    if (name !== undefined) found.set(pid, name);
  }
  return found;
}

function readStats(): Map<number, Stat> {
  const stats = new Map<number, Stat>();
  for (const entry of readdirSync('/proc')) {
    const pid = Number(entry);
    if (!Number.isInteger(pid)) continue;
    try {
      const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
      // The command's name may hold spaces and parentheses; the numbers follow the last one.
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
      const at = (field: number): number => Number(fields[field - 3]);
      stats.set(pid, {
        parent: at(4),
        cpuUs: ((at(14) + at(15)) * 1e6) / TICKS_PER_SECOND,
        residentBytes: at(24) * KERNEL_PAGE_BYTES,
      });
    } catch {
      // The process ended between the two reads.
    }
  }
  return stats;
}
