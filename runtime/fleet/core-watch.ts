import { readFileSync } from 'node:fs';
import { mainThreadSpent } from '#infra/supervisor/watchdog.ts';
import type { Group } from '../sandboxes/cgroups.ts';
import type { CoreWeight } from '../sandboxes/core-weight.ts';
import type { KernelShares } from '../sandboxes/index.ts';
import { type AutogroupWriter, sessionWeight } from '../sandboxes/kernel-limits.ts';

/** Time between two looks. Each look reads the times of all sandboxes and changes weights. */
const LOOK_MS = 250;

/** The part of a sandbox that the core watch uses. */
export interface Computing {
  readonly tenant: string | null;
  /** True while the sandbox has no tenant and no launch waits for it. */
  readonly background?: boolean;
  readonly process: Weighed;
}

interface Known {
  /** Kept while the sandbox has a tenant: its process then stays the same, and each search for it takes several reads. */
  readonly process: Weighed;
  readonly tenant: string | null;
  readonly use: CoreUse;
  /** Weight that the kernel reported; null when the kernel was not asked since the last change. */
  weight: CoreWeight | null;
  triedAtMs: number;
}

/**
 * Lowers the weight of sandboxes that recently computed much, so that they yield, and later restores it (`nextUse`). The kernel enforces
 * the weight, so the weight also binds a compromised sandbox that does not preempt its guests.
 */
export class CoreWatch {
  readonly #sandboxes: () => Iterable<Computing>;
  readonly #shares: CoreShares;
  readonly #known = new WeakMap<Computing, Known>();
  /** For each tenant, the use of the sandbox with the largest share. */
  readonly #tenants = new Map<string, CoreUse>();
  readonly #timer: NodeJS.Timeout;

  constructor(sandboxes: () => Iterable<Computing>, shares: CoreShares) {
    this.#sandboxes = sandboxes;
    this.#shares = shares;
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#shares.close();
  }

  /** True when a tenant's sandboxes recently computed much. */
  isHeavy(tenant: string): boolean {
    return this.#tenants.get(tenant)?.heavy === true;
  }

  /** Applies the right weight at once when a sandbox has got its tenant, or when a launch begins to wait for the sandbox. */
  changed(sandbox: Computing): void {
    const known = this.#known.get(sandbox);
    if (known) known.weight = null;
    this.#look();
  }

  #look(): void {
    const now = performance.now();
    const changes: Change<Known>[] = [];
    for (const sandbox of this.#sandboxes()) {
      const known = this.#measure(sandbox, now);
      if (!known) continue;
      const weight = this.#wanted(sandbox, known);
      if (known.weight !== weight) known.weight = this.#shares.weight(known.process);
      if (known.weight !== null && known.weight !== weight) {
        changes.push({ sandbox: known, weight, triedAtMs: known.triedAtMs });
      }
    }
    for (const [tenant, { atMs }] of this.#tenants) if (now - atMs > TENANT_MEMORY_MS) this.#tenants.delete(tenant);
    for (const { sandbox: known, weight } of changesNow(changes)) {
      known.triedAtMs = now;
      known.weight = null;
      this.#shares.weigh(known.process, weight);
    }
  }

  /** Returns the weight that a sandbox should have. Also records its use when it is the largest of its tenant. */
  #wanted({ tenant, background }: Computing, { use }: Known): CoreWeight {
    if (tenant === null) return background ? 'background' : 'usual';
    const largestUse = this.#tenants.get(tenant);
    if (largestUse?.atMs !== use.atMs || largestUse.share < use.share) this.#tenants.set(tenant, use);
    return wantedWeight(use);
  }

  #measure(sandbox: Computing, now: number): Known | null {
    const { tenant } = sandbox;
    const known = this.#known.get(sandbox);
    // While a sandbox starts, the process that will run the guests may not exist yet.
    const process = known?.tenant ? known.process : { pid: sandbox.process.pid, group: sandbox.process.group };
    const times = this.#shares.times(process);
    if (!times) return null;
    const isSameTenant = tenant !== null && known?.tenant === tenant;
    const begun = () => inheritUse(beginUse(now, times), this.#tenants.get(tenant ?? ''));
    const use = isSameTenant ? nextUse(known.use, now, times) : begun();
    const { triedAtMs = Number.NEGATIVE_INFINITY } = known ?? {};
    // The shell that starts a sandbox may set its weight after this look. So each look asks the kernel until the sandbox has a tenant.
    const measured: Known = { process, tenant, use, weight: isSameTenant ? known.weight : null, triedAtMs };
    this.#known.set(sandbox, measured);
    return measured;
  }
}

/**
 * Decides which sandboxes give up cores to others, by their CPU time and by their wait for a core. The core watch reads these times in each
 * *look*, four times a second. Pure: time comes in as an argument.
 */

/** Times of a sandbox since its start, in ms. */
export interface CoreTimes {
  /** CPU time. */
  readonly usedMs: number;
  /** Time in which the sandbox was ready to compute while other processes had the cores. */
  readonly waitedMs: number;
  /** True when the sandbox computes or waits now. The kernel counts a wait only when the wait ends. */
  readonly ready: boolean;
}

/** Use of the cores by a sandbox up to the last look. `share`, `demand` and `burst` are averages with exponential decay, from 0 to 1. */
export interface CoreUse {
  readonly atMs: number;
  readonly usedMs: number;
  /** Includes the current, unfinished wait at its longest possible value. */
  readonly waitedMs: number;
  /** Recent part of a core that the sandbox received. */
  readonly share: number;
  /** Recent part of the time in which the sandbox was computing or waiting for a core. */
  readonly demand: number;
  /** Part of a core that the sandbox received in the last moments. */
  readonly burst: number;
  /** True when the sandbox is to get the weight `background`: a sixth of the usual share of contended cores. */
  readonly bursts: boolean;
  /** True when the sandbox is to get the weight `heavy`: 3 % of the usual share of contended cores. */
  readonly heavy: boolean;
}

/** A sandbox becomes heavy when its share reaches `HEAVY_SHARE`, which takes 1.4 s of constant computing. */
const HEAVY_SHARE = 0.5;
/** A heavy sandbox becomes light when its share falls to `LIGHT_SHARE`, which takes 1.9 s after it stops, and its demand to `LIGHT_DEMAND`. */
const LIGHT_SHARE = 0.4;
const LIGHT_DEMAND = 0.9;
/** Time constant of the average `share`. */
const SHARE_MEMORY_MS = 2000;
/**
 * A sandbox that competes with many others, or yields, may never reach `HEAVY_SHARE`. It becomes heavy, too, when it reaches both of these values,
 * because it then never sleeps. A light sandbox sleeps between its bursts, however long they take.
 */
const RESTLESS_DEMAND = 0.95;
const RESTLESS_SHARE = 0.1;
/** Time constant of the average `demand`. */
const DEMAND_MEMORY_MS = 1000;
/**
 * A sandbox begins to burst at `BURST_SHARE` of a core: after 0.2 s of constant computing, or 0.5 s with half a core. Many launches of one
 * tenant take longer than that; they must not delay other tenants' tokens. The burst ends below `CALM_SHARE`, once the sandbox has slept.
 */
const BURST_SHARE = 0.4;
const CALM_SHARE = 0.25;
/** Time constant of the average `burst`. */
const BURST_MEMORY_MS = 300;

export const beginUse = (atMs: number, { usedMs, waitedMs }: CoreTimes): CoreUse => ({
  atMs,
  usedMs,
  waitedMs,
  share: 0,
  demand: 0,
  burst: 0,
  bursts: false,
  heavy: false,
});

/** A new sandbox of a tenant ignores the use of the tenant's other sandboxes when that use is older than this. */
export const TENANT_MEMORY_MS = 4000;

/** Starts a tenant's sandbox with the use of the tenant's others: a tenant must not get more of the cores by losing sandboxes. */
export function inheritUse(begun: CoreUse, othersUse: CoreUse | undefined): CoreUse {
  if (!othersUse || begun.atMs - othersUse.atMs > TENANT_MEMORY_MS) return begun;
  const { share, demand, burst, bursts, heavy } = othersUse;
  return { ...begun, share, demand, burst, bursts, heavy };
}

/**
 * Adds the times of one look. A sandbox counts as heavy even without competition: the kernel still gives a heavy sandbox all idle cores, and
 * takes them back when another process wants them.
 */
export function nextUse(previous: CoreUse, atMs: number, times: CoreTimes): CoreUse {
  const passedMs = atMs - previous.atMs;
  if (passedMs <= 0) return previous;
  const usedMs = times.usedMs - previous.usedMs;
  // While a sandbox waits, its wait is counted here early; `max` keeps the kernel's later count from adding the same wait again.
  const waitedMs = Math.max(previous.waitedMs, times.waitedMs, times.ready ? previous.waitedMs + passedMs - usedMs : 0);
  const usedShare = shareOf(usedMs, passedMs);
  const wantedShare = shareOf(usedMs + waitedMs - previous.waitedMs, passedMs);
  const share = decayed(previous.share, usedShare, passedMs / SHARE_MEMORY_MS);
  const demand = decayed(previous.demand, wantedShare, passedMs / DEMAND_MEMORY_MS);
  const isRestless = share >= RESTLESS_SHARE && demand >= RESTLESS_DEMAND;
  const becomesHeavy = share >= HEAVY_SHARE || isRestless;
  const staysHeavy = share > LIGHT_SHARE || demand > LIGHT_DEMAND;
  const heavy = previous.heavy ? staysHeavy : becomesHeavy;
  const burst = decayed(previous.burst, usedShare, passedMs / BURST_MEMORY_MS);
  const staysInBurst = burst > CALM_SHARE || wantedShare >= RESTLESS_DEMAND;
  const bursts = previous.bursts ? staysInBurst : burst >= BURST_SHARE;
  return { atMs, usedMs: times.usedMs, waitedMs, share, demand, burst, bursts, heavy };
}

/** Weight that a sandbox of a tenant should have. */
export function wantedWeight({ heavy, bursts }: CoreUse): CoreWeight {
  if (heavy) return 'heavy';
  return bursts ? 'background' : 'usual';
}

/** Part of one core. The threads of a sandbox may use several cores; at most one core counts. */
const shareOf = (usedMs: number, passedMs: number): number => Math.max(0, Math.min(1, usedMs / passedMs));

/** An average with exponential decay, after `timeConstants` time constants in which the value was `current`. */
const decayed = (previous: number, current: number, timeConstants: number): number =>
  current + (previous - current) * Math.exp(-timeConstants);

/** A sandbox whose current weight differs from its wanted weight. */
export interface Change<T> {
  readonly sandbox: T;
  readonly weight: CoreWeight;
  /** Time of the last attempt; the kernel may have refused it. */
  readonly triedAtMs: number;
}

/** Bound on changes at one look. The kernel accepts ten changes a second from unprivileged users. */
export const MOST_CHANGES = 2;

/** Order in which changes are made, by the new weight: a heavy sandbox harms others more than one that bursts. */
const ORDER = { usual: 0, heavy: 1, background: 2 } satisfies Record<CoreWeight, number>;

/** Returns at most `MOST_CHANGES` changes to make now, by `ORDER`. Among changes to the same weight, the least recently tried is first. */
export function changesNow<T>(changes: readonly Change<T>[]): Change<T>[] {
  const order = (a: Change<T>, b: Change<T>) => ORDER[a.weight] - ORDER[b.weight] || a.triedAtMs - b.triedAtMs;
  return [...changes].sort(order).slice(0, MOST_CHANGES);
}

/** The part of a sandbox's process that is measured and weighed. */
export interface Weighed {
  readonly pid: number;
  readonly group: Group | null;
}

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
