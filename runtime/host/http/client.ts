import type { LookupAddress } from 'node:dns';
import { type Lookup, type PrivateHost, Reach } from '#scheduler/addresses/reach.ts';
import { Shares } from '#scheduler/policies/shares.ts';

export interface HttpClientOptions {
  /** Hosts with private addresses that inferlets may reach when they are granted (`pie.toml`: `[http] private_hosts`). */
  readonly privateHosts?: readonly PrivateHost[];
  /** Version of this platform, for `user-agent`. */
  readonly version: string;
  /** Resolves names; the system's resolver for private hosts and DNS for the others by default. */
  readonly lookup?: Lookup;
}

/** Requests under way of all inferlets of a runtime; tenants share them. */
const MAX_EXCHANGES = 4096;

/** What requests of all inferlets of a runtime share: which addresses they may reach, and how many there are. */
export class HttpClient {
  readonly userAgent: string;
  readonly #reach: Reach;
  readonly #exchanges = new Shares(MAX_EXCHANGES);

  constructor({ privateHosts = [], version, lookup }: HttpClientOptions) {
    this.userAgent = `pie/${version}`;
    this.#reach = new Reach({ privateHosts, lookup });
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
   * The addresses of a URL's host that may be connected to for a tenant: those of the public internet, or all when the operator has named the host.
   *
   * @throws RefusedAddress when there are none, or what the resolver throws
   */
  addresses(url: URL, tenant: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    return this.#reach.addresses(url, tenant, signal);
  }
}
