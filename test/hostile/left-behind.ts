import type { PlatformLoad } from '#gateway/app/control.ts';
import { programOf, readCommand } from '#test/bench/proc.ts';
import { platformProcesses } from '#test/chaos/processes.ts';
import { modelStats } from '#test/harness/deploy.ts';
import type { Platform } from '#test/harness/platform.ts';

/** Longest time for the platform to free an attack's resources. It is long because the platform polls, and because tests share the machine. */
const SETTLE_MS = 60_000;
const POLL_MS = 50;

/** Program of sandbox processes, which start with their tenants and end when they are idle (`runtime/fleet`). */
const SANDBOX = '/guest/main.ts';

/** Resources that a platform holds, for a comparison before and after attacks. */
export interface Holdings {
  /** Invocations that wait or run, of all tenants. */
  readonly invocations: number;
  /** KV pages that belong to an owner on the GPU host. */
  readonly ownedPages: number;
  /** Inferlets and queues on the GPU host. */
  readonly inferlets: number;
  readonly queues: number;
  /** Processes of the platform, the supervisor included. */
  readonly processes: readonly string[];
}

/** Resources that the platform holds now. Stop the canary (the tenant that streams beside an attack) before: its invocations would count. */
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

/**
 * Waits until the platform holds no more than `before` and has the same processes, at most `SETTLE_MS`. Returns descriptions of the remaining
 * differences: added resources, added processes, and missing processes.
 */
export async function leftBehind(platform: Platform, before: Holdings): Promise<string[]> {
  const end = performance.now() + SETTLE_MS;
  for (;;) {
    const now = await holdings(platform);
    const differences = (['invocations', 'ownedPages', 'inferlets', 'queues'] as const)
      .filter((name) => now[name] > before[name])
      .map((name) => `${now[name] - before[name]} ${name}`);
    const addedProcesses = [...now.processes];
    for (const name of before.processes) {
      const at = addedProcesses.indexOf(name);
      if (at >= 0) addedProcesses.splice(at, 1);
      else differences.push(`the process ${name} is gone`);
    }
    differences.push(...addedProcesses.map((name) => `a process ${name}`));
    if (differences.length === 0 || performance.now() > end) return differences;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Program names of a process and all its descendants, except sandboxes. */
function descendants(root: number): string[] {
  return (
    platformProcesses(root)
      .map(readCommand)
      // A zombie has no command.
      .filter(([program, ...args]) => program !== '' && !args.some((arg) => arg.endsWith(SANDBOX)))
      .map(programOf)
  );
}
