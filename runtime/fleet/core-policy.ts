/** Which sandboxes take much of the cores, from what each used and waited for. Pure: time comes in as an argument. */
import type { CoreWeight } from '../sandboxes/core-weight.ts';

/** CPU time of a sandbox since its start, in ms. */
export interface CoreTimes {
  readonly usedMs: number;
  /** In which it was ready to compute and others had the cores. */
  readonly waitedMs: number;
  /** It computes or waits now. The kernel counts a wait when it is over. */
  readonly ready: boolean;
}

/** What is known of a sandbox: averages that forget. */
export interface CoreUse {
  readonly atMs: number;
  readonly usedMs: number;
  /** With the wait that is not over, at its longest. */
  readonly waitedMs: number;
  /** Part of a core that it received of late. */
  readonly share: number;
  /** Part of the time in which it had something to compute of late, whether or not it received a core. */
  readonly demand: number;
  /** It is to yield. */
  readonly heavy: boolean;
}

/** Part of a core that makes a sandbox heavy, and that below which it is heavy no more. A guest that computes all the time is heavy after 1.4 s, and no more 1.9 s after it stopped. */
const HEAVY_SHARE = 0.5;
const LIGHT_SHARE = 0.4;
const SHARE_MEMORY_MS = 2000;
/**
 * A guest that many others compete with receives less, as does one that yields. It is known by never sleeping: a light guest sleeps between its bursts,
 * however long they take it.
 */
const RESTLESS_DEMAND = 0.95;
const RESTLESS_SHARE = 0.1;
const LIGHT_DEMAND = 0.9;
const DEMAND_MEMORY_MS = 1000;

export const beginUse = (atMs: number, { usedMs, waitedMs }: CoreTimes): CoreUse => ({
  ...{ atMs, usedMs, waitedMs },
  ...{ share: 0, demand: 0, heavy: false },
});

/** What another sandbox of a tenant has used is forgotten after so long. */
export const TENANT_MEMORY_MS = 4000;

/** A sandbox of a tenant whose others, or earlier ones, compute much begins as they are: a tenant gets no larger part by losing sandboxes. */
export function inheritUse(begun: CoreUse, tenants: CoreUse | undefined): CoreUse {
  if (!tenants || begun.atMs - tenants.atMs > TENANT_MEMORY_MS) return begun;
  const { share, demand, heavy } = tenants;
  return { ...begun, share, demand, heavy };
}

/**
 * Adds a look. A sandbox is heavy whether or not others want the cores: the kernel gives it all that nobody else wants, and it yields at once when somebody does.
 */
export function nextUse(before: CoreUse, atMs: number, times: CoreTimes): CoreUse {
  const passedMs = atMs - before.atMs;
  if (passedMs <= 0) return before;
  const usedMs = times.usedMs - before.usedMs;
  // What is taken for a wait now is not taken for one again when the kernel counts it.
  const waitedMs = Math.max(before.waitedMs, times.waitedMs, times.ready ? before.waitedMs + passedMs - usedMs : 0);
  const used = part(usedMs, passedMs);
  const wanted = part(usedMs + waitedMs - before.waitedMs, passedMs);
  const share = forgetting(before.share, used, passedMs / SHARE_MEMORY_MS);
  const demand = forgetting(before.demand, wanted, passedMs / DEMAND_MEMORY_MS);
  const restless = share >= RESTLESS_SHARE && demand >= RESTLESS_DEMAND;
  const heavy = before.heavy ? share > LIGHT_SHARE || demand > LIGHT_DEMAND : share >= HEAVY_SHARE || restless;
  return { atMs, usedMs: times.usedMs, waitedMs, share, demand, heavy };
}

/** Threads of one sandbox may use several cores: one counts. */
const part = (usedMs: number, passedMs: number): number => Math.max(0, Math.min(1, usedMs / passedMs));

const forgetting = (before: number, now: number, memories: number): number =>
  now + (before - now) * Math.exp(-memories);

/** A sandbox whose share of the cores is not what it is to be. */
export interface Change<T> {
  readonly sandbox: T;
  readonly weight: CoreWeight;
  /** When it was last asked for; a kernel may refuse. */
  readonly triedAtMs: number;
}

/** Changes at one look. The kernel takes ten a second of users without rights. */
export const MOST_CHANGES = 4;

/** The changes to make now: first those that give back, then those not tried for longest. */
export function changesNow<T>(changes: readonly Change<T>[]): Change<T>[] {
  const order = (a: Change<T>, b: Change<T>) =>
    Number(a.weight !== 'usual') - Number(b.weight !== 'usual') || a.triedAtMs - b.triedAtMs;
  return [...changes].sort(order).slice(0, MOST_CHANGES);
}
