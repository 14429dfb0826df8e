// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { readFileSync } from 'node:fs';

/** Linux counts processor time in these ticks on every architecture. */
const TICKS_PER_SECOND = 100;

let counted = 0;

/**
 * Processor seconds of the child processes that ended since the last call, with all of their descendants that ended before them and were
 * waited for. A caller that asks when a child ends gets the time of that child.
 * @returns {number}
 */
export function endedCpuSeconds() {
  const stat = readFileSync('/proc/self/stat', 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = Number(fields[13]) + Number(fields[14]);
  const ended = ticks - counted;
  counted = ticks;
  return ended / TICKS_PER_SECOND;
}
