import { createHash } from 'node:crypto';
import type { RuntimeDescription, RuntimeGpuHost } from '../runtimes/types.ts';

/** By what an invocation is given one of several GPU hosts: all of a tenant's go to one, or each goes to its own. */
export type Spread = 'tenant' | 'invocation';

/**
 * The order in which somebody asks GPU hosts: the first that is there serves it, and admission counts its pages (`placed` of the scheduler's scripts
 * says the same). The same for the same key, in every runtime and after every restart; when a host comes or goes only the keys that it serves move
 * (rendezvous hashing: Thaler and Ravishankar, 1998).
 *
 * @param hosts names that stay the same over restarts
 * @returns indices of `hosts`, the preferred one first
 */
export function preference(key: string, hosts: readonly string[]): number[] {
  const weight = (host: string): string => createHash('sha1').update(`${host}\0${key}`).digest('hex');
  return hosts
    .map((host, index) => ({ index, weight: weight(host) }))
    .sort((a, b) => (a.weight < b.weight ? 1 : a.weight > b.weight ? -1 : a.index - b.index))
    .map(({ index }) => index);
}

/** Whose invocations go to one host together: a tenant's, or a root's with its children. */
export function placementKey(
  spread: Spread | undefined,
  { tenant }: { readonly tenant: string },
  root: { readonly id: string },
): string {
  return spread === 'invocation' ? root.id : tenant;
}

/** Whether a GPU host takes nothing new, as an operator has said. */
export function isDrained({ drain }: Pick<RuntimeGpuHost, 'drain'>): boolean {
  return drain !== undefined && drain.until === undefined;
}

/** Whether a GPU host that is there now was there, and took new invocations, at a time (milliseconds since the Unix epoch): who began then is served there. */
export function wasOpen(host: Pick<RuntimeGpuHost, 'connected' | 'connectedAt' | 'drain'>, at: number): boolean {
  const { connected, connectedAt = 0, drain } = host;
  const drained = drain !== undefined && drain.since <= at && at < (drain.until ?? Number.POSITIVE_INFINITY);
  return connected && connectedAt <= at && !drained;
}

/** Who is asked about: where it runs, and since when, milliseconds since the Unix epoch; null when it does not. */
export interface Served {
  readonly id: string;
  readonly tenant: string;
  /** The invocation that was admitted for it; null when that is itself. */
  readonly root: string | null;
  readonly startedAt: number | null;
}

/**
 * Name of the GPU host that serves an invocation which a runtime runs: the first in its order that has been there since before it began, and was not drained
 * then. What ran on one that came back later has ended with that one's earlier life. Null where there is nothing to choose. (Of a host that was drained twice
 * while one invocation ran, the last time counts.)
 */
export function servingHost(
  { gpuHosts = [], spread }: Pick<RuntimeDescription, 'gpuHosts' | 'spread'>,
  { id, tenant, root, startedAt }: Served,
): string | null {
  if (gpuHosts.length < 2 || startedAt === null) return null;
  const key = placementKey(spread, { tenant }, { id: root ?? id });
  const names = gpuHosts.map((_, i) => String(i));
  const serving = preference(key, names).find((i) => {
    const host = gpuHosts[i];
    return host !== undefined && wasOpen(host, startedAt);
  });
  return serving === undefined ? null : (gpuHosts[serving]?.name ?? null);
}
