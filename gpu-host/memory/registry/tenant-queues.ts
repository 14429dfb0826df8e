/** A task that wants a turn. */
export interface Waiter {
  readonly tenant: string;
  /** Name of the resource that only one task at a time may use. */
  readonly resource: string;
  /** Registers `leave`, to be called with the cause when the task's inferlet ends and wants no turn. Returns a function that unregisters `leave`. */
  whenEnded(leave: (cause: unknown) => void): () => void;
}

interface WaitingTask {
  readonly resource: string;
  readonly start: () => void;
}

/**
 * Runs the tasks of one resource one after the other, and tasks of several resources at once. The waiting tasks of a tenant form a queue, and
 * the tenants take turns.
 */
export class TenantQueues {
  readonly #maxResources: number;
  /** Resources that a task uses now. */
  readonly #usedResources = new Set<string>();
  /** Waiting tasks by tenant, oldest first; no set is empty. The tenant whose turn comes next is first. */
  readonly #waitingTasks = new Map<string, Set<WaitingTask>>();

  /** @param maxResources maximum number of resources in use at once */
  constructor(maxResources: number) {
    this.#maxResources = maxResources;
  }

  /**
   * Runs `task` at once if the waiter's resource is free and fewer than `maxResources` are in use; otherwise when its turn comes.
   *
   * @throws the cause with which the waiter left the queue; what `task` throws
   */
  async run<T>(waiter: Waiter, task: () => Promise<T>): Promise<T> {
    const { resource } = waiter;
    if (this.#mayUse(resource)) this.#usedResources.add(resource);
    else await this.#waitForTurn(waiter);
    try {
      return await task();
    } finally {
      this.#usedResources.delete(resource);
      this.#startNext();
    }
  }

  #mayUse(resource: string): boolean {
    return this.#usedResources.size < this.#maxResources && !this.#usedResources.has(resource);
  }

  #waitForTurn({ tenant, resource, whenEnded }: Waiter): Promise<void> {
    return new Promise((resolve, reject) => {
      const unregister = whenEnded((cause) => {
        this.#remove(tenant, waitingTask);
        // The task may have held up the tasks behind it. Those of the same inferlet are about to leave, too; a microtask starts none of them first.
        queueMicrotask(() => this.#startNext());
        reject(cause);
      });
      const start = (): void => {
        unregister();
        resolve();
      };
      const waitingTask: WaitingTask = { resource, start };
      const queue = this.#waitingTasks.get(tenant);
      if (queue) queue.add(waitingTask);
      else this.#waitingTasks.set(tenant, new Set([waitingTask]));
    });
  }

  #remove(tenant: string, waitingTask: WaitingTask): void {
    const queue = this.#waitingTasks.get(tenant);
    queue?.delete(waitingTask);
    if (queue?.size === 0) this.#waitingTasks.delete(tenant);
  }

  /**
   * Starts waiting tasks after a task has ended or has left its queue, in the same turn of the event loop, before a new task can take the freed
   * resource. Only the oldest waiting task of each tenant may start. The tasks behind it wait even if their resources are free, so a new task
   * that wants one of these resources starts before them.
   */
  #startNext(): void {
    // A tenant that gets a turn moves to the end of the map, so this loop reaches it again after the others.
    for (const [tenant, queue] of this.#waitingTasks) {
      if (this.#usedResources.size >= this.#maxResources) return;
      const [nextTask] = queue;
      if (!nextTask || !this.#mayUse(nextTask.resource)) continue;
      queue.delete(nextTask);
      this.#waitingTasks.delete(tenant);
      if (queue.size > 0) this.#waitingTasks.set(tenant, queue);
      this.#usedResources.add(nextTask.resource);
      nextTask.start();
    }
  }
}
