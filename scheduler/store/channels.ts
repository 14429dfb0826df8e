import type { Redis } from 'ioredis';
import { StoreError } from './errors.ts';
import { DEFAULT_CALL_DEADLINE_MS } from './store.ts';

/** What a listener of a channel is told. */
export interface ChannelListener {
  message(payload: Buffer): void;
  /** The connection is lost; nothing arrives until `resumed`. */
  lost?(): void;
  /** The subscription was interrupted and holds again: messages may have been missed, so read what is stored. */
  resumed(): void;
}

/**
 * Many listeners on one Redis connection in subscriber mode. A channel is subscribed while it has listeners, and again after a
 * reconnection; then its listeners are told, because what was published in between is gone.
 */
export class Channels {
  readonly #redis: Redis;
  readonly #listeners = new Map<string, Set<ChannelListener>>();
  readonly #onceLost = new Set<() => void>();
  readonly #onMessage = (channel: Buffer, payload: Buffer) => {
    for (const listener of [...(this.#listeners.get(channel.toString()) ?? [])]) listener.message(payload);
  };

  /** @param redis a connection of its own: it is put in subscriber mode. */
  constructor(redis: Redis) {
    this.#redis = redis;
    redis.on('messageBuffer', this.#onMessage);
    redis.on('ready', this.#onReady);
    redis.on('close', this.#onClose);
  }

  /** Number of channels that have listeners. */
  get size(): number {
    return this.#listeners.size;
  }

  /**
   * Listens to a channel; when this resolves, everything published from now on arrives. While Redis is away it resolves all
   * the same: the listener is told with `resumed` once the subscription holds.
   *
   * @returns the function that stops listening.
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
    // Subscribing again is harmless, and its answer is what tells that the subscription holds.
    if (this.#redis.status === 'ready') await this.#settled(this.#redis.subscribe(channel));
    return stop;
  }

  /** Forgets every listener; the connection itself is its owner's. */
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
      // The connection was lost again; the next `ready` does the same.
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

  /** Waits for an answer, but not past the loss of the connection: then `lost` and `resumed` tell. */
  async #settled(answer: Promise<unknown>): Promise<void> {
    let lost: (() => void) | undefined;
    let timer: NodeJS.Timeout | undefined;
    try {
      await new Promise<void>((resolve) => {
        lost = () => resolve();
        timer = setTimeout(lost, DEFAULT_CALL_DEADLINE_MS);
        this.#onceLost.add(lost);
        answer.then(lost, lost);
      });
    } finally {
      clearTimeout(timer);
      if (lost) this.#onceLost.delete(lost);
    }
  }
}
