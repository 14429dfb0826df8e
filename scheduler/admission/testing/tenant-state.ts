import { MEMORY } from '../learned.ts';

/** Weight of a tenant that sets none. */
const DEFAULT_WEIGHT = 100;

/** KV pages by model, and runtime memory (`MEMORY`). */
export type Pages = Readonly<Record<string, number>>;

/** An invocation in its tenant's queue, and what it needs to start. */
export interface Demand {
  readonly id: string;
  readonly tenant: string;
  /** Place in the order of all invocations. */
  readonly arrival: number;
  /** Pages and memory that it is expected to hold. */
  readonly pages: Pages;
  /** True for an invocation with granted latency targets: it is admitted as if its tenant held little. */
  readonly latency?: boolean;
  /** Pages that an earlier attempt held or asked for when a GPU host ended it for lack of memory, and the time of that end, ms. */
  readonly short?: { readonly pages: Pages; readonly since: number };
}

/** Limits from a tenant's record and quotas. `pages` bounds the sum over all models; it also caps a head's expected pages of each model. */
export interface Limits {
  readonly weight?: number;
  readonly suspended?: boolean;
  readonly concurrency?: number;
  readonly pages?: number;
}

/** State of one tenant in the admission policy. */
export interface Tenant {
  readonly name: string;
  readonly queue: Demand[];
  /** Expected pages and memory of its admitted invocations, by model. */
  readonly heldPages: Map<string, number>;
  /** Number of its admitted invocations. */
  running: number;
  limits: Limits;
  /** Virtual finish time: the virtual time up to which it has been charged. */
  finish: number;
  /** Virtual start time of its head; null while no head may start. */
  turn: number | null;
  /** The first invocation of its queue. */
  head: Demand | null;
  /** Times that other tenants' heads have overtaken its head; see `AdmissionPolicy`. */
  overtaken: number;
  /** The head that an invocation with latency targets displaced last, in its state then, in case it returns. Null again with an empty queue. */
  displaced: { readonly id: string; readonly overtaken: number; readonly isRoomKept: boolean } | null;
  /** True while the policy keeps room for its head. */
  isRoomKept: boolean;
}

/**
 * True when the tenant's limits let its head start. A head that needs more than the page limit over all models starts
 * when no other invocation of the tenant is admitted.
 */
export function mayStart(tenant: Tenant): boolean {
  const { limits, running, heldPages } = tenant;
  if (limits.suspended || running >= (limits.concurrency ?? Number.POSITIVE_INFINITY)) return false;
  if (limits.pages === undefined || running === 0) return true;
  const pageCounts = [...heldPages, ...pagesOf(tenant)].filter(([model]) => model !== MEMORY);
  const pages = pageCounts.reduce((sum, [, count]) => sum + count, 0);
  return pages <= limits.pages;
}

export function weightOf({ limits }: Tenant): number {
  return limits.weight ?? DEFAULT_WEIGHT;
}

/** The pages that a tenant's head needs: of each model at most the tenant's page limit. */
export function pagesOf({ head, limits: { pages: maxPages = Number.POSITIVE_INFINITY } }: Tenant): [string, number][] {
  return Object.entries(head?.pages ?? {})
    .map(([model, count]): [string, number] => [model, model === MEMORY ? count : Math.min(count, maxPages)])
    .filter(([, count]) => count > 0);
}

export function byTurn(a: Tenant, b: Tenant): number {
  return (a.turn ?? 0) - (b.turn ?? 0) || (a.name < b.name ? -1 : 1);
}
