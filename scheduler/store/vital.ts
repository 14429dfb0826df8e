import type { Redis } from 'ioredis';
import { Channels } from './channels.ts';
import { Store, type StoreOptions } from './store.ts';

/**
 * Connections for what a runtime lives by, its lease and the cancels of what it runs: neither waits behind what inferlets send and hear. They
 * are opened with the first use, which other processes never make.
 */
export class Vital {
  readonly #connect: () => Redis;
  readonly #options: StoreOptions;
  #store: Store | undefined;
  #closed = false;
  #channels: { readonly channels: Channels; readonly connection: Redis } | undefined;

  constructor(connect: () => Redis, options: StoreOptions) {
    this.#connect = connect;
    this.#options = options;
  }

  get store(): Store {
    this.#store ??= new Store(this.#open(), this.#options);
    return this.#store;
  }

  get channels(): Channels {
    if (!this.#channels) {
      const connection = this.#open();
      this.#channels = { connection, channels: new Channels(connection) };
    }
    return this.#channels.channels;
  }

  close(): void {
    this.#closed = true;
    this.#channels?.channels.close();
    this.#channels?.connection.disconnect();
    this.#store?.redis.disconnect();
  }

  #open(): Redis {
    const connection = this.#connect();
    // What goes wrong with a connection is reported by the calls that need it.
    connection.on('error', () => undefined);
    if (this.#closed) connection.disconnect();
    return connection;
  }
}
