import { BlockList, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';

/** Time for which the addresses are kept, ms: they seldom change, and each read asks the kernel for all interfaces. */
const KEPT_MS = 5000;

/** Reads the network interfaces of this machine. */
export type ReadInterfaces = () => ReturnType<typeof networkInterfaces>;

/**
 * The addresses of this machine. Tenants may not reach them, not even the public ones: a firewall may protect the machine's services from
 * connections from outside, but not from connections that the machine itself makes.
 */
export class OwnAddresses {
  readonly #read: ReadInterfaces;
  #list = new BlockList();
  #readAtMs = Number.NEGATIVE_INFINITY;

  constructor(read: ReadInterfaces = networkInterfaces) {
    this.#read = read;
  }

  /** True for an IP address of one of the interfaces. */
  has(address: string): boolean {
    const nowMs = performance.now();
    if (nowMs - this.#readAtMs >= KEPT_MS) {
      this.#list = this.#addresses();
      this.#readAtMs = nowMs;
    }
    return this.#list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
  }

  #addresses(): BlockList {
    const list = new BlockList();
    for (const { address } of Object.values(this.#read()).flatMap((addresses) => addresses ?? []))
      list.addAddress(address, isIPv6(address) ? 'ipv6' : 'ipv4');
    return list;
  }
}
