import type { LookupAddress } from 'node:dns';
import { lookup, Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { hostMatches } from '#scheduler/functions/grants.ts';
import { Shares } from '#scheduler/policies/shares.ts';
import { isPublicAddress } from './addresses.ts';

/** Addresses of a host name. The signal aborts when nobody waits for them any more. */
export type Lookup = (hostname: string, signal: AbortSignal) => Promise<readonly LookupAddress[]>;

export interface HttpClientOptions {
  /** Hosts with private addresses that inferlets may reach when they are granted (`pie.toml`: `[http] private_hosts`). */
  readonly privateHosts?: readonly string[];
  /** Version of this platform, for `user-agent`. */
  readonly version: string;
  /** Resolves names; the system's resolver for private hosts and DNS for the others by default. */
  readonly lookup?: Lookup;
}

/** Requests under way of all inferlets of a runtime; tenants share them. */
const MAX_EXCHANGES = 4096;
const DNS_TIMEOUT_MS = 5000;
const DNS_TRIES = 2;

/** The address that was asked for is none that an inferlet may reach. */
export class RefusedAddress extends Error {
  override readonly name = 'RefusedAddress';
}

/** What requests of all inferlets of a runtime share: which addresses they may reach, and how many there are. */
export class HttpClient {
  readonly userAgent: string;
  readonly #privateHosts: readonly string[];
  readonly #lookup: Lookup | undefined;
  readonly #exchanges = new Shares(MAX_EXCHANGES);

  constructor({ privateHosts = [], version, lookup: own }: HttpClientOptions) {
    this.userAgent = `pie/${version}`;
    this.#privateHosts = privateHosts;
    this.#lookup = own;
  }

  /** Requests under way. */
  get exchanges(): number {
    return this.#exchanges.total;
  }

  /** Counts one request of a tenant more, unless there are too many. Whoever is let in leaves. */
  enter(tenant: string): boolean {
    return this.#exchanges.enter(tenant);
  }

  leave(tenant: string): void {
    this.#exchanges.leave(tenant);
  }

  /**
   * The addresses of a URL's host that may be connected to: those of the public internet, or all when the operator has named the host.
   *
   * @throws RefusedAddress when there are none, or what the resolver throws
   */
  async addresses(url: URL, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    const hostname = url.hostname.replace(/^\[|\]$/g, '');
    const trusted = this.#privateHosts.some((pattern) => hostMatches(pattern, url, 'any-port'));
    const family = isIP(hostname);
    const found = family !== 0 ? [{ address: hostname, family }] : await this.#resolve(hostname, trusted, signal);
    const allowed = trusted ? found : found.filter(({ address }) => isPublicAddress(address));
    if (allowed.length > 0) return allowed;
    throw new RefusedAddress(
      `${url.hostname} has no public address; the platform's operator can allow it (pie.toml: [http] private_hosts)`,
    );
  }

  #resolve(hostname: string, trusted: boolean, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    if (this.#lookup) return this.#lookup(hostname, signal);
    // The system's resolver knows the operator's own names, but takes a thread for as long as it waits: strangers' names go to DNS.
    return trusted ? lookup(hostname, { all: true }) : resolveByDns(hostname, signal);
  }
}

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
