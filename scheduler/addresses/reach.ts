import type { LookupAddress } from 'node:dns';
import { lookup, Resolver } from 'node:dns/promises';
import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { hostMatches } from '../functions/grants.ts';

/** Resolves the addresses of a host name. The signal aborts when the caller no longer waits. */
export type Lookup = (hostname: string, signal: AbortSignal) => Promise<readonly LookupAddress[]>;

const DNS_TIMEOUT_MS = 5000;
const DNS_TRIES = 2;
/** DNS errors for a name that does not exist or has no address of the family. After any other error, the name may still have an address. */
const NO_ADDRESS: readonly unknown[] = ['ENODATA', 'ENOTFOUND'];

/** A tenant may not reach this address. */
export class RefusedAddress extends Error {
  override readonly name = 'RefusedAddress';
}

/** A host that may be reached although its addresses are private, or those of this machine. */
export interface PrivateHost {
  /** `tools.internal` (any port), `tools.internal:8080`, `*.internal`, `[::1]:8080`. */
  readonly host: string;
  /** The only tenant that may reach the host; absent when every tenant may. */
  readonly tenant?: string | undefined;
}

export interface ReachOptions {
  /** Private hosts from `pie.toml`. */
  readonly privateHosts?: readonly PrivateHost[];
  /** The key of `pie.toml` that lists `privateHosts`, for error messages. */
  readonly option?: string;
  /** Resolves names. The default is the system's resolver for private hosts and DNS for all others. */
  readonly lookup?: Lookup | undefined;
  /** Reads this machine's interfaces; the system's call by default. */
  readonly interfaces?: ReadInterfaces | undefined;
}

/**
 * Decides which addresses the platform connects to for a tenant's URL: public ones of other machines, and private hosts that the operator
 * allows.
 */
export class Reach {
  readonly #privateHosts: readonly PrivateHost[];
  readonly #option: string;
  readonly #lookup: Lookup | undefined;
  readonly #ownAddresses: OwnAddresses;

  constructor({ privateHosts = [], option = '[http] private_hosts', lookup: resolve, interfaces }: ReachOptions = {}) {
    this.#privateHosts = privateHosts;
    this.#option = option;
    this.#lookup = resolve;
    this.#ownAddresses = new OwnAddresses(interfaces);
  }

  /** True when the operator allows a tenant the host of a URL. */
  trusts(url: URL, tenant: string): boolean {
    // An entry without a tenant holds for every tenant.
    return this.#privateHosts.some(
      (privateHost) => (privateHost.tenant ?? tenant) === tenant && hostMatches(privateHost.host, url, 'any-port'),
    );
  }

  /** True when a URL contains an address that may not be reached; a host name is checked only after it is resolved. */
  refuses(url: URL, tenant: string): boolean {
    const hostname = bareHostname(url);
    return isIP(hostname) !== 0 && !this.trusts(url, tenant) && !this.#isOutside(hostname);
  }

  /**
   * The allowed addresses of a URL's host. Connect to these addresses and do not resolve the name again: a second reply may differ.
   *
   * @throws RefusedAddress when none is allowed, or the resolver's error
   */
  async addresses(url: URL, tenant: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    const hostname = bareHostname(url);
    const isTrusted = this.trusts(url, tenant);
    const family = isIP(hostname);
    const foundAddresses =
      family !== 0 ? [{ address: hostname, family }] : await this.#resolve(hostname, isTrusted, signal);
    const allowedAddresses = isTrusted
      ? foundAddresses
      : foundAddresses.filter(({ address }) => this.#isOutside(address));
    if (allowedAddresses.length > 0) return allowedAddresses;
    throw new RefusedAddress(
      `${url.hostname} has no public address outside this machine; the platform's operator can allow it (pie.toml: ${this.#option})`,
    );
  }

  #isOutside(address: string): boolean {
    return isPublicAddress(address) && !this.#ownAddresses.has(address);
  }

  #resolve(hostname: string, isTrusted: boolean, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    if (this.#lookup) return this.#lookup(hostname, signal);
    // The system's resolver knows the operator's own names, but blocks a thread while it waits. Tenants' names therefore go to DNS.
    return isTrusted ? lookup(hostname, { all: true }) : resolveByDns(hostname, signal);
  }
}

/** The host of a URL, an IPv6 address without its brackets. */
const bareHostname = (url: URL): string => url.hostname.replace(/^\[|\]$/g, '');

async function resolveByDns(hostname: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
  signal.throwIfAborted();
  const resolver = new Resolver({ timeout: DNS_TIMEOUT_MS, tries: DNS_TRIES });
  const cancel = () => resolver.cancel();
  signal.addEventListener('abort', cancel, { once: true });
  try {
    const [four, six] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]);
    const foundAddresses = [
      ...(four.status === 'fulfilled' ? four.value.map((address) => ({ address, family: 4 })) : []),
      ...(six.status === 'fulfilled' ? six.value.map((address) => ({ address, family: 6 })) : []),
    ];
    const errors = [four, six].flatMap((lookup) => (lookup.status === 'rejected' ? [lookup.reason] : []));
    // Prefer an error after which the name may still have an address.
    if (foundAddresses.length === 0 && errors.length > 0)
      throw errors.find(({ code }) => !NO_ADDRESS.includes(code)) ?? errors[0];
    return foundAddresses;
  } finally {
    signal.removeEventListener('abort', cancel);
  }
}

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

/**
 * Address ranges outside the public internet (RFC 6890 and the IANA registries): "this network" (`0.0.0.0`), private networks, carrier-grade NAT,
 * loopback, link-local addresses (cloud providers serve credentials there), benchmarks, documentation, multicast and reserved addresses.
 */
const NOT_PUBLIC_IPV4: readonly (readonly [network: string, prefix: number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  // Azure serves the settings and keys of each of its virtual machines at this address. No registry lists the address as reserved.
  ['168.63.129.16', 32],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
];

/** Only global unicast IPv6 is public, except documentation and ranges that embed an IPv4 address (Teredo, 6to4). */
const PUBLIC_IPV6: readonly [network: string, prefix: number] = ['2000::', 3];
const NOT_PUBLIC_IPV6: readonly (readonly [network: string, prefix: number])[] = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
];

const notPublic = new BlockList();
for (const [network, prefix] of NOT_PUBLIC_IPV4) notPublic.addSubnet(network, prefix, 'ipv4');
for (const [network, prefix] of NOT_PUBLIC_IPV6) notPublic.addSubnet(network, prefix, 'ipv6');
const globalUnicast = new BlockList();
globalUnicast.addSubnet(...PUBLIC_IPV6, 'ipv6');

/** True for a public IP address; false for any other text. IPv4 addresses written as IPv6 are never public. */
export function isPublicAddress(address: string): boolean {
  if (isIPv4(address)) return !notPublic.check(address, 'ipv4');
  return isIPv6(address) && globalUnicast.check(address, 'ipv6') && !notPublic.check(address, 'ipv6');
}
