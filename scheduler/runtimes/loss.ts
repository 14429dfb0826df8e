import type { Holding } from '../admission/active-jobs.ts';
import type { Logger } from '../policies/logger.ts';
import type { ProcessState } from '../policies/silence.ts';
import type { Store } from '../store/store.ts';

/** Why a runtime is lost, with the figures that decided. */
export interface Loss {
  /** In words, for the end of a sentence about the runtime: `it ended: signal SIGKILL`. */
  readonly why: string;
  /** Time since its last sign of life, as far as it is known: the last renewal of the lease, or the last turn of its event loop, ms. */
  readonly silentMs?: number;
  /** Length of the lease, ms. */
  readonly leaseMs?: number;
  /** What the supervisor last saw of the process. */
  readonly look?: ProcessState;
}

/** Maximum ids of invocations in one record of the log. */
export const MAX_LOGGED_IDS = 100;

/** The message of `runtime-lost` that clients get. */
export function lossText(runtimeId: string, { why }: Loss): string {
  const [name] = runtimeId.split('~');
  return `The runtime that ran this invocation was lost (${name}): ${why}.`;
}

/** Logs the invocations that ended as `runtime-lost`: a record for each tenant, or several with `MAX_LOGGED_IDS` ids each. */
export async function logEnds(store: Store, log: Logger, ends: readonly Holding[], loss: Loss): Promise<void> {
  if (ends.length === 0) return;
  const tenants = await store
    .call((redis) => Promise.all(ends.map(({ id }) => redis.hget(store.keys.invocation(id), 'tenant'))))
    .catch(() => []);
  const byTenant = Map.groupBy(
    ends.map((end, i) => ({ ...end, tenant: tenants[i] ?? 'unknown' })),
    ({ tenant }) => tenant,
  );
  for (const [tenant, endsOfTenant] of byTenant) {
    const invocations = endsOfTenant.map(({ id }) => id);
    const runtime = endsOfTenant[0]?.runtimeId;
    for (let from = 0; from < invocations.length; from += MAX_LOGGED_IDS)
      log.warn(
        { runtime, tenant, invocations: invocations.slice(from, from + MAX_LOGGED_IDS), ...loss },
        'invocations ended as runtime-lost',
      );
  }
}
