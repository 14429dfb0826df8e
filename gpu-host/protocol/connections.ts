import { type ConnectOptions, GpuHostConnection } from './client.ts';
import { within } from './within.ts';

/** A GPU host to connect to. */
export interface GpuHostAddress extends Omit<ConnectOptions, 'deadlineMs'> {
  readonly name: string;
  /** A unix socket's path, or `host:port`. */
  readonly address: string;
}

/** A runtime's connections to all GPU hosts. The set of hosts may change at any time. */
export class GpuHostConnections {
  readonly #open = new Map<string, { readonly address: string; readonly connection: GpuHostConnection }>();
  readonly #listeners = new Set<() => void>();
  #list: readonly GpuHostConnection[] = [];
  #isClosed = false;

  constructor(hosts: readonly GpuHostAddress[]) {
    this.set(hosts);
  }

  /** The connections in the order of the hosts' names. */
  get list(): readonly GpuHostConnection[] {
    return this.#list;
  }

  /** Connects to new hosts, and closes connections to hosts that are gone or have another address. Others stay as they are. */
  set(hosts: readonly GpuHostAddress[]): void {
    if (this.#isClosed) return;
    const wanted = new Map(hosts.map((host) => [host.name, host]));
    const gone = [...this.#open].filter(([name, { address }]) => wanted.get(name)?.address !== address);
    for (const [name] of gone) this.#open.delete(name);
    const added = [...wanted.values()].filter(({ name }) => !this.#open.has(name));
    for (const { address, ...options } of added) {
      const connection = GpuHostConnection.open(address, options);
      connection.onReady(() => this.#changed());
      connection.onLost(() => this.#changed());
      this.#open.set(options.name, { address, connection });
    }
    if (gone.length === 0 && added.length === 0) return;
    this.#list = [...this.#open.values()]
      .map(({ connection }) => connection)
      .sort((a, b) => a.name.localeCompare(b.name, 'en', { numeric: true }));
    // Close last: what ends with a connection finds the others.
    for (const [, { connection }] of gone) connection.close();
    this.#changed();
  }

  /**
   * Waits for the first hello, and then up to `othersMs` for the others: a host that loads for longer, or does not come up, does not delay
   * the others. It joins as soon as it says hello.
   * @throws Error when no host answered in time.
   */
  async ready({ deadlineMs = 10_000, othersMs = 10_000 } = {}): Promise<void> {
    if (!(await this.#until(deadlineMs, () => this.#list.some(({ connected }) => connected)))) {
      const where = [...this.#open.values()].map(({ address }) => address).join(', ');
      if (where !== '') throw new Error(`no GPU host answered at ${where} within ${deadlineMs} ms`);
      throw new Error(`no GPU host was registered within ${deadlineMs} ms: start a machine with the role gpu-host`);
    }
    await this.#until(othersMs, () => this.#list.every(({ connected }) => connected));
  }

  /** Calls `listener` when a host connects, is lost, comes or goes; returns a function that removes the listener. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#isClosed = true;
    this.#listeners.clear();
    for (const { connection } of this.#open.values()) connection.close();
  }

  async #until(ms: number, holds: () => boolean): Promise<boolean> {
    if (holds()) return true;
    let stop: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      stop = this.onChange(() => holds() && resolve());
    });
    try {
      return await within(ms, held);
    } finally {
      stop();
    }
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
