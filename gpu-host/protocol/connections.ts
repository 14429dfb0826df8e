import { type ConnectOptions, GpuHostConnection } from './client.ts';
import { within } from './within.ts';

/** A GPU host to connect to. */
export interface GpuHostAddress extends Omit<ConnectOptions, 'deadlineMs' | 'onRefused'> {
  readonly name: string;
  /** A unix socket's path, or `host:port`. */
  readonly address: string;
  /** False when the host's machine has probably died: `ready` then does not wait for the host. True by default. */
  readonly alive?: boolean;
}

export interface GpuHostConnectionsOptions {
  /** Milliseconds for which an established connection stays open after the first `set` that does not name its host; 0 by default. */
  readonly keptMs?: number;
  /** Called with the reason when a host of another name, or one with no protocol version in common, answers at a host's address. */
  readonly onRefused?: (why: string) => void;
}

interface OpenHost {
  readonly address: string;
  readonly connection: GpuHostConnection;
  /** True when `ready` waits for the host. */
  isAwaited: boolean;
  /** Time of the first `set` that did not name the host, in milliseconds of the caller's clock; undefined while `set` names the host. */
  missingSinceMs: number | undefined;
}

/** A runtime's connections to all GPU hosts. The set of hosts may change at any time. */
export class GpuHostConnections {
  readonly #openHosts = new Map<string, OpenHost>();
  readonly #options: GpuHostConnectionsOptions;
  readonly #listeners = new Set<() => void>();
  #list: readonly GpuHostConnection[] = [];
  #isClosed = false;

  constructor(hosts: readonly GpuHostAddress[], options: GpuHostConnectionsOptions = {}) {
    this.#options = options;
    this.set(hosts);
  }

  /** The connections in the order of the hosts' names. */
  get list(): readonly GpuHostConnection[] {
    return this.#list;
  }

  /**
   * Sets the GPU hosts to connect to. Connects to new hosts, and again to living hosts that were refused (`onRefused`). Closes connections to hosts
   * that have a new address. A connection to a host that `hosts` leaves out closes after `keptMs`, because a registry may be empty for a moment; it
   * closes at once if it is not established. All other connections stay as they are.
   * @param nowMs time of a monotonic clock
   */
  set(hosts: readonly GpuHostAddress[], nowMs = performance.now()): void {
    if (this.#isClosed) return;
    const hostsByName = new Map(hosts.map((host) => [host.name, host]));
    const goneHosts: OpenHost[] = [];
    for (const [name, openHost] of this.#openHosts) {
      const host = hostsByName.get(name);
      openHost.missingSinceMs = host ? undefined : (openHost.missingSinceMs ?? nowMs);
      openHost.isAwaited = host?.alive !== false;
      if (this.#isGone(openHost, host, nowMs)) goneHosts.push(openHost);
      else if (openHost.isAwaited) openHost.connection.retry();
    }
    for (const { connection } of goneHosts) this.#openHosts.delete(connection.name);
    const addedHosts = [...hostsByName.values()].filter(({ name }) => !this.#openHosts.has(name));
    for (const host of addedHosts) this.#add(host);
    if (goneHosts.length > 0 || addedHosts.length > 0) this.#update(goneHosts);
  }

  /**
   * Waits for the first hello, and then up to `othersMs` for the other living hosts. A host that loads for longer, or does not start, does not
   * delay the others: it joins as soon as it says hello.
   * @throws Error when no host answered in time.
   */
  async ready({ deadlineMs = 10_000, othersMs = 10_000 } = {}): Promise<void> {
    if (!(await this.#until(deadlineMs, () => this.#list.some(({ connected }) => connected)))) {
      const addresses = [...this.#openHosts.values()].map(({ address }) => address).join(', ');
      if (addresses !== '') throw new Error(`no GPU host answered at ${addresses} within ${deadlineMs} ms`);
      throw new Error(`no GPU host was registered within ${deadlineMs} ms: start a machine with the role gpu-host`);
    }
    const openHosts = this.#openHosts;
    await this.#until(othersMs, () =>
      [...openHosts.values()].every(({ isAwaited, connection }) => connection.connected || !isAwaited),
    );
  }

  /** Calls `listener` when a host connects, is lost, comes or goes; returns a function that removes the listener. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#isClosed = true;
    this.#listeners.clear();
    for (const { connection } of this.#openHosts.values()) connection.close();
  }

  async #until(ms: number, isMet: () => boolean): Promise<boolean> {
    if (isMet()) return true;
    let stop: () => void = () => undefined;
    const whenMet = new Promise<void>((resolve) => {
      stop = this.onChange(() => isMet() && resolve());
    });
    try {
      return await within(ms, whenMet);
    } finally {
      stop();
    }
  }

  #isGone({ address, connection, missingSinceMs }: OpenHost, host: GpuHostAddress | undefined, nowMs: number): boolean {
    if (host) return host.address !== address;
    return !connection.connected || nowMs - (missingSinceMs ?? nowMs) >= (this.#options.keptMs ?? 0);
  }

  #add({ address, alive = true, ...options }: GpuHostAddress): void {
    const connection = GpuHostConnection.open(address, {
      ...options,
      onRefused: (why) => {
        openHost.isAwaited = false;
        this.#options.onRefused?.(why);
        this.#notifyListeners();
      },
    });
    const openHost: OpenHost = { address, connection, isAwaited: alive, missingSinceMs: undefined };
    this.#openHosts.set(options.name, openHost);
    connection.onReady(() => this.#notifyListeners());
    connection.onLost(() => {
      if (openHost.missingSinceMs === undefined) return this.#notifyListeners();
      this.#openHosts.delete(options.name);
      this.#update([openHost]);
    });
  }

  /** Call after hosts were added, or removed from the open ones. */
  #update(goneHosts: readonly OpenHost[]): void {
    this.#list = [...this.#openHosts.values()]
      .map(({ connection }) => connection)
      .sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
    // Close these connections last, so that work that ends with one of them already finds the new list.
    for (const { connection } of goneHosts) connection.close();
    this.#notifyListeners();
  }

  #notifyListeners(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
