import { createHash } from 'node:crypto';
import type { Fingerprint } from '#gpu-host/models/fingerprint.ts';
import type { FileRights, PageLayout } from '../../protocol/calls.ts';
import { refuseName } from '../../protocol/errors.ts';
import { CallFault, fault } from '../fault.ts';
import type { Lease } from '../leases.ts';

/** A name of an export or a KV file, and the versions of its content. `S` is the type of snapshots. */
export interface Entry<S> {
  readonly tenant: string;
  readonly kind: EntryKind;
  readonly name: string;
  /** The version that an inferlet gets when it imports or opens the name. */
  current: Version<S>;
  /** The newest version that is stored as its save asked: on disk if persistent, else in memory. If all newer saves fail, it becomes current. */
  settled: Version<S> | undefined;
  /** Versions whose files are being written, oldest first. */
  readonly saving: Set<Version<S>>;
  /** The inferlet that may save the file anew. */
  lock: string | undefined;
  /** The last lease on the pages, which may have ended. */
  lease: Lease | undefined;
  removed: boolean;
}

/** A name with its first version. @param settled true when the version is stored already where its save asked for */
export function entryOf<S>(
  { tenant, kind, name }: Pick<Entry<S>, 'tenant' | 'kind' | 'name'>,
  version: Version<S>,
  settled: boolean,
): Entry<S> {
  return {
    tenant,
    kind,
    name,
    current: version,
    saving: new Set(),
    settled: settled ? version : undefined,
    lock: undefined,
    lease: undefined,
    removed: false,
  };
}

export interface Version<S> {
  readonly pages: number;
  readonly tokens: number;
  readonly nextPosition: number;
  readonly persistent: boolean;
  /** Null for an export. */
  readonly file: Ownership | null;
  /** Number that increases with each version of all names; 0 for a version that was found on disk at the start. */
  readonly order: number;
  /** Undefined while the version is on disk only. */
  snapshot: S | undefined;
  /** Bytes of the version's file; 0 while it has none. */
  fileBytes: number;
}

/** The model that makes the pages of a registry. A registry cannot use pages of another maker. Other hosts get the maker as `PagesMaker`. */
export interface Maker extends PageLayout {
  readonly fingerprint: Fingerprint;
}

export interface RegistryLimits {
  /** Pages of all names of a tenant, in memory or on disk; a page in two snapshots counts twice. */
  readonly maxTenantPages: number;
  /** Names of a tenant, exports and files together. */
  readonly maxTenantEntries: number;
  /** Pages of one snapshot. */
  readonly maxSnapshotPages: number;
  /**
   * Maximum pages that all snapshots in memory hold together, so that they cannot fill the device. A tenant may take half of what the others leave,
   * so that there is always room for another tenant's next snapshot. Pages that are also on disk count for no tenant, because memory can
   * drop them.
   */
  readonly maxMemoryPages: number;
  /** Maximum bytes of all files of the model. */
  readonly maxDiskBytes: number;
  /** Maximum bytes of all saves under way together. A tenant may have half of what the others leave, so that its saves hold up no other tenant. */
  readonly maxSavingBytes: number;
  /** Bytes of the buffer of a save or a restore, at least one page: each transfer to or from the disk moves this many. */
  readonly bufferBytes: number;
}

/** The current version of a name, and the versions to which it may return when a save fails. */
export function versionsOf<S>({ current, settled, saving }: Entry<S>): Set<Version<S>> {
  const versions = new Set(saving).add(current);
  return settled ? versions.add(settled) : versions;
}

/** True while the name refers to the version: it is current, stored as asked, or being saved and newer than what is stored. */
export function isWanted<S>({ current, settled, saving, removed }: Entry<S>, version: Version<S>): boolean {
  if (removed) return false;
  if (version === current || version === settled) return true;
  return saving.has(version) && version.order > (settled?.order ?? 0);
}

/** New content for a name, as a save or an export gives it. */
export interface NewVersion<S> {
  readonly snapshot: S;
  readonly persistent: boolean;
  /** Null for an export. */
  readonly file: Ownership | null;
}

/** The version of a name whose pages memory can drop because a file has them; undefined if there is none. */
export function evictable<S>({ settled }: Entry<S>): Version<S> | undefined {
  return settled?.snapshot && settled.fileBytes > 0 ? settled : undefined;
}

/**
 * The versions of a name that a new version replaces at once. A version that is not persistent replaces all others. A persistent version replaces
 * only a current version that is neither stored nor being saved: the others stay until the new version is on disk.
 */
export function replacedBy<S>(entry: Entry<S>, persistent: boolean): ReadonlySet<Version<S>> {
  if (!persistent) return versionsOf(entry);
  const { current, settled, saving } = entry;
  return current === settled || saving.has(current) ? new Set() : new Set([current]);
}

/** The inferlet that makes a call. */
export interface Caller {
  readonly tenant: string;
  /** Id of this attempt to run the inferlet; an earlier attempt that still lingers has another id. A lock belongs to one attempt and ends with it. */
  readonly inferlet: string;
  /** The function that the inferlet runs. Rights belong to functions. */
  readonly functionName: string;
}

/** Owner of a file, and the rights of other functions. */
export interface Ownership {
  /** The function that made the file. */
  readonly owner: string;
  readonly rights: FileRights;
}

/** Every function may read a file under `system/`, whatever the rights of the file. */
export function canRead(caller: Caller, name: string, file: Ownership): boolean {
  return isSystemName(name) || file.rights !== 'private' || file.owner === caller.functionName;
}

export function checkRead(caller: Caller, name: string, file: Ownership): void {
  if (!canRead(caller, name, file)) throw fault('unsupported', `"${name}" is private to the function "${file.owner}"`);
}

export function checkWrite(caller: Caller, name: string, file: Ownership): void {
  checkWritableBy(caller.tenant, name);
  if (file.owner !== caller.functionName && file.rights !== 'writable') {
    throw fault('unsupported', `only the function "${file.owner}" may write "${name}", which is ${file.rights}`);
  }
}

/** A function with the right to write a file may give it new content; only the owner may change the rights. */
export function checkNewRights(caller: Caller, name: string, file: Ownership, rights: FileRights): void {
  if (rights !== file.rights && file.owner !== caller.functionName) {
    throw fault(
      'unsupported',
      `only the function "${file.owner}" may change the rights of "${name}" from ${file.rights} to ${rights}`,
    );
  }
}

/** Exports and KV files have separate name spaces. */
export type EntryKind = 'export' | 'file';

/** The tenant whose names under `system/` every tenant can read. */
export const SYSTEM_TENANT = 'system';
const SYSTEM_PREFIX = 'system/';

/** @throws CallFault `invalid-argument` for a malformed name */
export function checkName(name: string): void {
  const refused = refuseName(name);
  if (refused) throw new CallFault(refused);
}

export function isSystemName(name: string): boolean {
  return name.startsWith(SYSTEM_PREFIX);
}

/** The tenant that owns `name` when `tenant` uses it. */
export function tenantOfName(tenant: string, name: string): string {
  return isSystemName(name) ? SYSTEM_TENANT : tenant;
}

/** @throws CallFault `unsupported` when `tenant` may not write `name` */
export function checkWritableBy(tenant: string, name: string): void {
  if (isSystemName(name) && tenant !== SYSTEM_TENANT) {
    throw fault('unsupported', `names under "${SYSTEM_PREFIX}" are written by operators only`);
  }
}

/** The file name of an entry. It has a hash instead of the name, so that no input of a tenant becomes part of a path. */
export function fileNameOf(kind: EntryKind, name: string): string {
  return `${kind}-${digest(name)}.kv`;
}

export function directoryNameOf(tenant: string): string {
  return digest(tenant);
}

function digest(text: string): string {
  // Hashes UTF-16, because UTF-8 would turn every lone surrogate into the same character. 40 hex digits are 160 bits, enough to rule out
  // two names with the same hash.
  return createHash('sha256').update(text, 'utf16le').digest('hex').slice(0, 40);
}
