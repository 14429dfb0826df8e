import { isIPv6 } from 'node:net';

/** Part of the bound that the connections of one address may take before they give way ahead of older ones of other addresses. */
const ADDRESS_SHARE = 1 / 16;

/**
 * Connections whose peers have proven nothing: no key, no certificate. Every peer that reaches a port can open them, so they are bounded, and the
 * bound refuses no newcomer: the newcomer stays, and the oldest connection gives way. A peer that proves itself needs a moment, and is therefore young.
 *
 * While an address has more than a sixteenth of the bound, the oldest connection of the address with most of them gives way first: a flood from one
 * address ends its own connections. Below the bound, one address may have all connections, since a proxy's clients have the proxy's address.
 *
 * A policy without I/O: the caller closes the connections that `add` returns.
 */
export class UnprovenConnections<T> {
  /** In order of age, oldest first. */
  readonly #addressOf = new Map<T, string>();
  /** In order of age for each address. */
  readonly #byAddress = new Map<string, Set<T>>();
  /** Addresses with more than `#addressShare` connections: fewer than 16 while the bound holds. */
  readonly #crowded = new Set<string>();
  readonly #addressShare: number;

  /** @param max connections that the port may have, of which the caller may subtract others (see `add`) */
  constructor(max: number) {
    this.#addressShare = Math.max(1, Math.floor(max * ADDRESS_SHARE));
  }

  get count(): number {
    return this.#addressOf.size;
  }

  /**
   * Adds a connection, as the youngest one.
   *
   * @param remoteAddress IP address of the peer
   * @param room maximum number of connections here
   * @returns the connections beyond `room`, which are removed here and which the caller closes; never the new one
   */
  add(connection: T, remoteAddress: string, room: number): T[] {
    const address = networkOf(remoteAddress);
    const neighbours = this.#byAddress.get(address) ?? new Set();
    this.#byAddress.set(address, neighbours);
    this.#addressOf.set(connection, address);
    neighbours.add(connection);
    if (neighbours.size > this.#addressShare) this.#crowded.add(address);
    const dropped: T[] = [];
    while (this.count > Math.max(1, room)) {
      const oldest = this.#next(connection);
      if (oldest === undefined) break;
      this.remove(oldest);
      dropped.push(oldest);
    }
    return dropped;
  }

  /** Removes a connection that is closed, or whose peer has proven itself; nothing happens when it is not here. */
  remove(connection: T): void {
    const address = this.#addressOf.get(connection);
    if (address === undefined) return;
    this.#addressOf.delete(connection);
    const neighbours = this.#byAddress.get(address);
    neighbours?.delete(connection);
    const left = neighbours?.size ?? 0;
    if (left === 0) this.#byAddress.delete(address);
    if (left <= this.#addressShare) this.#crowded.delete(address);
  }

  /** The connection that gives way next, other than `newcomer`. */
  #next(newcomer: T): T | undefined {
    let crowd: ReadonlySet<T> | undefined;
    for (const address of this.#crowded) {
      const neighbours = this.#byAddress.get(address);
      if (neighbours && neighbours.size > (crowd?.size ?? 0)) crowd = neighbours;
    }
    // A crowd has two or more connections, and the newcomer is the youngest of all.
    const [oldest] = crowd ?? this.#addressOf.keys();
    return oldest === newcomer ? undefined : oldest;
  }
}

/** Leading groups of an IPv6 address that name a network; one host may have every address of its network (RFC 7421). */
const NETWORK_GROUPS = 4;
const GROUPS = 8;

/** What counts as one address: an IPv4 address, also when IPv6 carries it, or the /64 network of an IPv6 address. */
export function networkOf(address: string): string {
  const [mapped] = /\d+\.\d+\.\d+\.\d+$/.exec(address) ?? [];
  if (mapped !== undefined) return mapped;
  if (!isIPv6(address)) return address;
  const [head = '', tail] = address.replace(/%.*$/, '').split('::', 2);
  const leading = head === '' ? [] : head.split(':');
  const trailing = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: Math.max(0, GROUPS - leading.length - trailing.length) }, () => '0');
  return [...leading, ...zeros, ...trailing]
    .slice(0, NETWORK_GROUPS)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':');
}
