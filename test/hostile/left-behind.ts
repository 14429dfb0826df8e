import type { PlatformLoad } from '#gateway/app/resources/operations.ts';
import { programOf, readCommand } from '#test/bench/proc.ts';
import { platformProcesses } from '#test/chaos/processes.ts';
import { modelStats } from '#test/harness/deploy.ts';
import type { Platform } from '#test/harness/platform.ts';

/** Longest time for the platform to free what an attack held. It is long because the platform polls and tests share the machine. */
const SETTLE_MS = 60_000;
const LOOK_EVERY_MS = 50;

/** Program of sandbox processes, which start with their tenants and end when they are idle (`runtime/fleet`). */
const SANDBOX = '/guest/main.ts';

/** Resources that a platform holds, for a comparison before and after attacks. */
export interface Holdings {
  /** Invocations that wait or run, of all tenants. */
  readonly invocations: number;
  /** KV pages, inferlets and queues on the GPU host. */
  readonly ownedPages: number;
  readonly inferlets: number;
  readonly queues: number;
  /** Processes of the platform, the supervisor included. */
  readonly processes: readonly string[];
}

/**
 * Resources that the platform holds now. The canary, which is the tenant that streams beside an attack, must not run:
 * its invocations would count.
 */
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
 * Waits until the platform holds no more than `before` and has the same processes, for `SETTLE_MS` at most. Returns
 * descriptions of the differences that are left then: added resources, added processes, and processes that are gone.
 */
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
