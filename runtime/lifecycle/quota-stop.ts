import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { ExceededQuota, ShortQuota } from '#scheduler/quotas/exceeded.ts';
import { ENDING_QUOTA_CODES, type EndingQuotaCode, type QuotaName, quotaErrorCode } from '#scheduler/quotas/names.ts';
import type { Quotas } from '#scheduler/quotas/quotas.ts';
import type { Stop } from './stopping.ts';

/** A counted quota that a running invocation used up. */
export type MetQuota = Pick<ExceededQuota, 'quota' | 'limit' | 'resetsAt' | 'scope'>;

/** The token quota with the least left for a function of a tenant; null when there is none. @throws StoreError */
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

/** The failure code of an invocation that a quota ends. Other quotas, which end no running invocation, map to `quota-tokens`. */
export function quotaCode(quota: QuotaName): EndingQuotaCode {
  const code = quotaErrorCode(quota);
  return ENDING_QUOTA_CODES.find((ending) => ending === code) ?? 'quota-tokens';
}

/** The stop for an invocation that used up a quota; its message names the quota, its limit, and its reset time. */
export function quotaStop({ quota, limit, resetsAt, scope }: MetQuota, now: number): Stop {
  const resets = new Date(resetsAt).toISOString();
  return {
    code: quotaCode(quota),
    message: `The quota ${quota} of the ${scope} is used up: its limit is ${limit}, and it resets at ${resets}.`,
    cause: `quota ${quota}`,
    retryAfterMs: Math.max(1, Math.ceil(resetsAt - now)),
    figures: { quota, scope, limit, resetsAt },
  };
}

/** Time after which a client may try again when other invocations have reserved the rest of a quota: they return what they do not use. */
const RESERVED_RETRY_MS = 1000;

/** The stop for an invocation that needs more tokens than a quota has room for. */
export function shortStop(quota: ShortQuota, now: number): Stop {
  const stop = quotaStop(quota, now);
  if (quota.isHopeless) return stop;
  const resets = new Date(quota.resetsAt).toISOString();
  return {
    ...stop,
    message:
      `The quota ${quota.quota} of the ${quota.scope} has no room: its limit is ${quota.limit}, and other invocations have reserved what is left. ` +
      `They return what they do not use; the quota resets at ${resets}.`,
    retryAfterMs: RESERVED_RETRY_MS,
  };
}

/** The stop for when the quota's name is unknown: a token quota has no room. */
export const TOKENS_USED_UP: Stop = {
  code: 'quota-tokens',
  message: 'The quota of tokens has no room for what the inferlet asked for.',
  cause: 'quota tokens',
};
