import { isDrained } from '#scheduler/policies/placement.ts';
import type { RuntimeGpuHost, RuntimeInfo } from '#scheduler/runtimes/types.ts';
import type { Health } from '../app/control.ts';

/** Time in which a lost GPU host may return before readiness fails: most just restart, and a load balancer would reroute traffic in vain. */
export const GPU_HOST_GRACE_MS = 5000;

/**
 * Checks by the runtimes' own reports whether some runtime would run a new invocation. Every function counts as one that needs a GPU host,
 * because a function that names no model may use all models.
 *
 * @param now milliseconds since the Unix epoch
 */
export function runningChecks(runtimes: readonly RuntimeInfo[], now: number): Health['checks'] {
  const alive = runtimes.filter((runtime) => runtime.alive);
  const running = { name: 'runtimes', ok: alive.length > 0, detail: `${alive.length} alive` };
  const taking = alive.filter(({ accepting }) => accepting === true);
  const asked = taking.length > 0 ? taking : alive;
  // Any of these runtimes may get the invocation.
  const reach = asked.flatMap(({ gpuHosts }) => (gpuHosts === undefined ? [] : [hostCheck(gpuHosts, now)]));
  const worst = reach.find(({ ok }) => !ok) ?? reach[0];
  return worst === undefined ? [running] : [running, worst];
}

/** Checks whether a runtime reaches one of its GPU hosts. */
function hostCheck(hosts: readonly RuntimeGpuHost[], now: number): Health['checks'][number] {
  if (hosts.length === 0) return { name: 'gpu-hosts', ok: false, detail: 'no machine with GPU hosts is there' };
  const used = hosts.filter((host) => !isDrained(host));
  const drained = hosts.length > used.length ? `, ${hosts.length - used.length} drained` : '';
  const there = used.filter(({ connected }) => connected).length;
  const awayMs = now - Math.max(...used.map(({ lostAt = Number.NEGATIVE_INFINITY }) => lostAt));
  const since = there > 0 || used.length === 0 ? '' : sinceText(awayMs);
  const detail = `${there || 'none'} of ${hosts.length} there${since}${drained}`;
  return { name: 'gpu-hosts', ok: there > 0 || awayMs <= GPU_HOST_GRACE_MS, detail };
}

/** @param missing functions that the platform's start has not deployed yet */
export function functionsCheck(missing: readonly string[]): Health['checks'][number] {
  const [first] = missing;
  if (first === undefined) return { name: 'functions', ok: true };
  const others = missing.length > 1 ? ` and ${missing.length - 1} more` : '';
  return { name: 'functions', ok: false, detail: `${first}${others} not deployed yet` };
}

function sinceText(awayMs: number): string {
  return Number.isFinite(awayMs) ? ` for ${Math.max(0, Math.round(awayMs / 1000))} s` : ' yet';
}
