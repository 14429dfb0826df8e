import { unexpected } from '#gpu-host/unexpected.ts';
import { fault } from '../fault.ts';
import {
  type Entry,
  type EntryKind,
  entryOf,
  evictable,
  fileNameOf,
  isWanted,
  type Maker,
  type NewVersion,
  type RegistryLimits,
  replacedBy,
  type Version,
  versionsOf,
} from './entry.ts';
import { Restores, type Use } from './restores.ts';
import {
  type DeviceTurns,
  type FileHeader,
  fileSize,
  type Refusal,
  type Requester,
  readShelf,
  SavingBytes,
  type Shelf,
  type Snapshot,
  SnapshotFiles,
  type SnapshotMemory,
  writeSnapshot,
} from './stored.ts';

interface EntriesDisk<S extends Snapshot> {
  readonly files: SnapshotFiles;
  readonly maker: Maker;
  readonly restores: Restores<S>;
}

/**
 * Entries by tenant, kind and name: their versions, in memory and on disk. The caller checks rights. A tenant's directory is read when a call first
 * names the tenant, and the pages of a file when they are first wanted.
 *
 * A new version is visible at once. The former version is kept until the new one is on disk, and becomes current again when the save fails.
 */
export class Entries<S extends Snapshot> {
  readonly #memory: SnapshotMemory<S>;
  readonly #limits: RegistryLimits;
  /** Undefined when nothing is kept on disk. */
  readonly #disk: EntriesDisk<S> | undefined;
  #shelves = new Map<string, Shelf<S>>();
  /** Every version that has its pages in memory, with its entry. The least recently used version is the first. */
  readonly #inMemory = new Map<Version<S>, Entry<S>>();
  #lastOrder = 0;
  #memoryPages = 0;
  #diskBytes = 0;
  readonly #saving = new SavingBytes();
  readonly #pendingWork = new Set<Promise<void>>();

  constructor(
    memory: SnapshotMemory<S>,
    limits: RegistryLimits,
    disk: { readonly directory: string; readonly maker: Maker } | undefined,
  ) {
    this.#memory = memory;
    this.#limits = limits;
    if (!disk) return;
    const files = new SnapshotFiles(disk.directory);
    const { maker } = disk;
    const restores = new Restores<S>({
      files,
      maker,
      transfer: { memory, bufferBytes: limits.bufferBytes },
      touch: (entry) => this.#touch(entry),
      checkMemoryRoom: (pages, loadingPages) => this.#checkMemoryRoom(pages, loadingPages),
      keep: (entry, version, snapshot) => {
        version.snapshot = snapshot;
        this.#inMemory.set(version, entry);
        this.#memoryPages += version.pages;
      },
      shrink: () => this.#shrink(),
    });
    this.#disk = { files, maker, restores };
    this.#diskBytes = this.#disk.files.sweep();
  }

  /** Pages that snapshots hold in memory, bytes of the files, and bytes of the saves under way. */
  get usage(): { readonly memoryPages: number; readonly diskBytes: number; readonly savingBytes: number } {
    return { memoryPages: this.#memoryPages, diskBytes: this.#diskBytes, savingBytes: this.#saving.total };
  }

  find(tenant: string, kind: EntryKind, name: string): Entry<S> | Refusal | undefined {
    const { entries, refusals } = this.#shelf(tenant);
    const fileName = fileNameOf(kind, name);
    return entries.get(fileName) ?? refusals.get(fileName);
  }

  /** A tenant's entries of one kind, by name. */
  list(tenant: string, kind: EntryKind): Entry<S>[] {
    return [...this.#shelf(tenant).entries.values()]
      .filter((entry) => entry.kind === kind)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** The entries of all tenants seen so far. */
  *knownEntries(): Generator<Entry<S>> {
    for (const { entries } of this.#shelves.values()) yield* entries.values();
  }

  /**
   * Gives a name new content, visible at once. For persistent content, the promise resolves when the content is on disk. When saving fails,
   * the promise rejects with a CallFault, and the name gets its former content back, unless the file is already published. Undefined when
   * there is nothing to wait for.
   *
   * @param turns turns between device steps, in which the pages are copied
   * @throws CallFault `limit-exceeded`, `unsupported` (persistent without a directory), `unavailable` (too much is being saved), `internal`
   * (a file cannot be removed); changes nothing then
   */
  put(
    tenant: string,
    kind: EntryKind,
    name: string,
    content: NewVersion<S>,
    turns: DeviceTurns,
  ): Promise<void> | undefined {
    const { snapshot, persistent, file } = content;
    const { entries } = this.#shelf(tenant);
    const fileName = fileNameOf(kind, name);
    const existing = entries.get(fileName);
    this.#checkTenantLimits(this.#shelf(tenant), existing, snapshot.pages.length);
    this.#checkShare(tenant, snapshot.pages.length, existing && replacedBy(existing, persistent));
    const header = persistent ? this.#headerFor(tenant, name, content) : undefined;
    // Remove the version on disk: after a restart it must not come back in place of a newer one that is not persistent.
    if (!persistent && existing?.settled) this.#removeFile(existing, existing.settled);

    this.#memory.retain(snapshot);
    this.#memoryPages += snapshot.pages.length;
    const version: Version<S> = {
      pages: snapshot.pages.length,
      tokens: snapshot.tokens,
      nextPosition: snapshot.nextPosition,
      persistent,
      file,
      order: ++this.#lastOrder,
      snapshot,
      fileBytes: 0,
    };
    const entry = existing ?? entryOf({ tenant, kind, name }, version, false);
    entries.set(fileName, entry);
    this.#inMemory.set(version, entry);
    const replacedVersion = entry.current;
    entry.current = version;
    if (!persistent) this.#settle(entry, version);
    this.#forget(entry, replacedVersion);
    this.#shrink();
    return header && this.#track(this.#save(entry, version, header, turns));
  }

  /**
   * Gives the content of an entry to `use`: at once from memory, or in the turn in which its last pages come from the disk.
   *
   * @param find finds the entry; called again after each wait
   * @param use takes all that it needs of the snapshot before it returns, since the registry may then drop the snapshot
   * @throws CallFault a fault of `find` or `use`. The promise rejects with a fault of `find`, `use` or `requester`, or
   * with one of these: `internal` (the file is damaged or cannot be read), `invalid-argument` (another model made the
   * pages), `unavailable` (memory has no room now), `limit-exceeded` (memory never has so much room), `cancelled` (the
   * requester has ended)
   */
  load<T>(find: () => Entry<S>, requester: Requester<S>, use: Use<S, T>): T | Promise<T> {
    const entry = find();
    const { snapshot } = this.#touch(entry);
    if (snapshot) return use(snapshot, entry);
    if (!this.#disk) throw new Error(`"${entry.name}" is neither in memory nor on disk`);
    return this.#track(this.#disk.restores.run(find, requester, use));
  }

  /** @throws CallFault `internal` when the entry's file cannot be removed; the entry stays then */
  remove(entry: Entry<S>): void {
    const { settled } = entry;
    if (settled) this.#removeFile(entry, settled);
    entry.removed = true;
    this.#shelf(entry.tenant).entries.delete(fileNameOf(entry.kind, entry.name));
    for (const version of versionsOf(entry)) this.#release(version);
  }

  /** Removes a file that cannot be used. @throws CallFault `internal` */
  removeRefusal(tenant: string, refusal: Refusal): void {
    this.#unlink(tenant, refusal.fileName);
    this.#diskBytes -= refusal.fileBytes;
    this.#shelf(tenant).refusals.delete(refusal.fileName);
  }

  /** Waits for the saves and restores under way. */
  async close(): Promise<void> {
    while (this.#pendingWork.size > 0) await Promise.all(this.#pendingWork);
  }

  #shelf(tenant: string): Shelf<S> {
    const existing = this.#shelves.get(tenant);
    if (existing) return existing;
    const shelf: Shelf<S> = this.#disk
      ? readShelf(this.#disk.files, tenant, this.#disk.maker)
      : { entries: new Map(), refusals: new Map() };
    this.#shelves.set(tenant, shelf);
    return shelf;
  }

  #checkTenantLimits(shelf: Shelf<S>, existing: Entry<S> | undefined, pages: number): void {
    const { maxTenantPages, maxTenantEntries, maxSnapshotPages } = this.#limits;
    if (pages > maxSnapshotPages) {
      throw fault(
        'limit-exceeded',
        `a snapshot of ${pages} pages; at most ${maxSnapshotPages} can be kept under a name`,
      );
    }
    if (!existing && shelf.entries.size + shelf.refusals.size >= maxTenantEntries) {
      throw fault('limit-exceeded', `the tenant has ${maxTenantEntries} exports and files, as many as it may`);
    }
    let tenantPages = pages - (existing?.current.pages ?? 0);
    for (const entry of shelf.entries.values()) tenantPages += entry.current.pages;
    if (tenantPages > maxTenantPages) {
      throw fault(
        'limit-exceeded',
        `the tenant's exports and files would hold ${tenantPages} pages; it may hold ${maxTenantPages}`,
      );
    }
  }

  /**
   * Checks that a tenant may keep `pages` more in memory. A tenant may hold as many pages as then stay free, so its share is half of what the other
   * tenants leave (the dynamic thresholds of Choudhury and Hahne, 1998, with a factor of one). Two kinds of pages do not count: those that are
   * also on disk, and those of `leavingVersions`, which the caller is about to release.
   */
  #checkShare(tenant: string, pages: number, leavingVersions: ReadonlySet<Version<S>> = new Set()): void {
    const { maxMemoryPages } = this.#limits;
    const maxPages = Math.floor(maxMemoryPages / 2);
    if (pages > maxPages) {
      throw fault('limit-exceeded', `a snapshot of ${pages} pages; a tenant may hold ${maxPages} in memory`);
    }
    const fixedPages = this.#fixedPages(leavingVersions);
    const ownPages = fixedPages.get(tenant) ?? 0;
    let otherPages = -ownPages;
    for (const count of fixedPages.values()) otherPages += count;
    const share = Math.floor((maxMemoryPages - otherPages) / 2);
    if (ownPages + pages <= share) return;
    throw fault(
      'unavailable',
      `exports and files may hold ${maxMemoryPages} pages in memory; other tenants hold ${otherPages} of them, so this one may hold ${share}, and it holds ${ownPages}`,
    );
  }

  /** Checks that `pages` more, beside the `loadingPages`, would fit into memory if memory dropped every page that is also on disk. */
  #checkMemoryRoom(pages: number, loadingPages: number): void {
    const { maxMemoryPages } = this.#limits;
    if (pages > maxMemoryPages) {
      throw fault(
        'limit-exceeded',
        `a snapshot of ${pages} pages; exports and files may hold ${maxMemoryPages} in memory`,
      );
    }
    if (this.#memoryPages + pages + loadingPages <= maxMemoryPages) return;
    let neededPages = pages + loadingPages;
    for (const count of this.#fixedPages(new Set()).values()) neededPages += count;
    if (neededPages <= maxMemoryPages) return;
    throw fault('unavailable', `exports and files may hold ${maxMemoryPages} pages in memory and nothing can give way`);
  }

  /** Pages in memory by tenant, without those of `leavingVersions` and those that are also on disk. */
  #fixedPages(leavingVersions: ReadonlySet<Version<S>>): Map<string, number> {
    const pagesByTenant = new Map<string, number>();
    for (const [version, entry] of this.#inMemory) {
      if (version === evictable(entry) || leavingVersions.has(version)) continue;
      pagesByTenant.set(entry.tenant, (pagesByTenant.get(entry.tenant) ?? 0) + version.pages);
    }
    return pagesByTenant;
  }

  /** Drops the pages of an entry that are also on disk. False when memory has to keep them. */
  drop(entry: Entry<S>): boolean {
    const version = evictable(entry);
    if (!version) return false;
    this.#release(version);
    return true;
  }

  /** Drops pages that are also on disk until the limit holds: least recently used first, but pages with a lease last. */
  #shrink(): void {
    const fits = () => this.#memoryPages <= this.#limits.maxMemoryPages;
    const leased: Version<S>[] = [];
    for (const [version, entry] of this.#inMemory) {
      if (fits()) return;
      if (version !== evictable(entry)) continue;
      if (entry.lease && !entry.lease.ended) leased.push(version);
      else this.#release(version);
    }
    for (const version of leased) if (!fits()) this.#release(version);
  }

  /**
   * Checks that a tenant may save `bytes` more: at most half of what the files of the other tenants leave of the disk, so that no tenant
   * alone fills it. While a new version of a name is saved, its old version on disk counts as well.
   */
  #checkDiskShare(tenant: string, bytes: number): void {
    const { entries, refusals } = this.#shelf(tenant);
    let ownBytes = this.#saving.bytesOf(tenant);
    for (const { current, settled } of entries.values()) {
      ownBytes += current.fileBytes + (settled === current ? 0 : (settled?.fileBytes ?? 0));
    }
    for (const { fileBytes } of refusals.values()) ownBytes += fileBytes;
    const otherBytes = this.#diskBytes + this.#saving.total - ownBytes;
    const share = Math.floor((this.#limits.maxDiskBytes - otherBytes) / 2);
    if (ownBytes + bytes <= share) return;
    throw fault(
      'limit-exceeded',
      `the tenant's exports and files take ${ownBytes} bytes on disk and ${bytes} more are needed; it may have ${share}, half of what other tenants leave. Remove some that are not needed`,
    );
  }

  /** The header of a snapshot's file. @throws CallFault when the file may not be saved */
  #headerFor(tenant: string, name: string, { snapshot, file }: NewVersion<S>): FileHeader {
    if (!this.#disk) {
      throw fault('unsupported', 'nothing is persistent here: this host was started without a directory for it');
    }
    const { fingerprint, pageSize, pageBytes } = this.#disk.maker;
    const { maxSavingBytes, maxDiskBytes } = this.#limits;
    const { tokens, nextPosition } = snapshot;
    const pages = snapshot.pages.length;
    const bytes = fileSize(pages, this.#disk.maker);
    const savingBytes = this.#saving.total;
    const maxBytes = Math.floor(maxSavingBytes / 2);
    if (bytes > maxBytes) {
      throw fault('limit-exceeded', `a snapshot of ${bytes} bytes; at most ${maxBytes} can be saved at once`);
    }
    const ownBytes = this.#saving.bytesOf(tenant);
    const share = Math.floor((maxSavingBytes - (savingBytes - ownBytes)) / 2);
    if (ownBytes + bytes > share) {
      throw fault(
        'unavailable',
        `${ownBytes} bytes of the tenant are being saved already, and ${share} is its share; try again when they are on disk`,
      );
    }
    if (this.#diskBytes + savingBytes + bytes > maxDiskBytes) {
      throw fault('limit-exceeded', `the files of this model would take more than ${maxDiskBytes} bytes on disk`);
    }
    this.#checkDiskShare(tenant, bytes);
    return { tenant, name, file, fingerprint, pageSize, pageBytes, pages, tokens, nextPosition };
  }

  /** Writes a version's file. The pages stay in memory until the file is on disk, unless the name needs the version no more before that. */
  async #save(entry: Entry<S>, version: Version<S>, header: FileHeader, turns: DeviceTurns): Promise<void> {
    const files = this.#disk?.files as SnapshotFiles;
    const { tenant } = entry;
    const bytes = fileSize(header.pages, header);
    const snapshotIfWanted = () => (isWanted(entry, version) ? version.snapshot : undefined);
    let reservedBytes = bytes;
    this.#saving.add(tenant, reservedBytes);
    entry.saving.add(version);
    try {
      await files.write(
        tenant,
        fileNameOf(entry.kind, entry.name),
        (write) => writeSnapshot(this.#memory, snapshotIfWanted, header, write, turns, this.#limits.bufferBytes),
        () => isWanted(entry, version),
        (writtenBytes) => {
          version.fileBytes = writtenBytes;
          this.#diskBytes += writtenBytes;
          this.#saving.add(tenant, -reservedBytes);
          reservedBytes = 0;
          this.#settle(entry, version);
          // From now on the version's pages are on disk, so memory may drop them.
          this.#shrink();
        },
      );
    } catch (cause) {
      const isPublished = version.fileBytes > 0;
      if (!isPublished) this.#undo(entry, version);
      const outcome = isPublished ? 'is written, but may not survive a loss of power' : 'could not be saved';
      throw fault('internal', `"${entry.name}" ${outcome}: ${unexpected(cause)}`);
    } finally {
      this.#saving.add(tenant, -reservedBytes);
      entry.saving.delete(version);
      this.#forget(entry, version);
    }
    if (version.fileBytes === 0 && entry.removed) {
      throw fault('cancelled', `"${entry.name}" was removed while it was being saved`);
    }
  }

  #touch(entry: Entry<S>): Version<S> {
    const version = entry.current;
    if (version.snapshot) {
      this.#inMemory.delete(version);
      this.#inMemory.set(version, entry);
      this.#memory.used(version.snapshot);
    }
    return version;
  }

  #track<T>(work: Promise<T>): Promise<T> {
    const tracked: Promise<void> = work.then(
      () => void this.#pendingWork.delete(tracked),
      // The caller that asked for the work receives the error through `work`.
      () => void this.#pendingWork.delete(tracked),
    );
    this.#pendingWork.add(tracked);
    return work;
  }

  /** Notes that `version` is settled: on disk if it is persistent, else in memory. Releases the versions before it. */
  #settle(entry: Entry<S>, version: Version<S>): void {
    const previousVersion = entry.settled;
    entry.settled = version;
    if (previousVersion) {
      this.#diskBytes -= previousVersion.fileBytes;
      this.#forget(entry, previousVersion);
    }
    for (const older of entry.saving) this.#forget(entry, older);
  }

  /** Call when saving `version` failed: the name gets its former content back, or is removed. */
  #undo(entry: Entry<S>, version: Version<S>): void {
    entry.saving.delete(version);
    if (entry.removed || entry.current !== version) return;
    const former = [...entry.saving].findLast((each) => isWanted(entry, each)) ?? entry.settled;
    if (former) entry.current = former;
    else this.remove(entry);
  }

  /** Releases a version unless the name still refers to it. */
  #forget(entry: Entry<S>, version: Version<S>): void {
    if (!isWanted(entry, version)) this.#release(version);
  }

  #release(version: Version<S>): void {
    const { snapshot } = version;
    if (!snapshot) return;
    version.snapshot = undefined;
    this.#inMemory.delete(version);
    this.#memoryPages -= version.pages;
    this.#memory.release(snapshot);
  }

  #removeFile(entry: Entry<S>, version: Version<S>): void {
    if (version.fileBytes === 0) return;
    this.#unlink(entry.tenant, fileNameOf(entry.kind, entry.name));
    this.#diskBytes -= version.fileBytes;
    version.fileBytes = 0;
  }

  #unlink(tenant: string, fileName: string): void {
    try {
      this.#disk?.files.remove(tenant, fileName);
    } catch (cause) {
      throw fault('internal', `its file cannot be removed: ${unexpected(cause)}`);
    }
  }
}
