import { IndexClient } from '#index-host/protocol/client.ts';
import { IndexError } from '#index-host/protocol/types.ts';
import type { IndexBytes } from '#scheduler/indexes/index-bytes.ts';
import { StoreQueues } from './ask.ts';

export interface IndexesOptions {
  /** Socket of the machine's index host; null without one. */
  readonly socket: string | null;
  /** Redis's records of the tenants' index bytes, and of the machine that has the indexes. */
  readonly sums: Pick<IndexBytes, 'room' | 'note' | 'owner'>;
  /** Name of this machine; null when no other machine shares its Redis. */
  readonly machine: string | null;
}

/** While more connections than this are open, the least recently used ones without calls are closed. */
const KEPT_CONNECTIONS = 64;
/** Longest time to read a tenant's bytes from the index host. */
const SETTLE_MS = 10_000;

interface Connection {
  readonly client: IndexClient;
  /** Calls under way, also those that have not sent their request yet. */
  calls: number;
}

/** The runtime's connections to the index host, one for each tenant, so that no tenant's call waits behind those of another. */
export class Indexes {
  /** Redis's records of the tenants' index bytes. */
  readonly sums: Pick<IndexBytes, 'room' | 'note'>;
  readonly #options: IndexesOptions;
  readonly #connections = new Map<string, Connection>();
  readonly #queues = new StoreQueues();
  /** Tenants whose bytes are being read. `again` is true when another write has failed meanwhile, so that the bytes must be read again. */
  readonly #settling = new Map<string, { again: boolean }>();
  /** Name of the machine that has the indexes; null before the first call, and on a machine that is alone. */
  #owner: string | null = null;

  constructor(options: IndexesOptions) {
    this.#options = options;
    this.sums = options.sums;
  }

  /** Makes a call once the tenant's queue has room. @throws IndexError `unsupported` when this machine has no indexes */
  async during<T>(tenant: string, bytes: number, call: (client: IndexClient) => Promise<T>): Promise<T> {
    const socket = await this.#socket();
    return this.#queues.during(tenant, bytes, async () => {
      const connection = this.#connections.get(tenant) ?? { client: new IndexClient(socket, tenant), calls: 0 };
      // Insert the connection again, so that it is the most recently used one.
      this.#connections.delete(tenant);
      this.#connections.set(tenant, connection);
      connection.calls++;
      try {
        return await call(connection.client);
      } finally {
        connection.calls--;
        this.#closeIdle();
      }
    });
  }

  /**
   * Reads the tenant's bytes from the index host and tells them to Redis. Called after a write that failed but may have taken effect. When the
   * index host cannot be asked, the tenant's next write tells the bytes.
   */
  async settle(tenant: string): Promise<void> {
    const running = this.#settling.get(tenant);
    if (running) {
      running.again = true;
      return;
    }
    const state = { again: true };
    this.#settling.set(tenant, state);
    try {
      while (state.again) {
        state.again = false;
        const options = { signal: AbortSignal.timeout(SETTLE_MS), deadlineMs: SETTLE_MS };
        await this.sums.note(tenant, await this.during(tenant, 0, (client) => client.sum(options)));
      }
    } catch {
      // The next write reports the sum.
    } finally {
      this.#settling.delete(tenant);
    }
  }

  close(): void {
    for (const { client } of this.#connections.values()) client.close();
    this.#connections.clear();
  }

  /**
   * The index host's socket, if this machine has the indexes. Indexes are files of one machine: a runtime of another machine must not make indexes
   * of the same names on its own. @throws IndexError
   */
  async #socket(): Promise<string> {
    const { socket, machine, sums } = this.#options;
    if (socket === null) throw new IndexError('unsupported', 'this runtime has no index host');
    if (machine !== null) this.#owner ??= await sums.owner(machine);
    if (machine === null || this.#owner === machine) return socket;
    const text = `the indexes are on the machine ${this.#owner}, and this invocation runs on ${machine}`;
    throw new IndexError('unsupported', text);
  }

  #closeIdle(): void {
    for (const [tenant, { client, calls }] of this.#connections) {
      if (this.#connections.size <= KEPT_CONNECTIONS) return;
      if (calls > 0) continue;
      this.#connections.delete(tenant);
      client.close();
    }
  }
}
