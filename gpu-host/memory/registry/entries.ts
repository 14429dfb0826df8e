import { causeText } from '#gpu-host/models/errors.ts';
import { fault } from '../fault.ts';
import type { Entry, Maker, Refusal, RegistryLimits, Shelf, Version } from './entry.ts';
import { encodeFile, type FileHeader, fileSize } from './file-format.ts';
import { SnapshotFiles } from './files.ts';
import { type EntryKind, fileNameOf } from './names.ts';
import type { Ownership } from './rights.ts';
import type { Restore, Snapshot, SnapshotMemory, StoredPage } from './snapshot.ts';
import { readShelf, restoreFile } from './stored.ts';

/** The new content of a name. */
export interface NewVersion<S> {
  readonly snapshot: S;
  readonly persistent: boolean;
  /** Null for an export. */
  readonly file: Ownership | null;
}

/** A snapshot on its way to disk. */
interface Contents {
  readonly header: FileHeader;
  readonly pages: readonly StoredPage[];
  readonly data: readonly Uint8Array[];
  /** File size without its JSON header. */
  readonly bytes: number;
}

/**
 * Entries by tenant, kind and name: their versions, in memory and on disk. The caller checks rights. A tenant's directory is read when the
 * tenant is first seen, and the pages of a file when they are first wanted.
 *
 * A new version is visible at once; the one before is kept until the new one is on disk, and comes back when that fails.
 */
export class Entries<S extends Snapshot> {
  readonly #memory: SnapshotMemory<S>;
  readonly #limits: RegistryLimits;
  /** Undefined when nothing is kept on disk. */
  readonly #disk: { readonly files: SnapshotFiles; readonly maker: Maker } | undefined;
  #shelves = new Map<string, Shelf<S>>();
  #clock = 0;
  #memoryPages = 0;
  #diskBytes = 0;
  #savingBytes = 0;
  /** `#savingBytes` by tenant. */
  readonly #tenantSaving = new Map<string, number>();
  #saves = new Set<Promise<void>>();

  constructor(
    memory: SnapshotMemory<S>,
    limits: RegistryLimits,
    disk: { readonly directory: string; readonly maker: Maker } | undefined,
  ) {
    this.#memory = memory;
    this.#limits = limits;
    if (!disk) return;
    this.#disk = { files: new SnapshotFiles(disk.directory), maker: disk.maker };
    this.#diskBytes = this.#disk.files.sweep();
  }

  /** Pages that snapshots hold in memory. */
  get memoryPages(): number {
    return this.#memoryPages;
  }

  get diskBytes(): number {
    return this.#diskBytes;
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
  *known(): Generator<Entry<S>> {
    for (const { entries } of this.#shelves.values()) yield* entries.values();
  }

  /**
   * Gives a name a (new) content, visible at once. For a persistent one, the promise resolves when the content is on disk; when that fails
   * the promise rejects with a CallFault, and the name keeps its former content. Undefined when there is nothing to wait for.
   *
   * @throws CallFault `limit-exceeded`, `unsupported` (persistent without a directory), `unavailable` (too much is being saved), `internal`
   * (the disk fails, or swap lost a page); changes nothing then
   */
  put(tenant: string, kind: EntryKind, name: string, content: NewVersion<S>): Promise<void> | undefined {
    const { snapshot, persistent, file } = content;
    const { entries } = this.#shelf(tenant);
    const fileName = fileNameOf(kind, name);
    const existing = entries.get(fileName);
    this.#checkTenantLimits(this.#shelf(tenant), existing, snapshot.pages.length);
    this.#checkShare(tenant, snapshot.pages.length, existing && replacedBy(existing, persistent));
    const written = persistent ? this.#copy(tenant, name, content) : undefined;
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
      order: ++this.#clock,
      snapshot,
      fileBytes: 0,
      lastUse: this.#clock,
    };
    const entry = existing ?? {
      tenant,
      kind,
      name,
      current: version,
      settled: undefined,
      lock: undefined,
      removed: false,
    };
    entries.set(fileName, entry);
    const replaced = entry.current;
    entry.current = version;
    if (!persistent) this.#settle(entry, version);
    this.#forget(entry, replaced);
    this.#shrink();
    return written && this.#track(this.#save(entry, version, written));
  }

  /**
   * The pages of an entry, brought back by `restore` where they are on disk only.
   * @throws CallFault `internal` (damaged), `invalid-argument` (another model's), `unavailable`, `limit-exceeded` (no room), `restore`'s
   */
  load(entry: Entry<S>, restore: Restore<S>): S {
    const version = entry.current;
    version.lastUse = ++this.#clock;
    if (version.snapshot) return version.snapshot;
    if (!this.#disk) throw new Error(`"${entry.name}" is neither in memory nor on disk`);
    this.#checkMemoryRoom(version.pages);
    const snapshot = restoreFile(this.#disk.files, entry, this.#disk.maker, restore);
    version.snapshot = snapshot;
    this.#memoryPages += version.pages;
    this.#shrink();
    return snapshot;
  }

  /** @throws CallFault `internal` when its file cannot be removed; the entry stays then */
  remove(entry: Entry<S>): void {
    const { settled, current } = entry;
    if (settled) this.#removeFile(entry, settled);
    entry.removed = true;
    this.#shelf(entry.tenant).entries.delete(fileNameOf(entry.kind, entry.name));
    this.#release(current);
    if (settled) this.#release(settled);
  }

  /** Removes a file that cannot be used. @throws CallFault `internal` */
  removeRefusal(tenant: string, refusal: Refusal): void {
    this.#unlink(tenant, refusal.fileName);
    this.#diskBytes -= refusal.fileBytes;
    this.#shelf(tenant).refusals.delete(refusal.fileName);
  }

  /** Waits for the saves under way. */
  async close(): Promise<void> {
    while (this.#saves.size > 0) await Promise.all(this.#saves);
  }

  #shelf(tenant: string): Shelf<S> {
    const known = this.#shelves.get(tenant);
    if (known) return known;
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
    let held = pages - (existing?.current.pages ?? 0);
    for (const entry of shelf.entries.values()) held += entry.current.pages;
    if (held > maxTenantPages) {
      throw fault(
        'limit-exceeded',
        `the tenant's exports and files would hold ${held} pages; it may hold ${maxTenantPages}`,
      );
    }
  }

  /**
   * Checks that a tenant may keep `pages` more in memory once `leaving` are given back: at most half of what the other tenants leave, as in
   * the dynamic thresholds of Choudhury and Hahne (1998) with a factor of one. Pages that are also on disk do not count.
   */
  #checkShare(tenant: string, pages: number, leaving: ReadonlySet<Version<S>> = new Set()): void {
    const { maxMemoryPages } = this.#limits;
    const most = Math.floor(maxMemoryPages / 2);
    if (pages > most) {
      throw fault('limit-exceeded', `a snapshot of ${pages} pages; a tenant may hold ${most} in memory`);
    }
    const held = this.#fixedPages(leaving);
    const own = held.get(tenant) ?? 0;
    let others = -own;
    for (const count of held.values()) others += count;
    const share = Math.floor((maxMemoryPages - others) / 2);
    if (own + pages <= share) return;
    throw fault(
      'unavailable',
      `exports and files may hold ${maxMemoryPages} pages in memory; other tenants hold ${others} of them, so this one may hold ${share}, and it holds ${own}`,
    );
  }

  /** Checks that `pages` more fit into memory once every page that is also on disk gives way. */
  #checkMemoryRoom(pages: number): void {
    const { maxMemoryPages } = this.#limits;
    if (pages > maxMemoryPages) {
      throw fault(
        'limit-exceeded',
        `a snapshot of ${pages} pages; exports and files may hold ${maxMemoryPages} in memory`,
      );
    }
    if (this.#memoryPages + pages <= maxMemoryPages) return;
    let held = pages;
    for (const count of this.#fixedPages(new Set()).values()) held += count;
    if (held <= maxMemoryPages) return;
    throw fault('unavailable', `exports and files may hold ${maxMemoryPages} pages in memory and nothing can give way`);
  }

  /** Pages in memory by tenant, without those of `leaving` and those that are also on disk. */
  #fixedPages(leaving: ReadonlySet<Version<S>>): Map<string, number> {
    const held = new Map<string, number>();
    for (const entry of this.known()) {
      for (const version of new Set([entry.current, entry.settled])) {
        if (!version?.snapshot || version === spare(entry) || leaving.has(version)) continue;
        held.set(entry.tenant, (held.get(entry.tenant) ?? 0) + version.pages);
      }
    }
    return held;
  }

  /** Drops pages that are also on disk, least recently used first, until the limit holds. */
  #shrink(): void {
    while (this.#memoryPages > this.#limits.maxMemoryPages) {
      let oldest: Version<S> | undefined;
      for (const entry of this.known()) {
        const version = spare(entry);
        if (version && (!oldest || version.lastUse < oldest.lastUse)) oldest = version;
      }
      if (!oldest) return;
      this.#release(oldest);
    }
  }

  /**
   * Checks that a tenant may save `bytes` more: at most half of what the files of the other tenants leave of the disk, so that no tenant
   * alone fills it. While a name is saved anew both its versions count.
   */
  #checkDiskShare(tenant: string, bytes: number): void {
    const { entries, refusals } = this.#shelf(tenant);
    let own = this.#tenantSaving.get(tenant) ?? 0;
    for (const { current, settled } of entries.values()) {
      own += current.fileBytes + (settled === current ? 0 : (settled?.fileBytes ?? 0));
    }
    for (const { fileBytes } of refusals.values()) own += fileBytes;
    const others = this.#diskBytes + this.#savingBytes - own;
    const share = Math.floor((this.#limits.maxDiskBytes - others) / 2);
    if (own + bytes <= share) return;
    throw fault(
      'limit-exceeded',
      `the tenant's exports and files take ${own} bytes on disk and ${bytes} more are needed; it may have ${share}, half of what other tenants leave. Remove some that are not needed`,
    );
  }

  /** Copies a snapshot's contents for its file now: later the device is busy, and its pages may hold other content. */
  #copy(tenant: string, name: string, { snapshot, file }: NewVersion<S>): Contents {
    if (!this.#disk) {
      throw fault('unsupported', 'nothing is persistent here: this host was started without a directory for it');
    }
    const { fingerprint, pageSize, pageBytes } = this.#disk.maker;
    const { maxSavingBytes, maxDiskBytes } = this.#limits;
    const bytes = fileSize(snapshot.pages.length, this.#disk.maker);
    if (bytes > maxSavingBytes) {
      throw fault('limit-exceeded', `a snapshot of ${bytes} bytes; at most ${maxSavingBytes} can be saved at once`);
    }
    if (this.#savingBytes + bytes > maxSavingBytes) {
      throw fault('unavailable', `${this.#savingBytes} bytes are being saved already; try again when they are on disk`);
    }
    if (this.#diskBytes + this.#savingBytes + bytes > maxDiskBytes) {
      throw fault('limit-exceeded', `the files of this model would take more than ${maxDiskBytes} bytes on disk`);
    }
    this.#checkDiskShare(tenant, bytes);
    const { tokens, nextPosition } = snapshot;
    const pages: StoredPage[] = [];
    const data: Uint8Array[] = [];
    for (const [index, { page, masked }] of snapshot.pages.entries()) {
      pages.push({ filled: page.filled, masked, positions: page.positions.slice() });
      const copy = new Uint8Array(pageBytes);
      this.#memory.readPage(snapshot, index, copy);
      data.push(copy);
    }
    const header = { tenant, name, file, fingerprint, pageSize, pageBytes, pages: pages.length, tokens, nextPosition };
    return { header, pages, data, bytes };
  }

  async #save(entry: Entry<S>, version: Version<S>, contents: Contents): Promise<void> {
    const files = this.#disk?.files as SnapshotFiles;
    this.#savingBytes += contents.bytes;
    const { tenant } = entry;
    this.#tenantSaving.set(tenant, (this.#tenantSaving.get(tenant) ?? 0) + contents.bytes);
    try {
      await files.write(
        entry.tenant,
        fileNameOf(entry.kind, entry.name),
        await encodeFile(contents.header, contents.pages, contents.data),
        () => !entry.removed && (entry.settled?.order ?? 0) < version.order,
        (bytes) => {
          version.fileBytes = bytes;
          this.#diskBytes += bytes;
          this.#settle(entry, version);
          // The version's pages are on disk from now on, so memory may drop them.
          this.#shrink();
        },
      );
    } catch (cause) {
      const published = version.fileBytes > 0;
      if (!published) this.#undo(entry, version);
      const what = published ? 'is written, but may not survive a loss of power' : 'could not be saved';
      throw fault('internal', `"${entry.name}" ${what}: ${causeText(cause)}`);
    } finally {
      this.#savingBytes -= contents.bytes;
      const left = (this.#tenantSaving.get(tenant) ?? 0) - contents.bytes;
      if (left > 0) this.#tenantSaving.set(tenant, left);
      else this.#tenantSaving.delete(tenant);
    }
    if (version.fileBytes === 0 && entry.removed) {
      throw fault('cancelled', `"${entry.name}" was removed while it was being saved`);
    }
  }

  #track(save: Promise<void>): Promise<void> {
    const done: Promise<void> = save
      // The caller that asked for the save receives the error through `save`.
      .catch(() => undefined)
      .then(() => {
        this.#saves.delete(done);
      });
    this.#saves.add(done);
    return save;
  }

  /** Marks `version` as safely stored and lets go of the one before. */
  #settle(entry: Entry<S>, version: Version<S>): void {
    const before = entry.settled;
    entry.settled = version;
    if (!before) return;
    this.#diskBytes -= before.fileBytes;
    this.#forget(entry, before);
  }

  /** Call when saving `version` failed: the name gets its former content back, or goes. */
  #undo(entry: Entry<S>, version: Version<S>): void {
    if (entry.removed) return;
    if (entry.current === version) {
      if (!entry.settled) {
        this.remove(entry);
        return;
      }
      entry.current = entry.settled;
    }
    this.#forget(entry, version);
  }

  /** Releases a version unless the name still refers to it. */
  #forget(entry: Entry<S>, version: Version<S>): void {
    if (version !== entry.current && version !== entry.settled) this.#release(version);
  }

  #release(version: Version<S>): void {
    const { snapshot } = version;
    if (!snapshot) return;
    version.snapshot = undefined;
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
      throw fault('internal', `its file cannot be removed: ${causeText(cause)}`);
    }
  }
}

/** The version whose pages memory can drop because its file holds them. */
function spare<S>({ settled }: Entry<S>): Version<S> | undefined {
  return settled?.snapshot && settled.fileBytes > 0 ? settled : undefined;
}

/** Versions that a new one makes superfluous at once. The settled version stays until a persistent new one is on disk. */
function replacedBy<S>({ current, settled }: Entry<S>, persistent: boolean): ReadonlySet<Version<S>> {
  const leaving = new Set([current]);
  if (settled && persistent) leaving.delete(settled);
  else if (settled) leaving.add(settled);
  return leaving;
}
