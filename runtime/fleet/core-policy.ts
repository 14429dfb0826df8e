/** Decides which sandboxes use much of the cores, by their CPU time and their wait for a core. Pure: time comes in as an argument. */
import type { CoreWeight } from '../sandboxes/core-weight.ts';

/** CPU time of a sandbox since its start, in ms. */
export interface CoreTimes {
  readonly usedMs: number;
  /** Time in which the sandbox was ready to compute while other processes had the cores. */
  readonly waitedMs: number;
  /** True when the sandbox computes or waits now. The kernel counts a wait only when the wait ends. */
  readonly ready: boolean;
}

/** Known use of a sandbox: averages with exponential decay. */
export interface CoreUse {
  readonly atMs: number;
  readonly usedMs: number;
  /** Includes the current, unfinished wait at its longest possible value. */
  readonly waitedMs: number;
  /** Recent part of a core that the sandbox received. */
  readonly share: number;
  /** Recent part of the time in which the sandbox was computing or waiting for a core. */
  readonly demand: number;
  /** Part of a core that the sandbox received in the last moments. */
  readonly burst: number;
  /** True when the sandbox is to yield a part of its cores. */
  readonly bursts: boolean;
  /** True when the sandbox is to yield. */
  readonly heavy: boolean;
}

/** A sandbox is heavy from this part of a core on: after 1.4 s of constant computing. It is light below `LIGHT_SHARE`: 1.9 s after it stops. */
const HEAVY_SHARE = 0.5;
const LIGHT_SHARE = 0.4;
const SHARE_MEMORY_MS = 2000;
/**
 * A guest that competes with many others, or yields, receives less than `HEAVY_SHARE`. Such a guest is heavy when it never sleeps: a light
 * guest sleeps between its bursts, however long they take.
 */
const RESTLESS_DEMAND = 0.95;
const RESTLESS_SHARE = 0.1;
const LIGHT_DEMAND = 0.9;
const DEMAND_MEMORY_MS = 1000;
/**
 * A sandbox bursts from this part of a core on: after 0.2 s of constant computing, or 0.5 s with half a core. Many launches of one tenant
 * take longer than that; they must not delay other tenants' tokens. The burst ends below `CALM_SHARE`, once the sandbox has slept.
 */
const BURST_SHARE = 0.4;
const CALM_SHARE = 0.25;
const BURST_MEMORY_MS = 300;

export const beginUse = (atMs: number, { usedMs, waitedMs }: CoreTimes): CoreUse => ({
  atMs,
  usedMs,
  waitedMs,
  share: 0,
  demand: 0,
  burst: 0,
  bursts: false,
  heavy: false,
});

/** Time after which the use of a tenant's other sandboxes is forgotten. */
export const TENANT_MEMORY_MS = 4000;

/** Starts a tenant's sandbox with the use of the tenant's others: a tenant must not get more of the cores by losing sandboxes. */
export function inheritUse(begun: CoreUse, othersUse: CoreUse | undefined): CoreUse {
  if (!othersUse || begun.atMs - othersUse.atMs > TENANT_MEMORY_MS) return begun;
  const { share, demand, burst, bursts, heavy } = othersUse;
  return { ...begun, share, demand, burst, bursts, heavy };
}

/**
 * Adds the times of one look. A heavy sandbox is heavy even without competition: the kernel still gives it all idle cores, and takes them
 * back on demand.
 */
export function nextUse(previous: CoreUse, atMs: number, times: CoreTimes): CoreUse {
  const passedMs = atMs - previous.atMs;
  if (passedMs <= 0) return previous;
  const usedMs = times.usedMs - previous.usedMs;
  // A wait that is counted here early is not counted again when the kernel counts it.
  const waitedMs = Math.max(previous.waitedMs, times.waitedMs, times.ready ? previous.waitedMs + passedMs - usedMs : 0);
  const usedShare = shareOf(usedMs, passedMs);
  const wantedShare = shareOf(usedMs + waitedMs - previous.waitedMs, passedMs);
  const share = forgetting(previous.share, usedShare, passedMs / SHARE_MEMORY_MS);
  const demand = forgetting(previous.demand, wantedShare, passedMs / DEMAND_MEMORY_MS);
  const isRestless = share >= RESTLESS_SHARE && demand >= RESTLESS_DEMAND;
  const heavy = previous.heavy ? share > LIGHT_SHARE || demand > LIGHT_DEMAND : share >= HEAVY_SHARE || isRestless;
  const burst = forgetting(previous.burst, usedShare, passedMs / BURST_MEMORY_MS);
  const bursts = previous.bursts ? burst > CALM_SHARE || wantedShare >= RESTLESS_DEMAND : burst >= BURST_SHARE;
  return { atMs, usedMs: times.usedMs, waitedMs, share, demand, burst, bursts, heavy };
}

/** Weight that a sandbox with a tenant is to have. */
export const wantedWeight = ({ heavy, bursts }: CoreUse): CoreWeight =>
  heavy ? 'heavy' : bursts ? 'background' : 'usual';

/** The threads of a sandbox may use several cores; at most one counts. */
const shareOf = (usedMs: number, passedMs: number): number => Math.max(0, Math.min(1, usedMs / passedMs));

const forgetting = (previous: number, now: number, timeConstants: number): number =>
  now + (previous - now) * Math.exp(-timeConstants);

/** A sandbox whose current weight differs from its wanted weight. */
export interface Change<T> {
  readonly sandbox: T;
  readonly weight: CoreWeight;
  /** Time of the last attempt; the kernel may have refused it. */
  readonly triedAtMs: number;
}

/** Bound on changes at one look. The kernel accepts ten a second from unprivileged users. */
export const MOST_CHANGES = 2;

/** A sandbox that computes all the time harms others more than one that bursts. */
const ORDER = { usual: 0, heavy: 1, background: 2 } satisfies Record<CoreWeight, number>;

/** Returns the changes to make now: to the usual weight first, then to the heavy one; of several, those tried the longest ago. */
export function changesNow<T>(changes: readonly Change<T>[]): Change<T>[] {
  const order = (a: Change<T>, b: Change<T>) => ORDER[a.weight] - ORDER[b.weight] || a.triedAtMs - b.triedAtMs;
  return [...changes].sort(order).slice(0, MOST_CHANGES);
}
