import { readFileSync } from 'node:fs';
import { mainThreadTimes } from '#infra/supervisor/thread-times.ts';
import { type AutogroupWriter, sessionWeight } from '../sandboxes/autogroup.ts';
import type { CoreWeight } from '../sandboxes/core-weight.ts';
import type { KernelShares } from '../sandboxes/index.ts';
import type { CoreTimes } from './core-policy.ts';
import type { SandboxProcess } from './sandbox.ts';

/** What of a sandbox' process is measured and weighed. */
export type Weighed = Pick<SandboxProcess, 'pid' | 'group'>;

/** How the kernel shares the cores among sandboxes. */
export interface CoreShares {
  /** What it used; null when that is not told, or it has ended. */
  times(process: Weighed): CoreTimes | null;
  /** What the kernel gives it; null when it does not tell. */
  weight(process: Weighed): CoreWeight | null;
  /** Asks for it; `weight` tells whether it was done. */
  weigh(process: Weighed, weight: CoreWeight): void;
  close(): void;
}

/** The way in which this machine makes sandboxes yield; null when it has none. */
export function coreShares({ groups, autogroup }: Pick<KernelShares, 'groups' | 'autogroup'>): CoreShares | null {
  if (groups?.controllers.includes('cpu')) return GROUP_WEIGHTS;
  return autogroup && sessionWeights(autogroup);
}

/** By `cpu.weight`: of everything in the group, whatever it starts. Waiting is that of the thread that guests run on. */
const GROUP_WEIGHTS: CoreShares = {
  times: ({ pid, group }) => {
    const usedMs = group?.usedMs ?? null;
    return usedMs === null ? null : { waitedMs: 0, ready: false, ...processTimes(pid), usedMs };
  },
  weight: ({ group }) => group?.weight ?? null,
  weigh: ({ group }, weight) => group?.weigh(weight),
  close: () => undefined,
};

/** By the nice of its session. What it started in a session of its own is not counted and does not yield. */
const sessionWeights = (writer: AutogroupWriter): CoreShares => ({
  times: ({ pid }) => processTimes(pid),
  weight: ({ pid }) => sessionWeight(pid),
  weigh: ({ pid }, weight) => writer.weigh(pid, weight),
  close: () => writer.close(),
});

/** Linux counts them a hundred times a second on every machine that Node runs on. */
const MS_PER_TICK = 10;

/** All threads' computing, and the waiting of the one that guests run on. */
function processTimes(pid: number): CoreTimes | null {
  const waited = mainThreadTimes(pid);
  try {
    // The name, in parentheses, may hold anything.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    const ticks = Number(fields[11]) + Number(fields[12]);
    return waited && { usedMs: ticks * MS_PER_TICK, waitedMs: waited.queuedMs, ready: fields[0] === 'R' };
  } catch {
    return null; // It ended meanwhile.
  }
}
