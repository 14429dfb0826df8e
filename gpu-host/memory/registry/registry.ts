import { randomUUID } from 'node:crypto';
import type { Fingerprint } from '#gpu-host/models/fingerprint.ts';
import type { ExportInfo, FileInfo, FileRights } from '../../protocol/calls.ts';
import { type CallFault, fault } from '../fault.ts';
import type { Lease } from '../leases.ts';
import { Entries } from './entries.ts';
import {
  type Caller,
  canRead,
  checkName,
  checkNewRights,
  checkRead,
  checkWritableBy,
  checkWrite,
  type Entry,
  type EntryKind,
  isSystemName,
  type Ownership,
  type RegistryLimits,
  SYSTEM_TENANT,
  tenantOfName,
  type Version,
} from './entry.ts';
import type { DeviceTurns, Refusal, Requester, Snapshot, SnapshotMemory } from './stored.ts';

export interface RegistryOptions<S extends Snapshot> {
  readonly memory: SnapshotMemory<S>;
  /** Slots of a page. */
  readonly pageSize: number;
  /** Bytes of the keys and values of a page. */
  readonly pageBytes: number;
  /** Pages of the device: the default limits on pages are this number or parts of it. */
  readonly pageCount: number;
  /** Directory of this model's persistent snapshots; only one process at a time may use it. Without it, no snapshot is persistent. */
  readonly kv?: { readonly directory: string; readonly fingerprint: Fingerprint } | undefined;
  /** Overrides of `defaultLimits`. */
  readonly limits?: Partial<RegistryLimits>;
}

export interface SaveOptions {
  readonly persistent: boolean;
  readonly rights: FileRights;
}

export interface RegistryStats {
  readonly exports: number;
  readonly files: number;
  /** Pages held in memory; a page in two snapshots counts twice. */
  readonly memoryPages: number;
  readonly diskBytes: number;
  /** Bytes of the saves under way. */
  readonly savingBytes: number;
}

/** The pages of an export, as its owner controls them. */
export interface ControlledExport<S> {
  readonly pages: number;
  /** Undefined while the pages are on disk only, and once the name is removed. */
  readonly snapshot: S | undefined;
  /** The last lease, which may have ended. */
  lease: Lease | undefined;
  /** Drops the pages that are also on disk. False when memory has to keep them. */
  drop(): boolean;
}

/** Maximum length of a function name, which goes into files and lists. */
const MAX_OWNER_LENGTH = 256;

/**
 * A tenant may give names to as many pages as the device has, most of them on disk. In memory, the names of all tenants together hold at most half as
 * many pages as the device has, so that the oldest inferlet always finds room. One tenant alone holds at most a quarter, not counting pages that are
 * also on disk.
 */
function defaultLimits(pageCount: number): RegistryLimits {
  return {
    maxTenantPages: pageCount,
    maxTenantEntries: 1024,
    maxSnapshotPages: 65_536,
    maxMemoryPages: Math.floor(pageCount / 2),
    maxDiskBytes: 16 * 1024 ** 3,
    maxSavingBytes: 1024 ** 3,
    bufferBytes: 4 * 1024 ** 2,
  };
}

/**
 * Named snapshots of one model's pages. There are two kinds: exports never change, and a KV file gets new content from the holder of its lock
 * (Symphony, HotOS '25). Names belong to tenants; those under `system/` belong to the tenant `system`, and every tenant can read them.
 *
 * Callers call all methods between device steps. A method that throws a CallFault has changed nothing. A promise that a method returns stands
 * for a save to disk or a restore from disk, which uses memory only in short turns between steps.
 */
export class PageRegistry<S extends Snapshot> {
  readonly #entries: Entries<S>;
  /** Locked files, by inferlet. */
  #locks = new Map<string, Set<Entry<S>>>();

  /** @throws file system errors when the directory cannot be made */
  constructor(options: RegistryOptions<S>) {
    const { memory, pageSize, pageBytes, pageCount, kv, limits } = options;
    this.#entries = new Entries(
      memory,
      { ...defaultLimits(pageCount), ...limits },
      kv && { directory: kv.directory, maker: { fingerprint: kv.fingerprint, pageSize, pageBytes } },
    );
  }

  /**
   * Keeps a snapshot under a free name. A persistent snapshot is on disk when the promise resolves. If its save fails, the promise rejects with a
   * CallFault, and the name is free again, unless the file is already published. Undefined when there is nothing to wait for.
   * @throws CallFault `invalid-argument` (malformed or taken name), `unsupported` (a name under `system/`, or nothing is persistent here),
   * `limit-exceeded`, `unavailable`
   */
  exportPages(
    tenant: string,
    name: string,
    snapshot: S,
    persistent: boolean,
    turns: DeviceTurns,
  ): Promise<void> | undefined {
    checkName(name);
    checkWritableBy(tenant, name);
    const existing = this.#entries.find(tenant, 'export', name);
    if (existing) throw takenFault(name, existing);
    return this.#entries.put(tenant, 'export', name, { snapshot, persistent, file: null }, turns);
  }

  /**
   * Gives the snapshot under a name to `use`: at once, or when it has come from disk. The registry may drop the snapshot once `use` has returned.
   * @throws CallFault `not-found`, `invalid-argument` (another model made it), what `use` throws. The promise also rejects with `internal`
   * (its file is damaged), `unavailable` (no room), `cancelled` (the requester ended), and what `requester` throws
   */
  importPages<T>(tenant: string, name: string, requester: Requester<S>, use: (snapshot: S) => T): T | Promise<T> {
    return this.#entries.load(() => this.#find(tenant, 'export', name), requester, use);
  }

  /** Forgets a name; importers keep its pages. @throws CallFault `not-found`, `unsupported` (under `system/`), `internal` */
  unexport(tenant: string, name: string): void {
    const found = this.#lookUp(tenant, 'export', name);
    checkWritableBy(tenant, name);
    if (isRefusal(found)) this.#entries.removeRefusal(tenant, found);
    else this.#entries.remove(found);
  }

  /**
   * Returns the means to lease the pages of one of the tenant's own exports, and to drop them from memory.
   * @throws CallFault `not-found`, `unsupported` (under `system/`), `invalid-argument` (malformed name, or another model made it)
   */
  controlExport(tenant: string, name: string): ControlledExport<S> {
    checkName(name);
    checkWritableBy(tenant, name);
    const entries = this.#entries;
    const entry = this.#find(tenant, 'export', name);
    return {
      pages: entry.current.pages,
      get snapshot() {
        return entry.current.snapshot;
      },
      get lease() {
        return entry.lease;
      },
      set lease(lease) {
        entry.lease = lease;
      },
      drop: () => entries.drop(entry),
    };
  }

  /** The version of an export's content. @throws CallFault as `importPages` */
  exportVersion(tenant: string, name: string): string {
    return versionName(this.#find(tenant, 'export', name));
  }

  /** The version of the content that `openFile` gives for reading. @throws CallFault as `openFile` */
  fileVersion(caller: Caller, name: string): string {
    return versionName(this.#findOpenable(caller, name, false));
  }

  /** The tenant's own exports, by name, without those of other models. */
  listExports(tenant: string): ExportInfo[] {
    return this.#entries.list(tenant, 'export').map(({ name, current }) => {
      const { pages, tokens, nextPosition, persistent } = current;
      return { name, pages, tokens, nextPosition, persistent };
    });
  }

  /**
   * Gives the content last saved under a name to `use`, as `importPages` does. With `write`, the inferlet takes the file's lock before `use` is
   * called, and keeps it until it unlocks the file or ends.
   * @throws CallFault as `importPages`, `unsupported` (no right), `unavailable` (locked)
   */
  openFile<T>(
    caller: Caller,
    name: string,
    write: boolean,
    requester: Requester<S>,
    use: (snapshot: S) => T,
  ): T | Promise<T> {
    return this.#entries.load(
      () => this.#findOpenable(caller, name, write),
      requester,
      (snapshot, entry) => {
        if (write) {
          // Another inferlet may have taken the lock while the pages came from disk.
          checkUnlocked(caller, entry);
          this.#lock(caller.inferlet, entry);
        }
        return use(snapshot);
      },
    );
  }

  /**
   * Saves a snapshot under a new name, or under a name whose lock the caller holds (and keeps). Others see the new content at once. Persistent
   * content is on disk when the promise resolves. If the save fails, the promise rejects with a CallFault, and the name gets its former content back,
   * unless the file is already published.
   * @throws CallFault `invalid-argument` (malformed or taken name), `unsupported` (no right, or nothing is persistent here),
   * `limit-exceeded`, `unavailable`
   */
  saveFile(
    caller: Caller,
    name: string,
    snapshot: S,
    options: SaveOptions,
    turns: DeviceTurns,
  ): Promise<void> | undefined {
    checkName(name);
    checkWritableBy(caller.tenant, name);
    if (caller.functionName.length > MAX_OWNER_LENGTH) {
      throw fault('invalid-argument', `a function's name has at most ${MAX_OWNER_LENGTH} characters`);
    }
    const { persistent, rights } = options;
    const existing = this.#entries.find(caller.tenant, 'file', name);
    if (existing) {
      if (isRefusal(existing) || existing.lock !== caller.inferlet) throw takenFault(name, existing);
      checkNewRights(caller, name, ownershipOf(existing), rights);
    }
    const owner = existing ? ownershipOf(existing).owner : caller.functionName;
    const content = { snapshot, persistent, file: { owner, rights } };
    return this.#entries.put(caller.tenant, 'file', name, content, turns);
  }

  /** Gives back a file's lock, if the caller holds it. @throws CallFault `invalid-argument` for a malformed name */
  unlockFile(caller: Caller, name: string): void {
    checkName(name);
    const entry = this.#entries.find(tenantOfName(caller.tenant, name), 'file', name);
    if (entry && !isRefusal(entry) && entry.lock === caller.inferlet) this.#unlock(entry);
  }

  /** Forgets a file; opened pages stay. @throws CallFault `not-found`, `unsupported` (no right), `unavailable` (locked), `internal` */
  removeFile(caller: Caller, name: string): void {
    const found = this.#lookUp(caller.tenant, 'file', name);
    checkWritableBy(caller.tenant, name);
    if (isRefusal(found)) {
      // A file with a damaged header has no known owner, so every function of the tenant may remove it.
      if (found.header?.file) checkWrite(caller, name, found.header.file);
      this.#entries.removeRefusal(caller.tenant, found);
      return;
    }
    checkWrite(caller, name, ownershipOf(found));
    checkUnlocked(caller, found);
    this.#entries.remove(found);
    this.#unlock(found);
  }

  /** Files of the caller's tenant and under `system/`, ordered by name: those that the caller may read and whose names begin with `prefix`. */
  listFiles(caller: Caller, prefix: string): FileInfo[] {
    const tenants = caller.tenant === SYSTEM_TENANT ? [SYSTEM_TENANT] : [caller.tenant, SYSTEM_TENANT];
    return tenants
      .flatMap((tenant) => this.#entries.list(tenant, 'file'))
      .filter(({ tenant, name }) => name.startsWith(prefix) && (tenant === caller.tenant || isSystemName(name)))
      .filter((entry) => canRead(caller, entry.name, ownershipOf(entry)))
      .sort((a, b) => (a.name < b.name ? -1 : 1))
      .map((entry) => {
        const { tokens, nextPosition, persistent } = entry.current;
        const { rights, owner } = ownershipOf(entry);
        return { name: entry.name, tokens, nextPosition, persistent, rights, owner, locked: entry.lock !== undefined };
      });
  }

  /** Frees the locks of an inferlet that has ended. */
  releaseInferlet(inferlet: string): void {
    for (const entry of this.#locks.get(inferlet) ?? []) entry.lock = undefined;
    this.#locks.delete(inferlet);
  }

  /** Counts only tenants seen since the start. */
  stats(): RegistryStats {
    const counts = { export: 0, file: 0 };
    for (const entry of this.#entries.knownEntries()) counts[entry.kind]++;
    return { exports: counts.export, files: counts.file, ...this.#entries.usage };
  }

  /** Waits for the saves and restores under way. */
  close(): Promise<void> {
    return this.#entries.close();
  }

  /** The entry or refusal under a name. @throws CallFault `invalid-argument` for a malformed name, `not-found` */
  #lookUp(tenant: string, kind: EntryKind, name: string): Entry<S> | Refusal {
    checkName(name);
    const found = this.#entries.find(tenantOfName(tenant, name), kind, name);
    if (!found) throw fault('not-found', `there is no ${kind === 'export' ? 'export' : 'KV file'} "${name}"`);
    return found;
  }

  /** @throws CallFault as `#lookUp`, and the fault of an unusable file */
  #find(tenant: string, kind: EntryKind, name: string): Entry<S> {
    const found = this.#lookUp(tenant, kind, name);
    if (isRefusal(found)) throw found.fault;
    return found;
  }

  #findOpenable(caller: Caller, name: string, write: boolean): Entry<S> {
    const entry = this.#find(caller.tenant, 'file', name);
    checkRead(caller, name, ownershipOf(entry));
    if (write) {
      checkWrite(caller, name, ownershipOf(entry));
      checkUnlocked(caller, entry);
    }
    return entry;
  }

  #lock(inferlet: string, entry: Entry<S>): void {
    entry.lock = inferlet;
    const lockedEntries = this.#locks.get(inferlet);
    if (lockedEntries) lockedEntries.add(entry);
    else this.#locks.set(inferlet, new Set([entry]));
  }

  #unlock(entry: Entry<S>): void {
    if (entry.lock === undefined) return;
    const lockedEntries = this.#locks.get(entry.lock);
    lockedEntries?.delete(entry);
    if (lockedEntries?.size === 0) this.#locks.delete(entry.lock);
    entry.lock = undefined;
  }
}

const versionNames = new WeakMap<Version<unknown>, string>();

/** A random name of an entry's current version. No other version ever gets the same name. */
function versionName<S>({ current }: Entry<S>): string {
  const name = versionNames.get(current as Version<unknown>) ?? randomUUID();
  versionNames.set(current as Version<unknown>, name);
  return name;
}

function isRefusal<S>(found: Entry<S> | Refusal): found is Refusal {
  return 'fault' in found;
}

function ownershipOf<S>(entry: Entry<S>): Ownership {
  const { file } = entry.current;
  if (!file) throw new Error(`"${entry.name}" is an export and has no owner`);
  return file;
}

function checkUnlocked<S>(caller: Caller, entry: Entry<S>): void {
  if (entry.lock !== undefined && entry.lock !== caller.inferlet) {
    throw fault('unavailable', `"${entry.name}" is locked by another inferlet`);
  }
}

function takenFault<S>(name: string, found: Entry<S> | Refusal): CallFault {
  if (isRefusal(found)) {
    return fault(
      'invalid-argument',
      `"${name}" is taken by a snapshot that cannot be used; remove it first (${found.fault.message})`,
    );
  }
  if (found.kind === 'export') return fault('invalid-argument', `the name "${name}" is taken; unexport it first`);
  return fault('invalid-argument', `the name "${name}" is taken; only the holder of its lock may save it anew`);
}
