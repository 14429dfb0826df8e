import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { ExceededQuota } from '#scheduler/quotas/exceeded.ts';
import type { QuotaName } from '#scheduler/quotas/names.ts';
import type { Quotas } from '#scheduler/quotas/quotas.ts';
import type { QuotaCode, Stop } from './stopping.ts';

/** A counted quota that a running invocation met. */
export type MetQuota = Pick<ExceededQuota, 'quota' | 'limit' | 'resetsAt' | 'scope'>;

/** The token quota that has least left for a function of a tenant; null when there is none. Throws `StoreError`. */
export async function tokenQuota(quotas: Pick<Quotas, 'status'>, job: InvocationJob): Promise<MetQuota | null> {
  let least: { readonly left: number; readonly quota: MetQuota } | null = null;
  for (const { quota, function: of, limit, used, resetsAt } of await quotas.status(job.tenant, job.function)) {
    if (!quota.startsWith('tokens-per-') || resetsAt === null) continue;
    const left = limit - used;
    if (least && least.left <= left) continue;
    least = { left, quota: { quota, limit, resetsAt, scope: of === null ? 'tenant' : 'function' } };
  }
  return least?.quota ?? null;
}

/** The failure code of an invocation that is ended for a quota; `quota-tokens` for those of requests, which end nothing that runs. */
export function quotaCode(quota: QuotaName): QuotaCode {
  if (quota.startsWith('gpu-ms')) return 'quota-gpu-time';
  return quota.startsWith('cpu-ms') ? 'quota-cpu-time' : 'quota-tokens';
}

/** Ends an invocation for a quota: which one, its limit, and when it resets. */
export function quotaStop({ quota, limit, resetsAt, scope }: MetQuota, now: number): Stop {
  const resets = new Date(resetsAt).toISOString();
  return {
    code: quotaCode(quota),
    message: `The quota ${quota} of the ${scope} is used up: its limit is ${limit}, and it resets at ${resets}.`,
    cause: `quota ${quota}`,
    retryAfterMs: Math.max(1, Math.ceil(resetsAt - now)),
  };
}

/** The same when it is known only that no token quota has room. */
export const TOKENS_USED_UP: Stop = {
  code: 'quota-tokens',
  message: 'The quota of tokens has no room for what the inferlet asked for.',
  cause: 'quota tokens',
};
