import type { LookupAddress } from 'node:dns';
import { lookup, Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { hostMatches } from '../functions/grants.ts';
import { OwnAddresses, type ReadInterfaces } from './own-addresses.ts';
import { isPublicAddress } from './public.ts';

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
