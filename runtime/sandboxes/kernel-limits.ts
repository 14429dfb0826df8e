import type { RuntimeDescription } from '#scheduler/runtimes/types.ts';
import { AutogroupWriter, autogroupMissing } from './autogroup.ts';
import { openDelegation } from './cgroups/delegation.ts';
import type { Groups } from './cgroups/groups.ts';

/** How the kernel limits sandboxes, besides rlimits. */
export interface KernelShares {
  /** Control groups; null when the platform has none. */
  readonly groups: Groups | null;
  /**
   * Sets each sandbox session's share of the cores (sched(7), autogroup); null if control groups set it, or if the kernel groups no sessions or
   * refuses the change.
   */
  readonly autogroup: AutogroupWriter | null;
  readonly active: ActiveLimits;
}

/**
 * The mechanism of each limit, shown to the operator. `memory` ends a sandbox whose memory grows too far between two
 * checks of the runtime; `demotion` makes sandboxes that compute much yield the cores.
 */
export type ActiveLimits = NonNullable<RuntimeDescription['limits']>;

const GET_GROUPS =
  'give Pie a control group of its own: `Delegate=yes` in its systemd unit (or `systemd-run --user --scope -p Delegate=yes pie up`); in a container, a private cgroup namespace with /sys/fs/cgroup writable';

/** Probes and prepares the kernel's limits. A missing limit is not an error. */
export async function openKernelShares(): Promise<KernelShares> {
  const delegation = await openDelegation();
  const groups = 'groups' in delegation ? delegation.groups : null;
  const canWeighGroups = groups?.controllers.includes('cpu') ?? false;
  const noSessionsReason = canWeighGroups ? null : await autogroupMissing();
  const autogroup = canWeighGroups || noSessionsReason !== null ? null : new AutogroupWriter();
  const noGroupsReason = 'missing' in delegation ? delegation.missing : null;
  return { groups, autogroup, active: activeLimits(groups?.controllers ?? [], noGroupsReason, noSessionsReason) };
}

/** Names the active and the missing limits. Pure. */
export function activeLimits(
  controllers: readonly string[],
  noGroupsReason: string | null,
  noSessionsReason: string | null,
): ActiveLimits {
  const memory = controllers.includes('memory') ? 'cgroup' : 'rlimit';
  const demotionBySessions = noSessionsReason === null ? 'autogroup' : 'none';
  const demotion = controllers.includes('cpu') ? 'cgroup' : demotionBySessions;
  if (memory === 'cgroup' && demotion === 'cgroup') return { memory, demotion };
  const lacking = [
    ...(memory === 'cgroup' ? [] : ["no cgroup bounds a sandbox's memory: RLIMIT_DATA and V8's limits do"]),
    ...(demotion === 'autogroup'
      ? [
          'no cgroup sets the CPU weight of sandboxes that compute much: the kernel lowers the priority of their sessions (autogroup)',
        ]
      : []),
    ...(demotion === 'none'
      ? [`nothing but their own slices makes sandboxes that compute much yield: ${noSessionsReason}`]
      : []),
  ];
  const because = noGroupsReason ?? `the group of this process has only the ${controllers.join(' and ')} controller`;
  const problems = lacking.join('; ');
  return {
    memory,
    demotion,
    notice: `${problems[0]?.toUpperCase()}${problems.slice(1)}. Why: ${because}. To get cgroups, ${GET_GROUPS}.`,
  };
}
