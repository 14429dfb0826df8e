import type { TenantLimit } from './calls.ts';
import type { SharedPages } from './page-budget.ts';
import type { Termination } from './results.ts';

/** The priorities of a queue are clamped to ± this bound, unless the options give another. */
export const DEFAULT_MAX_PRIORITY = 10;
/** Tenant of an inferlet that names none. */
export const DEFAULT_TENANT = 'default';

export interface InferletOptions {
  /** The invocation's id. */
  readonly id: string;
  /**
   * Attempt of the invocation, a whole number up to 2^53; 0 by default. When a newer attempt opens an inferlet on the host, the host ends the
   * inferlets of older attempts, and refuses to open further ones for those attempts.
   */
  readonly epoch?: number;
  /** Tenant of the inferlet, `DEFAULT_TENANT` by default. The inferlet sees the tenant's exports, files and cached prefixes. */
  readonly tenant?: string;
  /** Maximum pages that the inferlet may hold, per model. */
  readonly maxPages: number;
  /** Budget of pages that the inferlet shares with others. */
  readonly sharedPages?: SharedPages;
  /** Priorities of the queues are clamped to ±`maxPriority`: `DEFAULT_MAX_PRIORITY` by default. */
  readonly maxPriority?: number;
  /** Latency targets that the platform granted to the invocation, each at least 1 ms; without them its calls have no deadline. */
  readonly latency?: { readonly firstTokenMs: number; readonly perTokenMs: number };
  /** Order of arrival, such as milliseconds since the Unix epoch: when memory runs out, the inferlet with the largest number gives way first. */
  readonly arrival: number;
  /** Maximum pages of the tenant on the host; without it there is no limit, unless another inferlet of the tenant brings one. */
  readonly tenantPages?: TenantLimit;
  /** Name of the function that runs. If an inferlet of the same tenant is ended to make room for this one, its error has this name. */
  readonly functionName?: string;
  /** W3C trace context, when the inferlet is traced. */
  readonly traceparent?: string;
  /** Called with the tokens that the host's encoders have computed for the inferlet since the last call, until its close has ended. */
  readonly onEncoded?: (tokens: number) => void;
  /** Called once when the host has taken the inferlet's memory; its pending calls have been answered `terminated` by then. */
  readonly onTerminated?: (termination: Termination) => void;
  /**
   * Called with `true` when the host begins to hold back calls of the inferlet, because it preempted the inferlet's family (the root invocation
   * and its children) or brings pages back from disk. Called with `false` when the host holds none of its calls any more, when the inferlet has
   * ended, or when the host is lost. The values alternate, `true` first.
   */
  readonly onHeld?: (isHeld: boolean) => void;
}
