import type { Entry, Maker, Version } from './entry.ts';
import type { SnapshotFiles } from './files.ts';
import { onceBetween, type Requester, type Restoration, type Snapshot } from './snapshot.ts';
import { checkOpen, endedFault, fillFromFile, type Transfer } from './stored.ts';
import { TenantQueues, type Waiter } from './tenant-queues.ts';

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
