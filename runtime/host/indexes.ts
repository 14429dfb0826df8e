import { IndexClient } from '#index-host/protocol/client.ts';
import { IndexError } from '#index-host/protocol/errors.ts';
import type { IndexBytes } from '#scheduler/indexes/index-bytes.ts';
import { StoreQueues } from './store-queues.ts';

export interface IndexesOptions {
  /** Socket of the machine's index host; null without one. */
  readonly socket: string | null;
  readonly sums: Pick<IndexBytes, 'room' | 'note' | 'owner'>;
  /** This machine among those that share a Redis; null when it is alone. */
  readonly machine: string | null;
}

/** Connections of tenants without calls that stay open. */
const MAX_IDLE = 64;

/** The runtime's connections to the index host, one for each tenant, so that no tenant's call waits behind those of another. */
export class Indexes {
  readonly sums: Pick<IndexBytes, 'room' | 'note'>;
  readonly #options: IndexesOptions;
  readonly #clients = new Map<string, IndexClient>();
  readonly #lines = new StoreQueues();
  #owner: string | null = null;

  constructor(options: IndexesOptions) {
    this.#options = options;
    this.sums = options.sums;
  }

  /** Makes a call once the tenant's line has room. @throws IndexError `unsupported` when this machine has no indexes */
  async during<T>(tenant: string, bytes: number, call: (client: IndexClient) => Promise<T>): Promise<T> {
    const socket = await this.#socket();
    return this.#lines.during(tenant, bytes, async () => {
      const client = this.#clients.get(tenant) ?? new IndexClient(socket, tenant);
      // Reinserting makes it the most recently used one.
      this.#clients.delete(tenant);
      this.#clients.set(tenant, client);
      try {
        return await call(client);
      } finally {
        this.#closeIdle();
      }
    });
  }

  close(): void {
    for (const client of this.#clients.values()) client.close();
    this.#clients.clear();
  }

  /** Indexes are files of one machine: a runtime of another one must not begin others of the same names. */
  async #socket(): Promise<string> {
    const { socket, machine, sums } = this.#options;
    if (socket === null) throw new IndexError('unsupported', 'this runtime has no index host');
    if (machine !== null) this.#owner ??= await sums.owner(machine);
    if (machine === null || this.#owner === machine) return socket;
    const text = `the indexes are on the machine ${this.#owner}, and this invocation runs on ${machine}`;
    throw new IndexError('unsupported', text);
  }

  #closeIdle(): void {
    for (const [tenant, client] of this.#clients) {
      if (this.#clients.size <= MAX_IDLE) return;
      if (client.pending > 0) continue;
      this.#clients.delete(tenant);
      client.close();
    }
  }
}
