import { hash } from 'node:crypto';

/**
 * A placement key that names the GPU host of an invocation. The id in the key spreads the work that this host cannot take: the work of models that
 * the host does not have, and all work once the host is lost. No tenant, id or affinity begins with `@`, and no id has a slash.
 */
const keyOf = (host: string, id: string): string => `@${host}/${id}`;

/** Draws two different indices below `count` by the hash of an id. `count` must be at least 2. */
function drawTwo(id: string, count: number): readonly [number, number] {
  const digits = hash('sha1', id);
  const first = Number.parseInt(digits.slice(0, 8), 16) % count;
  // An index among the others, which skip `first`.
  const second = Number.parseInt(digits.slice(8, 16), 16) % (count - 1);
  return [first, second < first ? second : second + 1];
}

/**
 * With placement by invocation: the key by which admission places a root invocation that becomes the head of its tenant's queue (the first waiting
 * invocation).
 * - While the hosts of its affinity's key have room, that key is chosen.
 * - Otherwise the key names the less crowded of two hosts that the id draws. The lesser of two random loads is close to the least of all
 *   (Mitzenmacher, 2001), and the cost of two does not grow with the number of hosts.
 * - When neither of the two has room, the key names the first one drawn. Pages do not tell which host will have room sooner, and all waiting heads
 *   would choose the same host.
 * - With fewer than two hosts, the id itself is the key.
 *
 * The scheduler's scripts implement the same rule (`placementOf`).
 *
 * @param hosts names of the hosts that have the model of which the head is expected to take the most pages
 * @param crowding crowding of the fullest host to which a key leads: the host's admitted pages, the head's included, as a fraction of all its
 *   pages; above 1 when the head does not fit
 */
export function chosenKey(
  { id, affinity }: { readonly id: string; readonly affinity?: string | undefined },
  hosts: readonly string[],
  crowding: (key: string) => number,
): string {
  if (affinity !== undefined && crowding(affinity) <= 1) return affinity;
  if (hosts.length < 2) return id;
  const [first, second] = drawTwo(id, hosts.length).map((at) => keyOf(hosts[at] as string, id)) as [string, string];
  const crowdingOfSecond = crowding(second);
  return crowdingOfSecond <= 1 && crowdingOfSecond < crowding(first) ? second : first;
}
