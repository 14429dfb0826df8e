import type { Redis } from 'ioredis';
import { Channels } from './channels.ts';
import { Store, type StoreOptions } from './store.ts';

/**
 * Separate connections for a runtime's lease and its cancels, so that neither waits behind the traffic of inferlets. They open on first
 * use; processes other than runtimes never use them.
 */
export class Vital {
  readonly #connect: () => Redis;
  readonly #options: StoreOptions;
  #store: Store | undefined;
  #isClosed = false;
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
    this.#isClosed = true;
    this.#channels?.channels.close();
    this.#channels?.connection.disconnect();
    this.#store?.redis.disconnect();
  }

  #open(): Redis {
    const connection = this.#connect();
    // The calls that need the connection report its errors.
    connection.on('error', () => undefined);
    // A call that begins after `close` fails at once, and opens no lasting connection.
    if (this.#isClosed) connection.disconnect();
    return connection;
  }
}
