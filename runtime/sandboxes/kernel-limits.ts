import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import type { Socket } from 'node:net';
import path from 'node:path';
import type { RuntimeDescription } from '#scheduler/runtimes/types.ts';
import { type Groups, groupDirectory, openDelegation, tryRead } from './cgroups.ts';
import { type CoreWeight, SESSION_NICE, weightOf } from './core-weight.ts';

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

const PROBE_DEADLINE_MS = 20_000;

/**
 * Raises and restores the nice value of its own session. Repeats a refused change: the kernel accepts ten a second from
 * unprivileged users.
 */
const PROBE = `
  set_nice() {
    for try in 1 2 3 4 5 6 7 8; do { echo $1 > /proc/self/autogroup; } 2>/dev/null && return 0; sleep 0.12; done
    return 1
  }
  set_nice ${SESSION_NICE.heavy} && set_nice ${SESSION_NICE.usual} && echo both`;

/**
 * Reads lines with a process id and a nice value, and gives that value to the process's session. Retries a refused
 * change once. Reports nothing: `sessionWeight` reads the value back.
 */
const WRITER = `
  while read -r pid nice; do
    { echo "$nice" > "/proc/$pid/autogroup" || { sleep 0.12; echo "$nice" > "/proc/$pid/autogroup"; }; } 2>/dev/null
  done`;

/**
 * Returns null when the nice value of a session can be raised and restored here, else the reason. Tries both changes.
 */
export async function autogroupMissing(): Promise<string | null> {
  if (tryRead('/proc/sys/kernel/sched_autogroup_enabled').trim() !== '1') {
    return 'the kernel groups no sessions (`sysctl kernel.sched_autogroup_enabled=1`)';
  }
  if (inCpuGroup())
    return 'this process is in a control group with the cpu controller, where the kernel groups no sessions';
  const child = shell(PROBE, ['ignore', 'pipe', 'ignore']);
  const timer = setTimeout(() => child.kill('SIGKILL'), PROBE_DEADLINE_MS);
  let probeOutput = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    probeOutput += text;
  });
  await new Promise((resolve) => child.once('close', resolve).once('error', resolve));
  clearTimeout(timer);
  return probeOutput.trim() === 'both' ? null : "the kernel refuses to change a session's nice (/proc/PID/autogroup)";
}

/**
 * Changes the share of the cores that sessions get, sched(7) "The autogroup feature". A shell writes the files: Node's permission model
 * confines this process, and the model's rules cannot name the files of future processes.
 */
export class AutogroupWriter {
  readonly #shell: ChildProcess;

  constructor() {
    this.#shell = shell(WRITER, ['pipe', 'ignore', 'ignore']);
    this.#shell.on('error', () => undefined);
    this.#shell.stdin?.on('error', () => undefined);
    this.#shell.unref();
    (this.#shell.stdin as Socket | null)?.unref();
  }

  /** Requests a weight; {@link sessionWeight} tells whether the kernel applied it. */
  weigh(pid: number, weight: CoreWeight): void {
    this.#shell.stdin?.write(`${pid} ${SESSION_NICE[weight]}\n`);
  }

  close(): void {
    this.#shell.stdin?.end();
  }
}

/** Weight of a process's session; null when the kernel does not report it. */
export function sessionWeight(pid: number): CoreWeight | null {
  const nice = /nice (-?\d+)/.exec(tryRead(`/proc/${pid}/autogroup`))?.[1];
  return weightOf(SESSION_NICE, nice);
}

/** In a group of the cpu controller the kernel shares the cores by group and ignores sessions. */
function inCpuGroup(): boolean {
  const ownCgroup = tryRead('/proc/self/cgroup');
  if (/^\d+:(?:[^:]*,)?cpu(?:,[^:]*)?:\/./m.test(ownCgroup)) return true;
  for (let at = groupDirectory(ownCgroup, tryRead('/proc/self/mountinfo')) ?? '/'; at !== '/'; at = path.dirname(at)) {
    if (existsSync(path.join(at, 'cpu.weight'))) return true;
  }
  return false;
}

/** Starts a shell in its own session, so that no terminal's signal reaches it. */
const shell = (script: string, stdio: readonly ('ignore' | 'pipe')[]): ChildProcess =>
  spawn('/bin/sh', ['-c', script], { detached: true, cwd: '/', stdio: [...stdio], env: { PATH: process.env.PATH } });
