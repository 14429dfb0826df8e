/** A task that wants a turn. */
export interface Waiter {
  readonly tenant: string;
  /** Name of the resource that only one task at a time may use. */
  readonly resource: string;
  /** Registers `leave`, which is called with the cause when the task no longer wants its turn. Returns a function that unregisters it. */
  whenEnded(leave: (cause: unknown) => void): () => void;
}

interface Waiting {
  readonly resource: string;
  readonly start: () => void;
}

/** Runs the tasks of one resource one after the other, and tasks of several resources at once. Waiting tenants take turns. */
export class TenantQueues {
  readonly #most: number;
  /** Resources in use. */
  readonly #running = new Set<string>();
  /** Waiting tasks by tenant; no set is empty. The tenant whose turn comes next is first. */
  readonly #waiting = new Map<string, Set<Waiting>>();

  /** @param most resources in use at once */
  constructor(most: number) {
    this.#most = most;
  }

  /** @throws the cause with which the waiter left the queue; what `task` throws */
  async run<T>(waiter: Waiter, task: () => Promise<T>): Promise<T> {
    const { resource } = waiter;
    if (this.#mayUse(resource)) this.#running.add(resource);
    else await this.#turn(waiter);
    try {
      return await task();
    } finally {
      this.#running.delete(resource);
      this.#startNext();
    }
  }

  #mayUse(resource: string): boolean {
    return this.#running.size < this.#most && !this.#running.has(resource);
  }

  #turn({ tenant, resource, whenEnded }: Waiter): Promise<void> {
    return new Promise((resolve, reject) => {
      const stay = whenEnded((cause) => {
        this.#remove(tenant, waiting);
        reject(cause);
      });
      const start = (): void => {
        stay();
        resolve();
      };
      const waiting: Waiting = { resource, start };
      const queue = this.#waiting.get(tenant);
      if (queue) queue.add(waiting);
      else this.#waiting.set(tenant, new Set([waiting]));
    });
  }

  #remove(tenant: string, waiting: Waiting): void {
    const queue = this.#waiting.get(tenant);
    queue?.delete(waiting);
    if (queue?.size === 0) this.#waiting.delete(tenant);
  }

  /** Starts tasks in the place of one that has ended, in the same turn, so that no new task goes first. */
  #startNext(): void {
    // A tenant that gets a turn goes behind the others, where this loop meets it again.
    for (const [tenant, queue] of this.#waiting) {
      if (this.#running.size >= this.#most) return;
      const [next] = queue;
      if (!next || !this.#mayUse(next.resource)) continue;
      queue.delete(next);
      this.#waiting.delete(tenant);
      if (queue.size > 0) this.#waiting.set(tenant, queue);
      this.#running.add(next.resource);
      next.start();
    }
  }
}
