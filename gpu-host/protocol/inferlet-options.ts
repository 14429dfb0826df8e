import type { TenantLimit } from './calls.ts';
import type { SharedPages } from './page-budget.ts';
import type { Termination } from './results.ts';

/** Bound of a queue's priorities, ±, unless the tenant has another. */
export const DEFAULT_MAX_PRIORITY = 10;
/** Tenant of an inferlet that names none. */
export const DEFAULT_TENANT = 'default';

export interface InferletOptions {
  /** The invocation's id. */
  readonly id: string;
  /**
   * Attempt of the invocation, 0 by default. When a newer attempt opens an inferlet on the host, the host ends those of older attempts and
   * refuses later ones. A whole number up to 2^53.
   */
  readonly epoch?: number;
  /** Tenant whose exports, files and cached prefixes the inferlet sees: `DEFAULT_TENANT` by default. */
  readonly tenant?: string;
  /** Maximum pages that the inferlet may hold, per model. */
  readonly maxPages: number;
  /** Budget of pages that the inferlet shares with others. */
  readonly sharedPages?: SharedPages;
  /** Priorities of the queues are clamped to ±`maxPriority`: `DEFAULT_MAX_PRIORITY` by default. */
  readonly maxPriority?: number;
  /** Latency targets, milliseconds from 1 on, that the platform granted to the invocation; without them its calls are ordinary. */
  readonly latency?: { readonly firstTokenMs: number; readonly perTokenMs: number };
  /** Age of the inferlet: when memory must be taken back, the newest goes first. Milliseconds since the Unix epoch, or any other order. */
  readonly arrival: number;
  /** Maximum pages of the tenant on the host; without it there is no limit, unless another inferlet of the tenant brings one. */
  readonly tenantPages?: TenantLimit;
  /** Name of the function that runs, shown to inferlets of the tenant that give way to it. */
  readonly functionName?: string;
  /** W3C trace context, when the inferlet is traced. */
  readonly traceparent?: string;
  /** Called with the number of further tokens that encoders of the host have computed for the inferlet, until its close has ended. */
  readonly onEncoded?: (tokens: number) => void;
  /** Called once when the host has taken the inferlet's memory; its pending calls have been answered `terminated` by then. */
  readonly onTerminated?: (termination: Termination) => void;
  /**
   * Called with `true` when the host begins to hold calls of the inferlet, because it preempted the inferlet's family or brings pages back
   * from disk, and with `false` when it holds none any more, or the inferlet has ended, or the host is lost. The values alternate, `true` first.
   */
  readonly onHeld?: (isHeld: boolean) => void;
}
