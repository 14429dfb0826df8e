import { deadline } from '#scheduler/links/heartbeat.ts';
import type { Versions } from '#scheduler/links/versions.ts';
import { Link, type LinkOptions } from './link.ts';
import { LONGEST_OPENING_MS } from './wire.ts';

/** Interval of the sweeps, in milliseconds. A sweep closes each link that has had no inferlet since the sweep before. */
const SWEEP_MS = 15_000;

export interface TenantLinkOptions extends Pick<LinkOptions, 'security' | 'owner'> {
  readonly sweepMs?: number;
  /** Longest wait for the host's hello on a link, in milliseconds. */
  readonly helloMs?: number;
}

/**
 * The sockets that carry the calls of inferlets to one GPU host process. Each tenant has its own socket, so that a flood of calls from one tenant
 * does not delay the calls of another.
 */
export class TenantLinks {
  readonly #address: string;
  readonly #hostId: string;
  readonly #versions: Versions;
  readonly #linkOptions: LinkOptions;
  readonly #helloMs: number;
  readonly #links = new Map<string, Link>();
  /** Links that had no inferlet at the last sweep and got none since. */
  readonly #idle = new Set<Link>();
  readonly #sweeper: NodeJS.Timeout;

  /**
   * @param hostId the host process that must answer: another process has none of the inferlets, and perhaps other models
   * @param version the version of the frames, on which this side and the host have agreed
   */
  constructor(address: string, hostId: string, version: number, options: TenantLinkOptions = {}) {
    const { sweepMs = SWEEP_MS, helloMs = LONGEST_OPENING_MS, ...linkOptions } = options;
    this.#address = address;
    this.#hostId = hostId;
    this.#versions = { oldest: version, newest: version };
    this.#linkOptions = linkOptions;
    this.#helloMs = helloMs;
    this.#sweeper = setInterval(() => this.#sweep(), sweepMs).unref();
  }

  /** True while the host has calls to answer. */
  get isBusy(): boolean {
    for (const { pending } of this.#links.values()) if (pending.size > 0) return true;
    return false;
  }

  /** The tenant's link, opened when there is none. Calls may be written to it at once: they leave when the host can be reached. */
  of(tenant: string): Link {
    const link = this.#links.get(tenant) ?? this.#open(tenant);
    this.#idle.delete(link);
    return link;
  }

  /** Ends all links: their pending calls are answered `unavailable` with the cause. */
  close(cause: string): void {
    clearInterval(this.#sweeper);
    for (const link of [...this.#links.values()]) link.close(cause);
  }

  #open(tenant: string): Link {
    const link = new Link(
      this.#address,
      {
        onHello: ({ hostId }) => {
          endHelloWait();
          if (hostId !== this.#hostId) link.close('the GPU host was restarted');
        },
        onStats: () => undefined,
        onLost: () => {
          endHelloWait();
          this.#idle.delete(link);
          if (this.#links.get(tenant) === link) this.#links.delete(tenant);
        },
      },
      this.#versions,
      this.#linkOptions,
    );
    const endHelloWait = deadline(this.#helloMs, () =>
      link.close(`the GPU host did not answer within ${this.#helloMs} ms`),
    );
    this.#links.set(tenant, link);
    return link;
  }

  #sweep(): void {
    for (const link of this.#idle) if (link.inferlets.size === 0) link.close('no inferlet of the tenant is open');
    this.#idle.clear();
    for (const link of this.#links.values()) if (link.inferlets.size === 0) this.#idle.add(link);
  }
}
