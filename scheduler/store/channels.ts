import type { Redis } from 'ioredis';
import { isConnectionError, StoreError } from './errors.ts';
import { DEFAULT_CALL_DEADLINE_MS, Store, type StoreOptions } from './store.ts';

/** Callbacks of a listener on a channel. */
export interface ChannelListener {
  message(payload: Buffer): void;
  /** The connection is lost; no message arrives until `resumed`. */
  lost?(): void;
  /** The subscription is active again after an interruption. Messages may have been missed, so read the stored data. */
  resumed(): void;
}

/**
 * Many listeners on one Redis connection in subscriber mode. The connection subscribes to a channel while it has listeners. After a
 * reconnection it subscribes again and calls `resumed`, because messages published in between are lost.
 */
export class Channels {
  readonly #redis: Redis;
  readonly #listeners = new Map<string, Set<ChannelListener>>();
  /** Functions that end the waits of `listen` when the connection is lost. */
  readonly #onceLost = new Set<() => void>();
  readonly #onMessage = (channel: Buffer, payload: Buffer) => {
    for (const listener of [...(this.#listeners.get(channel.toString()) ?? [])]) listener.message(payload);
  };

  /** @param redis a connection used for nothing else, since it enters subscriber mode. */
  constructor(redis: Redis) {
    this.#redis = redis;
    // After an outage, ioredis would by default also subscribe to channels whose last listener has stopped meanwhile.
    redis.options.autoResubscribe = false;
    redis.on('messageBuffer', this.#onMessage);
    redis.on('ready', this.#onReady);
    redis.on('close', this.#onClose);
  }

  /** Number of channels that have listeners. */
  get size(): number {
    return this.#listeners.size;
  }

  /**
   * Listens to a channel. Resolves once the subscription is active: the listener gets all messages published from then
   * on. When Redis is away or slow, the call resolves earlier, and `resumed` tells the listener when the subscription
   * is active.
   *
   * @returns the function that stops listening.
   * @throws StoreError when Redis refuses the subscription
   */
  async listen(channel: string, listener: ChannelListener): Promise<() => void> {
    let set = this.#listeners.get(channel);
    if (!set) {
      set = new Set();
      this.#listeners.set(channel, set);
    }
    set.add(listener);
    const stop = () => this.#remove(channel, listener);
    if (this.#redis.status === 'end') {
      stop();
      throw new StoreError('store-unavailable', 'The connection to Redis was closed.');
    }
    // A repeated subscribe is harmless, and its reply proves that the subscription is active.
    try {
      if (this.#redis.status === 'ready') await this.#settled(this.#redis.subscribe(channel), channel, listener);
      return stop;
    } catch (error) {
      stop();
      throw StoreError.from(error);
    }
  }

  /** Forgets every listener. The connection's owner closes the connection. */
  close(): void {
    this.#redis.off('messageBuffer', this.#onMessage);
    this.#redis.off('ready', this.#onReady);
    this.#redis.off('close', this.#onClose);
    this.#listeners.clear();
  }

  readonly #onReady = () => {
    const channels = [...this.#listeners.keys()];
    if (channels.length === 0) return;
    this.#redis.subscribe(...channels).then(
      () => {
        for (const channel of channels) {
          for (const listener of [...(this.#listeners.get(channel) ?? [])]) listener.resumed();
        }
      },
      // The connection was lost again; the next `ready` event subscribes.
      () => undefined,
    );
  };

  readonly #onClose = () => {
    for (const settle of [...this.#onceLost]) settle();
    for (const listeners of [...this.#listeners.values()]) for (const listener of [...listeners]) listener.lost?.();
  };

  #remove(channel: string, listener: ChannelListener): void {
    const set = this.#listeners.get(channel);
    if (!set?.delete(listener) || set.size > 0) return;
    this.#listeners.delete(channel);
    if (this.#redis.status === 'ready') this.#redis.unsubscribe(channel).catch(() => undefined);
  }

  /** Waits for the reply to a subscribe, for at most the time limit of a call, and only until the connection is lost. */
  async #settled(reply: Promise<unknown>, channel: string, listener: ChannelListener): Promise<void> {
    const settled = Promise.withResolvers<void>();
    const settle = () => settled.resolve();
    const stopWaiting = () => {
      settle();
      // `listen` returns before the subscription is active, so the listener must learn when it is.
      reply.then(
        () => this.#listeners.get(channel)?.has(listener) && listener.resumed(),
        () => undefined,
      );
    };
    const timer = setTimeout(stopWaiting, DEFAULT_CALL_DEADLINE_MS);
    this.#onceLost.add(settle);
    reply.then(settle, (error) => (isConnectionError(error) ? settle() : settled.reject(error)));
    try {
      await settled.promise;
    } finally {
      clearTimeout(timer);
      this.#onceLost.delete(settle);
    }
  }
}

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

/** A flag that one task waits for and others set. It remembers one `set` while no task waits. */
export class Wakeup {
  #isSet = false;
  #wake: (() => void) | undefined;

  set(): void {
    this.#isSet = true;
    this.#wake?.();
  }

  /** Waits until the flag is set (and clears it), the time is over, or the signal aborts. Resolves to true if the flag was set. */
  async wait(timeoutMs: number, signal?: AbortSignal): Promise<boolean> {
    if (!this.#isSet && !signal?.aborted) {
      let timer: NodeJS.Timeout | undefined;
      let stop: (() => void) | undefined;
      try {
        await new Promise<void>((resolve) => {
          stop = () => resolve();
          this.#wake = stop;
          timer = setTimeout(stop, timeoutMs);
          signal?.addEventListener('abort', stop, { once: true });
        });
      } finally {
        clearTimeout(timer);
        if (stop) signal?.removeEventListener('abort', stop);
        this.#wake = undefined;
      }
    }
    const wasSet = this.#isSet;
    this.#isSet = false;
    return wasSet;
  }
}
