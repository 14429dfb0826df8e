import { hash } from 'node:crypto';
import type { PlacementPolicy, RuntimeDescription, RuntimeGpuHost } from '../runtimes/types.ts';

/**
 * The placement key of an invocation that names a GPU host. The id in the key spreads the work that this host cannot take: the work of models that
 * the host does not have, and all work once the host is lost. No tenant, id or affinity begins with `@`, and no id has a slash.
 */
const keyOf = (host: string, id: string): string => `@${host}/${id}`;

/** The host that a key names; null for other keys. */
const hostNamedBy = (key: string): string | null => (key.startsWith('@') ? key.slice(1, key.lastIndexOf('/')) : null);

/**
 * The order in which a key's work tries the GPU hosts. The first connected host serves the work, and admission counts the pages there (`placed`
 * in the scheduler's scripts computes the same order). A key that names a host has it first. Any key has the same order in every runtime and
 * after every restart. When a host comes or goes, only the keys that it serves move (rendezvous hashing: Thaler and Ravishankar, 1998).
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
    .sort((a, b) => (a.weight < b.weight ? 1 : a.weight > b.weight ? -1 : a.index - b.index))
    .map(({ index }) => index);
}

/**
 * The key whose invocations share a host: a tenant; or a root invocation with its children, or all those that admission placed by one
 * affinity.
 */
export function placementKey(
  placement: PlacementPolicy | undefined,
  { tenant }: { readonly tenant: string },
  root: { readonly id: string; readonly placement?: string | null | undefined },
): string {
  return placement === 'invocation' ? (root.placement ?? root.id) : tenant;
}

/** The placement key of an affinity, which a client chose. The same affinity of another tenant has another key. */
export function affinityKey(tenant: string, affinity: string): string {
  return hash('sha1', `${tenant}\0${affinity}`);
}

/** Draws two different indices of a list of `count` hosts by the hash of an id. `count` must be at least 2. */
function drawTwo(id: string, count: number): readonly [number, number] {
  const digits = hash('sha1', id);
  const first = Number.parseInt(digits.slice(0, 8), 16) % count;
  const second = Number.parseInt(digits.slice(8, 16), 16) % (count - 1);
  return [first, second < first ? second : second + 1];
}

/**
 * With placement by invocation: the key by which admission places a root invocation that becomes the head of its tenant's queue. An affinity
 * counts while the hosts of its key have room. Otherwise the key names the less crowded of two hosts that the id draws: the lesser of two
 * random loads is close to the least of all (Mitzenmacher, 2001), at a cost that does not grow with the hosts. Where neither has room, the key
 * names the first: pages do not tell which host has room sooner, and all waiting heads would choose the same one. With fewer than two
 * hosts, the id itself is the key. The scheduler's scripts implement the same rule (`placementOf`).
 *
 * @param hosts names of the hosts that have the model of which the head is expected to take the most pages
 * @param crowding of the fullest host that a key leads to: its admitted pages, the head's included, as a fraction of
 *   all its pages; above 1 when the head does not fit
 */
export function chosenKey(
  { id, affinity }: { readonly id: string; readonly affinity?: string | undefined },
  hosts: readonly string[],
  crowding: (key: string) => number,
): string {
  if (affinity !== undefined && crowding(affinity) <= 1) return affinity;
  if (hosts.length < 2) return id;
  const [first, second] = drawTwo(id, hosts.length).map((at) => keyOf(hosts[at] as string, id)) as [string, string];
  const other = crowding(second);
  return other <= 1 && other < crowding(first) ? second : first;
}

/** True while an operator has drained the GPU host: it takes no new invocations. */
export function isDrained({ drain }: Pick<RuntimeGpuHost, 'drain'>): boolean {
  return drain !== undefined && drain.until === undefined;
}

/** True when a GPU host has been connected since `at` and was not drained then: invocations begun then run there. All times are by one clock. */
export function wasOpen(host: Pick<RuntimeGpuHost, 'connected' | 'connectedAt' | 'drain'>, at: number): boolean {
  const { connected, connectedAt = 0, drain } = host;
  const drained = drain !== undefined && drain.since <= at && at < (drain.until ?? Number.POSITIVE_INFINITY);
  return connected && connectedAt <= at && !drained;
}

/** An invocation to locate. */
export interface InvocationToLocate {
  readonly id: string;
  readonly tenant: string;
  /** The admitted invocation at the root of its tree; null when it is the root itself. */
  readonly root: string | null;
  /** When the invocation began, milliseconds since the Unix epoch; null when it is not running. */
  readonly startedAt: number | null;
  /** Placement key of the root's job. */
  readonly placement?: string | null;
}

/**
 * Name of the GPU host that serves a running invocation: the first host in its order that connected before the invocation began and was not
 * drained then. A host that reconnected later has lost the invocations of its earlier process. Null with fewer than two hosts. When a host
 * was drained twice while one invocation ran, only the last drain counts.
 */
export function servingHost(
  { gpuHosts = [], spread: placement }: Pick<RuntimeDescription, 'gpuHosts' | 'spread'>,
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
