import { readFileSync } from 'node:fs';
import { mainThreadSpent } from '#infra/supervisor/watchdog.ts';
import { type AutogroupWriter, sessionWeight } from '../sandboxes/autogroup.ts';
import type { CoreWeight } from '../sandboxes/core-weight.ts';
import type { KernelShares } from '../sandboxes/index.ts';
import type { CoreTimes } from './core-policy.ts';
import type { SandboxProcess } from './sandbox.ts';

/** The part of a sandbox's process that is measured and weighed. */
export type Weighed = Pick<SandboxProcess, 'pid' | 'group'>;

/** How the kernel shares the cores among sandboxes. */
export interface CoreShares {
  /** Times of a process; null when the kernel reports none. A control group still reports CPU time after its process has ended. */
  times(process: Weighed): CoreTimes | null;
  /** The current weight of a process; null when the kernel does not report it. */
  weight(process: Weighed): CoreWeight | null;
  /** Requests a weight; `weight` tells whether the kernel applied it. */
  weigh(process: Weighed, weight: CoreWeight): void;
  close(): void;
}

/** The mechanism by which this machine makes sandboxes yield; null when there is none. */
export function coreShares({ groups, autogroup }: Pick<KernelShares, 'groups' | 'autogroup'>): CoreShares | null {
  if (groups?.controllers.includes('cpu')) return GROUP_WEIGHTS;
  return autogroup && sessionWeights(autogroup);
}

/** Uses `cpu.weight`, which covers every process in the group. Wait times cover only the thread that runs guests. */
const GROUP_WEIGHTS: CoreShares = {
  times: ({ pid, group }) => {
    const usedMs = group?.usedMs ?? null;
    return usedMs === null ? null : { waitedMs: 0, ready: false, ...processTimes(pid), usedMs };
  },
  weight: ({ group }) => group?.weight ?? null,
  weigh: ({ group }, weight) => group?.weigh(weight),
  close: () => undefined,
};

/** Uses the nice value of the sandbox's session. Does not cover processes that the sandbox starts in other sessions. */
const sessionWeights = (writer: AutogroupWriter): CoreShares => ({
  times: ({ pid }) => processTimes(pid),
  weight: ({ pid }) => sessionWeight(pid),
  weigh: ({ pid }, weight) => writer.weigh(pid, weight),
  close: () => writer.close(),
});

/** Linux counts 100 ticks a second on every machine that Node runs on. */
const MS_PER_TICK = 10;

/** Indexes of the fields behind the process name in `/proc/<pid>/stat` (`man 5 proc_pid_stat`). */
const FIELD = { state: 0, userTicks: 11, systemTicks: 12 } as const;

/** CPU time of all threads, and wait time of the thread that runs guests; null when the process has ended. */
export function processTimes(pid: number): CoreTimes | null {
  const mainThread = mainThreadSpent(pid);
  try {
    // The process name, in parentheses, may contain any characters, so only the fields behind the last parenthesis are read.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    const ticks = Number(fields[FIELD.userTicks]) + Number(fields[FIELD.systemTicks]);
    const ready = fields[FIELD.state] === 'R';
    return mainThread && { usedMs: ticks * MS_PER_TICK, waitedMs: mainThread.queuedMs, ready };
  } catch {
    return null;
  }
}
