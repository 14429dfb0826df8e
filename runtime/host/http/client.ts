import type { LookupAddress } from 'node:dns';
import { type Lookup, type PrivateHost, Reach } from '#scheduler/addresses/reach.ts';
import { Shares } from '#scheduler/policies/shares.ts';

export interface HttpClientOptions {
  /** Hosts with private addresses that inferlets with a grant may reach (`pie.toml`: `[http] private_hosts`). */
  readonly privateHosts?: readonly PrivateHost[];
  /** Hosts of images, for inferlets with the grant `imageHosts` (`pie.toml`: `[http] image_hosts`). */
  readonly imageHosts?: readonly string[] | undefined;
  /** Version of this platform, for `user-agent`. */
  readonly version: string;
  /** Resolves names. By default, the system's resolver resolves private hosts, and DNS the others. */
  readonly lookup?: Lookup;
}

/** Maximum requests under way of all inferlets of a runtime; tenants share them. */
const MAX_EXCHANGES = 4096;

/** The state that the requests of all inferlets of a runtime share: the reachable addresses, and the count of requests. */
export class HttpClient {
  readonly userAgent: string;
  readonly imageHosts: readonly string[];
  readonly #reach: Reach;
  readonly #exchanges = new Shares(MAX_EXCHANGES);

  constructor({ privateHosts = [], imageHosts = [], version, lookup }: HttpClientOptions) {
    this.userAgent = `pie/${version}`;
    this.imageHosts = imageHosts;
    this.#reach = new Reach({ privateHosts, lookup });
  }

  /** Number of requests under way. */
  get exchanges(): number {
    return this.#exchanges.total;
  }

  /** Counts a request of a tenant; false when there are too many. The caller must end a counted request with `leave`. */
  enter(tenant: string): boolean {
    return this.#exchanges.enter(tenant);
  }

  leave(tenant: string): void {
    this.#exchanges.leave(tenant);
  }

  /**
   * The addresses of a URL's host that a tenant may connect to: public addresses, or all addresses of a host that the operator has named.
   *
   * @throws RefusedAddress when there are none, or the resolver's error
   */
  addresses(url: URL, tenant: string, signal: AbortSignal): Promise<readonly LookupAddress[]> {
    return this.#reach.addresses(url, tenant, signal);
  }
}
