import { hash } from 'node:crypto';
import type { PlacementPolicy, RuntimeDescription, RuntimeGpuHost } from '../runtimes/types.ts';

/** The host that a key of the form `@host/id` names; null for other keys. No tenant, id or affinity begins with `@`, and no id has a slash. */
const hostNamedBy = (key: string): string | null => (key.startsWith('@') ? key.slice(1, key.lastIndexOf('/')) : null);

/**
 * The order in which the work of a placement key tries the GPU hosts. The first connected host serves the work, and admission counts the work's pages
 * on that host (`placed` in the scheduler's scripts computes the same order). When the key names a host, this host is first. A key has the same order
 * in every runtime and after every restart. When a host comes or goes, only the keys that it serves move (rendezvous hashing: Thaler and
 * Ravishankar, 1998).
 *
 * @param hosts names that stay the same over restarts
 * @returns indices of `hosts`, the preferred one first
 */
export function preference(key: string, hosts: readonly string[]): number[] {
  const namedHost = hostNamedBy(key);
  // `~` sorts above every hash: a hash consists of hexadecimal digits.
  const weight = (host: string): string => (host === namedHost ? '~' : hash('sha1', `${host}\0${key}`));
  return hosts
    .map((host, index) => ({ index, weight: weight(host) }))
    .sort((a, b) => {
      if (a.weight === b.weight) return a.index - b.index;
      return a.weight > b.weight ? -1 : 1;
    })
    .map(({ index }) => index);
}

/**
 * The placement key of an invocation. Invocations of one key share a GPU host. With placement by tenant, the key is the tenant. With placement by
 * invocation, the key is the one that admission chose for the root invocation (`chosenKey` of needs.lua), else the root's id.
 */
export function placementKey(
  placement: PlacementPolicy | undefined,
  { tenant }: { readonly tenant: string },
  root: { readonly id: string; readonly placement?: string | null | undefined },
): string {
  return placement === 'invocation' ? (root.placement ?? root.id) : tenant;
}

/** The placement key of an affinity (a text that a client chose). The same affinity of another tenant has another key. */
export function affinityKey(tenant: string, affinity: string): string {
  return hash('sha1', `${tenant}\0${affinity}`);
}

/** True while an operator has drained the GPU host: it takes no new invocations. */
export function isDrained({ drain }: Pick<RuntimeGpuHost, 'drain'>): boolean {
  return drain !== undefined && drain.until === undefined;
}

/** True when a GPU host has been connected since `at` and was not drained at `at`, so that it took invocations. All times are by one clock. */
export function wasOpen(host: Pick<RuntimeGpuHost, 'connected' | 'connectedAt' | 'drain'>, at: number): boolean {
  const { connected, connectedAt = 0, drain } = host;
  const wasDrained = drain !== undefined && drain.since <= at && at < (drain.until ?? Number.POSITIVE_INFINITY);
  return connected && connectedAt <= at && !wasDrained;
}

/** An invocation to locate. */
interface InvocationToLocate {
  readonly id: string;
  readonly tenant: string;
  /** Id of the root invocation of which this one is a child or later descendant; null when this invocation is the root. */
  readonly root: string | null;
  /** When the invocation began, milliseconds since the Unix epoch; null when it is not running. */
  readonly startedAt: number | null;
  /** Placement key of the root's job. */
  readonly placement?: string | null;
}

/**
 * Name of the GPU host that serves a running invocation: the first host, in the order of the invocation's key, that connected before the invocation
 * began and was not drained then. A host that reconnected later has lost the invocations of its earlier process. Null when there are fewer than two
 * hosts. When a host was drained twice while the invocation ran, only the last drain counts.
 */
export function servingHost(
  { gpuHosts = [], placement }: Pick<RuntimeDescription, 'gpuHosts' | 'placement'>,
  { id, tenant, root, startedAt, placement: rootKey }: InvocationToLocate,
): string | null {
  if (gpuHosts.length < 2 || startedAt === null) return null;
  const key = placementKey(placement, { tenant }, { id: root ?? id, placement: rootKey });
  const names = gpuHosts.map(({ name }) => name);
  const serving = preference(key, names).find((i) => {
    const host = gpuHosts[i];
    return host !== undefined && wasOpen(host, startedAt);
  });
  return serving === undefined ? null : (gpuHosts[serving]?.name ?? null);
}
