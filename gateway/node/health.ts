import { isDrained } from '#scheduler/policies/placement.ts';
import type { RuntimeGpuHost, RuntimeInfo } from '#scheduler/runtimes/types.ts';
import type { Health } from '../app/control.ts';

/** Time in which a lost GPU host may return before readiness fails. Most lost hosts only restart: to reroute traffic would be in vain. */
export const GPU_HOST_GRACE_MS = 5000;

/**
 * Checks, from the runtimes' own reports, whether each runtime that may get a new invocation could run it. Every function counts as one that
 * needs a GPU host, because a function that names no model may use all models.
 *
 * @param now milliseconds since the Unix epoch
 */
export function runningChecks(runtimes: readonly RuntimeInfo[], now: number): Health['checks'] {
  const aliveRuntimes = runtimes.filter((runtime) => runtime.alive);
  const runtimesCheck = { name: 'runtimes', ok: aliveRuntimes.length > 0, detail: `${aliveRuntimes.length} alive` };
  const acceptingRuntimes = aliveRuntimes.filter(({ accepting }) => accepting === true);
  const candidates = acceptingRuntimes.length > 0 ? acceptingRuntimes : aliveRuntimes;
  // Any of these runtimes may get the invocation, so one failed check fails readiness.
  const hostChecks = candidates.flatMap(({ gpuHosts }) => (gpuHosts === undefined ? [] : [hostCheck(gpuHosts, now)]));
  const shownCheck = hostChecks.find(({ ok }) => !ok) ?? hostChecks[0];
  return shownCheck === undefined ? [runtimesCheck] : [runtimesCheck, shownCheck];
}

/** Checks whether a runtime reaches one of its GPU hosts. */
function hostCheck(hosts: readonly RuntimeGpuHost[], now: number): Health['checks'][number] {
  if (hosts.length === 0) return { name: 'gpu-hosts', ok: false, detail: 'no machine with GPU hosts is there' };
  const undrainedHosts = hosts.filter((host) => !isDrained(host));
  const drainedText = hosts.length > undrainedHosts.length ? `, ${hosts.length - undrainedHosts.length} drained` : '';
  const connectedCount = undrainedHosts.filter(({ connected }) => connected).length;
  // Infinite when no undrained host reports a loss.
  const awayMs = now - Math.max(...undrainedHosts.map(({ lostAt = Number.NEGATIVE_INFINITY }) => lostAt));
  const awayText = connectedCount > 0 || undrainedHosts.length === 0 ? '' : sinceText(awayMs);
  const detail = `${connectedCount || 'none'} of ${hosts.length} there${awayText}${drainedText}`;
  return { name: 'gpu-hosts', ok: connectedCount > 0 || awayMs <= GPU_HOST_GRACE_MS, detail };
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
