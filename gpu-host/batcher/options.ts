import type { GracePolicy } from './policies/adaptive.ts';
import type { BatchPolicy } from './policies/policy.ts';
import { type BatchLimits, DEFAULT_LIMITS } from './select.ts';
import type { LatencyTargets } from './targets.ts';

export interface BatcherOptions {
  readonly limits?: Partial<BatchLimits>;
  /** For the `adaptive` policy. */
  readonly grace?: GracePolicy;
  /** `adaptive` by default. */
  readonly policy?: BatchPolicy;
  /** Maximum inputs of the next batch, if this is below `BatchLimits.maxTokens`; at least 1. Unlimited by default. */
  readonly batchInputs?: () => number;
}

export const MAX_PRIORITY = 10;

/** The limits of a batch. The `eager` policy sends each call alone. */
export function limitsOf({ limits, policy }: BatcherOptions): BatchLimits {
  return { ...DEFAULT_LIMITS, ...limits, ...(policy?.kind === 'eager' ? { maxCalls: 1 } : {}) };
}

export interface QueueOptions {
  /** Priorities of the queue are clamped to ±`maxPriority`; `MAX_PRIORITY` by default. */
  readonly maxPriority?: number;
  /** Tenant whose inferlet owns the queue; an empty name by default. Tenants take turns with calls that need no step. */
  readonly tenant?: string;
  /** Latency targets of the queue's calls; without them the calls are ordinary. */
  readonly targets?: LatencyTargets | undefined;
  /** Rank of the queue's query (a root inferlet with its children) among its tenant's queries: the smaller, the earlier; 0 by default. */
  readonly query?: number;
}
