import type { Entry, Maker, Version } from './entry.ts';
import {
  checkOpen,
  endedFault,
  fillFromFile,
  onceBetween,
  type Requester,
  type Restoration,
  type Snapshot,
  type SnapshotFiles,
  type Transfer,
} from './stored.ts';

/** The entries, as a restore sees them. */
export interface RestoringEntries<S extends Snapshot> {
  readonly files: SnapshotFiles;
  readonly maker: Maker;
  readonly transfer: Transfer<S>;
  /** Returns the entry's current version, and counts it as used now. */
  touch(entry: Entry<S>): Version<S>;
  /** @throws CallFault when memory has no room for `pages` pages beside the `loadingPages` that are on their way */
  checkMemoryRoom(pages: number, loadingPages: number): void;
  /** Makes the registry hold the pages of an entry's version in memory. */
  keep(entry: Entry<S>, version: Version<S>, snapshot: S): void;
  /** Drops pages that are also on disk until the memory limit holds. */
  shrink(): void;
}

/** Makes the importer's result from a snapshot. */
export type Use<S extends Snapshot, T> = (snapshot: S, entry: Entry<S>) => T;

/** A version on its way from disk. */
interface LoadingVersion<S extends Snapshot> {
  readonly entry: Entry<S>;
  readonly version: Version<S>;
  readonly restoration: Restoration<S>;
}

/** The importer's result from a snapshot, in an object because the result may be undefined. */
interface ImportResult<T> {
  readonly result: T;
}

/** Maximum owners whose entries are restored at once. Each restore has a buffer, so this bounds the memory of buffers. */
const MAX_CONCURRENT_OWNERS = 4;

/**
 * Brings entries back from disk. Only one entry of each owner (the tenant to which the entries belong) is restored at a time: the next requester
 * often wants the same entry, and then finds it in memory. The tenants of the requesters take turns, because all of them may want entries of
 * the owner `system`.
 */
export class Restores<S extends Snapshot> {
  readonly #entries: RestoringEntries<S>;
  readonly #queues = new TenantQueues(MAX_CONCURRENT_OWNERS);
  /** Pages on their way from disk. */
  #loadingPages = 0;

  constructor(entries: RestoringEntries<S>) {
    this.#entries = entries;
  }

  /**
   * Brings an entry's content to memory if needed, and gives it to `use` in the same turn of the event loop, before memory can drop it again.
   * @param find finds the entry; called again after each wait, since the name may have other content by then
   */
  run<T>(find: () => Entry<S>, requester: Requester<S>, use: Use<S, T>): Promise<T> {
    const waiter: Waiter = {
      tenant: requester.tenant,
      resource: find().tenant,
      // Many inferlets may end during one restore. Their waiters leave the queue at once, so that they do not pile up.
      whenEnded: (leave) => requester.whenEnded(() => leave(endedFault())),
    };
    return this.#queues.run(waiter, async () => {
      for (;;) {
        const begun = await onceBetween(requester, () => this.#begin(find, requester, use));
        const used = 'result' in begun ? begun : await this.#fill(begun, requester, use);
        if (used) return used.result;
      }
    });
  }

  /** Uses the entry's content if another restore has brought it to memory meanwhile; otherwise makes room for it. */
  #begin<T>(find: () => Entry<S>, requester: Requester<S>, use: Use<S, T>): ImportResult<T> | LoadingVersion<S> {
    checkOpen(requester);
    const entry = find();
    const version = this.#entries.touch(entry);
    if (version.snapshot) return { result: use(version.snapshot, entry) };
    this.#entries.checkMemoryRoom(version.pages, this.#loadingPages);
    const restoration = requester.restore(entry.tenant, version.pages);
    this.#loadingPages += version.pages;
    return { entry, version, restoration };
  }

  /** Fills the pages and uses them. Undefined when the name has got other content meanwhile. */
  async #fill<T>(
    { entry, version, restoration }: LoadingVersion<S>,
    requester: Requester<S>,
    use: Use<S, T>,
  ): Promise<ImportResult<T> | undefined> {
    const { files, maker, transfer } = this.#entries;
    const isCurrent = () => !entry.removed && entry.current === version;
    try {
      const header = await fillFromFile(files, entry, maker, restoration, requester, transfer);
      return await onceBetween(requester, () => {
        checkOpen(requester);
        if (!isCurrent()) return undefined;
        const snapshot = restoration.finish(header.tokens, header.nextPosition);
        this.#entries.keep(entry, version, snapshot);
        try {
          return { result: use(snapshot, entry) };
        } finally {
          restoration.end();
          this.#entries.shrink();
        }
      });
    } catch (cause) {
      // When the name has got other content, its file holds that content or is removed, so a failure to read the old content means nothing.
      if (isCurrent()) throw cause;
      return undefined;
    } finally {
      this.#loadingPages -= version.pages;
      restoration.end();
    }
  }
}

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
