import { readStats } from '#test/bench/proc.ts';

/** A process and all its descendants, parents first. */
export function platformProcesses(root: number): number[] {
  const children = Map.groupBy(readStats(), ([, { parent }]) => parent);
  const found = [root];
  for (const pid of found) for (const [child] of children.get(pid) ?? []) found.push(child);
  return found;
}

/** Signals processes, except those that have ended: a sandbox dies with its runtime. */
export function signalAll(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}
