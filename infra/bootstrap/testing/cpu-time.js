// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { readFileSync } from 'node:fs';

/** Unit of processor time in `/proc`, the same on every architecture. */
const TICKS_PER_SECOND = 100;

let returnedTicks = 0;

/**
 * Processor seconds of the child processes that ended since the last call, and of those of their descendants that they waited for. A caller
 * that calls this function at the end of each child gets the time of that child.
 * @returns {number}
 */
export function endedCpuSeconds() {
  const stat = readFileSync('/proc/self/stat', 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  // `cutime` and `cstime`, the fields 16 and 17 of the file; `fields` begins with field 3.
  const ticks = Number(fields[13]) + Number(fields[14]);
  const newTicks = ticks - returnedTicks;
  returnedTicks = ticks;
  return newTicks / TICKS_PER_SECOND;
}
