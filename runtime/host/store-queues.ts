import { Fifo } from '../channel/fifo.ts';

/** Maximum calls of one tenant in the store at once. The call of another tenant waits behind no more than these. */
const MAX_CALLS = 16;
/** Maximum bytes that these calls carry together. */
const MAX_BYTES = 2 ** 20;

interface Queue {
  calls: number;
  bytes: number;
  readonly waiting: Fifo<{ readonly bytes: number; readonly begin: () => void }>;
}

/**
 * Queues inferlets' calls of the platform's store, one queue per tenant. A tenant's flood waits here, and not in the store's single
 * connection, which serves the commands of all tenants in order.
 */
export class StoreQueues {
  readonly #queues = new Map<string, Queue>();

  /** Number of tenants with calls. */
  get tenants(): number {
    return this.#queues.size;
  }

  /** Makes a call as soon as there is room, in the order of the tenant's calls. A call larger than the byte limit goes alone. */
  async during<T>(tenant: string, bytes: number, call: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(tenant) ?? { calls: 0, bytes: 0, waiting: new Fifo() };
    this.#queues.set(tenant, queue);
    if (queue.waiting.first || !hasRoom(queue, bytes)) {
      await new Promise<void>((begin) => queue.waiting.push({ bytes, begin }));
    } else enter(queue, bytes);
    try {
      return await call();
    } finally {
      queue.calls--;
      queue.bytes -= bytes;
      for (let next = queue.waiting.first; next && hasRoom(queue, next.bytes); next = queue.waiting.first) {
        queue.waiting.shift();
        enter(queue, next.bytes);
        next.begin();
      }
      if (queue.calls === 0) this.#queues.delete(tenant);
    }
  }
}

const hasRoom = (queue: Queue, bytes: number): boolean =>
  queue.calls === 0 || (queue.calls < MAX_CALLS && queue.bytes + bytes <= MAX_BYTES);

function enter(queue: Queue, bytes: number): void {
  queue.calls++;
  queue.bytes += bytes;
}
