import type { LookupAddress } from 'node:dns';
import { lookup, Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { hostMatches } from '../functions/grants.ts';
import { isPublicAddress } from './public.ts';

/** Addresses of a host name. The signal aborts when nobody waits for them any more. */
export type Lookup = (hostname: string, signal: AbortSignal) => Promise<readonly LookupAddress[]>;

const DNS_TIMEOUT_MS = 5000;
const DNS_TRIES = 2;

/** The address that was asked for is none that may be reached for a tenant. */
export class RefusedAddress extends Error {
  override readonly name = 'RefusedAddress';
}

/** A host with private addresses that may be reached all the same. */
export interface PrivateHost {
  /** `tools.internal` (any port), `tools.internal:8080`, `*.internal`, `[::1]:8080`. */
  readonly host: string;
  /** The only tenant that may reach it; any may without. */
  readonly tenant?: string | undefined;
}

export interface ReachOptions {
  /** What the operator has named (`pie.toml`). */
  readonly privateHosts?: readonly PrivateHost[];
  /** The key of `pie.toml` that names them, for errors. */
  readonly option?: string;
  /** Resolves names; the system's resolver for private hosts and DNS for the others by default. */
  readonly lookup?: Lookup | undefined;
}

/** Which addresses the platform connects to when a tenant names the host: those of the public internet, and hosts that the operator has named. */
export class Reach {
  readonly #privateHosts: readonly PrivateHost[];
  readonly #option: string;
  readonly #lookup: Lookup | undefined;

  constructor({ privateHosts = [], option = '[http] private_hosts', lookup: own }: ReachOptions = {}) {
    this.#privateHosts = privateHosts;
    this.#option = option;
    this.#lookup = own;
  }

  /** Whether the operator has named the host of a URL for a tenant. */
  trusts(url: URL, tenant: string): boolean {
    return this.#privateHosts.some(
      (named) => (named.tenant ?? tenant) === tenant && hostMatches(named.host, url, 'any-port'),
    );
  }

  /** Whether a URL names its host by an address that may not be reached; a name tells nothing before it is resolved. */
  refuses(url: URL, tenant: string): boolean {
    const hostname = bare(url);
    return isIP(hostname) !== 0 && !this.trusts(url, tenant) && !isPublicAddress(hostname);
  }

  /**
   * The addresses of a URL's host that may be connected to. Connect to these and ask no resolver again: another answer may be another address.
   *
   * @throws RefusedAddress when there are none, or what the resolver throws
   */
  async addresses(url: URL, tenant: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    const hostname = bare(url);
    const trusted = this.trusts(url, tenant);
    const family = isIP(hostname);
    const found = family !== 0 ? [{ address: hostname, family }] : await this.#resolve(hostname, trusted, signal);
    const allowed = trusted ? found : found.filter(({ address }) => isPublicAddress(address));
    if (allowed.length > 0) return allowed;
    throw new RefusedAddress(
      `${url.hostname} has no public address; the platform's operator can allow it (pie.toml: ${this.#option})`,
    );
  }

  #resolve(hostname: string, trusted: boolean, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    if (this.#lookup) return this.#lookup(hostname, signal);
    // The system's resolver knows the operator's own names, but takes a thread for as long as it waits: strangers' names go to DNS.
    return trusted ? lookup(hostname, { all: true }) : resolveByDns(hostname, signal);
  }
}

/** An IPv6 address without its brackets. */
const bare = (url: URL): string => url.hostname.replace(/^\[|\]$/g, '');

async function resolveByDns(hostname: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
  const resolver = new Resolver({ timeout: DNS_TIMEOUT_MS, tries: DNS_TRIES });
  const cancel = () => resolver.cancel();
  signal.addEventListener('abort', cancel, { once: true });
  try {
    const [four, six] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]);
    const found = [
      ...(four.status === 'fulfilled' ? four.value.map((address) => ({ address, family: 4 })) : []),
      ...(six.status === 'fulfilled' ? six.value.map((address) => ({ address, family: 6 })) : []),
    ];
    if (found.length === 0 && four.status === 'rejected') throw four.reason;
    return found;
  } finally {
    signal.removeEventListener('abort', cancel);
  }
}
