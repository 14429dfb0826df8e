// Plain JavaScript for the Node that a fresh machine has (20 or newer).
import { readdirSync, readFileSync } from 'node:fs';

/** Unit of processor time in `/proc`, the same on every architecture. */
const TICKS_PER_SECOND = 100;

let returnedTicks = 0;

/**
 * Processor seconds of the child processes that ended since the last call, and of those of their descendants that they waited for. A caller
 * that calls this function at the end of each child gets the time of that child.
 * @returns {number}
 */
export function endedCpuSeconds() {
  const { endedTicks } = processOf('self');
  const newTicks = endedTicks - returnedTicks;
  returnedTicks = endedTicks;
  return newTicks / TICKS_PER_SECOND;
}

/**
 * Processor seconds that this process, its living descendants and its ended descendants have used since this process began. An ended process
 * counts if its parent waited for it.
 * @returns {number}
 */
export function usedCpuSeconds() {
  /** @type {Map<number, ReturnType<typeof processOf>[]>} */
  const children = new Map();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const child = processOf(entry);
      const siblings = children.get(child.parent);
      if (siblings) siblings.push(child);
      else children.set(child.parent, [child]);
    } catch {
      // The process ended meanwhile.
    }
  }
  let ticks = 0;
  const pending = [processOf('self')];
  for (let each = pending.pop(); each; each = pending.pop()) {
    ticks += each.ticks + each.endedTicks;
    pending.push(...(children.get(each.id) ?? []));
  }
  return ticks / TICKS_PER_SECOND;
}

/**
 * Ids of a process and of its parent, and the processor time, in ticks, of the process itself and of the children that it waited for.
 * @param {string} id
 */
function processOf(id) {
  const stat = readFileSync(`/proc/${id}/stat`, 'utf8');
  const fields = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
  // `fields` begins with field 3 of the file; the sums are `utime` and `stime` (14 and 15), `cutime` and `cstime` (16 and 17).
  const [parent = 0] = fields.slice(1);
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11);
  return { id: Number.parseInt(stat, 10), parent, ticks: user + system, endedTicks: endedUser + endedSystem };
}
