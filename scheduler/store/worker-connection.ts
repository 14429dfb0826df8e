import type { Redis } from 'ioredis';

/**
 * A connection for one of BullMQ's workers. The worker makes a copy of the connection to wait for jobs. A worker that
 * closes just after Redis came back may connect its copy once more, and BullMQ then forgets the copy, which would
 * reconnect for ever. Here no copy connects after `close`.
 */
export class WorkerConnection {
  readonly redis: Redis;
  readonly #copies = new Set<Redis>();

  constructor(redis: Redis) {
    this.redis = redis;
    redis.on('error', () => undefined);
    const duplicate = redis.duplicate.bind(redis);
    redis.duplicate = (override) => {
      const copy = duplicate(override);
      copy.on('error', () => undefined);
      this.#copies.add(copy);
      return copy;
    };
  }

  /** Ends the connection and its copies. Call it once the worker is closed. */
  close(): void {
    for (const each of [this.redis, ...this.#copies]) {
      each.connect = () => Promise.reject(new Error('Connection is closed.'));
      each.disconnect();
    }
  }
}
