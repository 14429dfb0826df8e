import { readFile } from 'node:fs/promises';

const KERNEL_PAGE_BYTES = 4096;
/** Bound on the inspected processes of one tree. A larger tree is a fork bomb, whose first processes suffice. */
const MAX_PROCESSES = 256;

/** Resident memory of a process and its descendants; 0 when /proc does not report it. */
export async function treeMemoryBytes(root: number): Promise<number> {
  const pending = [root];
  let pages = 0;
  for (let seen = 0; seen < MAX_PROCESSES; seen++) {
    const pid = pending.pop();
    if (pid === undefined) break;
    // A process may end between two reads.
    const [statm, children] = await Promise.all([
      readFile(`/proc/${pid}/statm`, 'utf8').catch(() => ''),
      readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => ''),
    ]);
    pages += Number(statm.split(' ')[1] ?? 0);
    pending.push(...children.split(' ').filter(Boolean).map(Number));
  }
  return pages * KERNEL_PAGE_BYTES;
}
