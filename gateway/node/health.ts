import type { PendingFunction } from '#infra/pending-functions.ts';
import { isDrained } from '#scheduler/policies/placement.ts';
import { textForTenant } from '#scheduler/policies/text-for-tenant.ts';
import type { RuntimeGpuHost, RuntimeInfo } from '#scheduler/runtimes/types.ts';
import type { Health } from '../app/control.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import { retryHeaders } from '../app/http/authenticate.ts';

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

/** Bundled functions that a check names; it counts the others. */
const MAX_NAMED = 3;
/** Characters of the reason why a function is not deployed. */
const MAX_REASON = 300;
/** Time after which a client should ask again for a function whose turn to be built comes, or whose next try comes sooner. */
const PENDING_RETRY_MS = 5000;

/**
 * The check of the bundled functions; none when all are there. Only functions that the start awaits keep the platform from being ready.
 *
 * @param missing bundled functions that the platform's start has not deployed yet
 * @param now milliseconds since the Unix epoch
 */
export function functionsCheck(missing: readonly PendingFunction[], now: number): Health['checks'] {
  if (missing.length === 0) return [];
  const awaited = missing.filter(({ isAwaited }) => isAwaited);
  // Those that failed are more telling than those whose turn comes.
  const order = [...awaited, ...missing.filter(({ isAwaited }) => !isAwaited)].sort(
    (a, b) => Number(b.state === 'failed') - Number(a.state === 'failed'),
  );
  const texts = order.slice(0, MAX_NAMED).map((one) => pendingText(one, now));
  const others = order.length > MAX_NAMED ? [`${order.length - MAX_NAMED} more are not deployed yet`] : [];
  return [{ name: 'functions', ok: awaited.length === 0, detail: [...texts, ...others].join('; ') }];
}

/** The error of a request for a bundled function that is not there yet. */
export function notDeployedYet(missing: PendingFunction, now: number): GatewayError {
  const retryMs = Math.max(PENDING_RETRY_MS, (missing.nextTryAt ?? 0) - now);
  return new GatewayError(
    'function-pending',
    `The platform still deploys its functions: ${pendingText(missing, now)}.`,
    {
      headers: retryHeaders(retryMs),
    },
  );
}

/** A pending function for clients: the reason names no files of the machine. */
export function toPending({ name, state, tries, why, nextTryAt }: PendingFunction): PendingInfo {
  return {
    name,
    state,
    tries,
    ...(why !== undefined && { why: textForTenant(why).slice(0, MAX_REASON) }),
    ...(nextTryAt !== undefined && { nextTryAt: new Date(nextTryAt).toISOString() }),
  };
}

type PendingInfo = NonNullable<Health['pendingFunctions']>[number];

function pendingText(pending: PendingFunction, now: number): string {
  const { name, state, tries, why } = toPending(pending);
  if (state === 'building') return `${name} is being built`;
  if (state === 'waiting') return `${name} is not deployed yet`;
  const inSeconds = Math.max(0, Math.ceil(((pending.nextTryAt ?? now) - now) / 1000));
  const times = tries === 1 ? 'once' : `${tries} times`;
  return `${name} failed ${times} (${why ?? 'without a reason'}), and is tried again in ${inSeconds} s`;
}

function sinceText(awayMs: number): string {
  return Number.isFinite(awayMs) ? ` for ${Math.max(0, Math.round(awayMs / 1000))} s` : ' yet';
}
