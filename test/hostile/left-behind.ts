import { readdirSync, readFileSync } from 'node:fs';
import type { PlatformLoad } from '#gateway/app/resources/operations.ts';
import { modelStats } from '#test/harness/deploy.ts';
import type { Platform } from '#test/harness/platform.ts';

/** Longest time for the platform to free what an attack held. It is long because the platform polls and tests share the machine. */
const SETTLE_MS = 20_000;
const LOOK_EVERY_MS = 50;

/** Name of sandbox processes, which start with their tenants and end when they are idle (`runtime/fleet`). */
const SANDBOX = 'sandbox';

/** Resources that an idle platform holds, for comparison before and after attacks. */
export interface Holdings {
  /** Invocations that wait or run, of all tenants but the canary. */
  readonly invocations: number;
  /** KV pages, inferlets and queues on the GPU host. */
  readonly ownedPages: number;
  readonly inferlets: number;
  readonly queues: number;
  /** Processes of the platform, the supervisor included. */
  readonly processes: readonly string[];
}

/** Resources that the platform holds now. The canary must be silent. */
export async function holdings(platform: Platform): Promise<Holdings> {
  const load = (await (await platform.fetch('/v1/load')).json()) as PlatformLoad;
  const { pages, inferlets, queues } = await modelStats(platform);
  return {
    invocations: load.waiting + load.running,
    ownedPages: pages.owned,
    inferlets,
    queues,
    processes: descendants(platform.supervisorPid),
  };
}

/** Waits until the platform holds no more than `before`; returns descriptions of what it still holds at the deadline. */
export async function leftBehind(platform: Platform, before: Holdings): Promise<string[]> {
  const end = performance.now() + SETTLE_MS;
  for (;;) {
    const now = await holdings(platform);
    const left = (['invocations', 'ownedPages', 'inferlets', 'queues'] as const)
      .filter((name) => now[name] > before[name])
      .map((name) => `${now[name] - before[name]} ${name}`);
    const extra = [...now.processes];
    for (const name of before.processes) {
      const at = extra.indexOf(name);
      if (at >= 0) extra.splice(at, 1);
      else left.push(`the process ${name} is gone`);
    }
    left.push(...extra.map((name) => `a process ${name}`));
    if (left.length === 0 || performance.now() > end) return left;
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}

/** Program names of a process and all its descendants. */
function descendants(root: number): string[] {
  const processes = readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .flatMap((entry) => statOf(Number(entry)));
  const family = new Set([root]);
  for (let size = 0; size !== family.size; ) {
    size = family.size;
    for (const { pid, parent } of processes) if (family.has(parent)) family.add(pid);
  }
  return processes.filter(({ pid, name }) => family.has(pid) && name !== SANDBOX).map(({ name }) => name);
}

/** A process as a list of one; empty when the process has ended or is a zombie. */
function statOf(pid: number): { pid: number; parent: number; name: string }[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (state === 'Z') return [];
    return [{ pid, parent: Number(parent), name: programOf(pid) }];
  } catch {
    return [];
  }
}

function programOf(pid: number): string {
  const [program = '', ...args] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  if (args.some((arg) => arg.endsWith('/guest/main.ts'))) return SANDBOX;
  const script = args.find((arg) => arg.endsWith('.ts'));
  return [program.split('/').at(-1), script?.split('/').slice(-2).join('/')].filter(Boolean).join(' ');
}
