import type { Fingerprint } from '#gpu-host/models/fingerprint.ts';
import type { PageLayout } from '../../protocol/calls.ts';
import type { CallFault } from '../fault.ts';
import type { Lease } from '../leases.ts';
import type { FileHeader } from './file-format.ts';
import type { EntryKind } from './names.ts';
import type { Ownership } from './rights.ts';

/** A name and its versions. */
export interface Entry<S> {
  readonly tenant: string;
  readonly kind: EntryKind;
  readonly name: string;
  /** The version that opening the name gives. */
  current: Version<S>;
  /** Newest version stored as asked (on disk, or in memory if that is enough); used when saving a newer one fails. */
  settled: Version<S> | undefined;
  /** Versions whose files are being written, oldest first. */
  readonly saving: Set<Version<S>>;
  /** The inferlet that may save the file anew. */
  lock: string | undefined;
  /** The last lease on the pages, which may have ended. */
  lease: Lease | undefined;
  removed: boolean;
}

/** A name with its first version. @param settled true when the version is stored as asked */
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
  /** Increases with each version; 0 for one that was found on disk. */
  readonly order: number;
  /** Undefined while the version is on disk only. */
  snapshot: S | undefined;
  /** Bytes of its file; 0 while there is none. */
  fileBytes: number;
}

/** An unusable file that takes the file name of an entry. */
export interface Refusal {
  readonly fault: CallFault;
  readonly fileName: string;
  readonly fileBytes: number;
  /** Undefined when the header cannot be read, or is about another name. */
  readonly header: FileHeader | undefined;
}

/** Entries and refusals of one tenant, by file name (`fileNameOf`). */
export interface Shelf<S> {
  readonly entries: Map<string, Entry<S>>;
  readonly refusals: Map<string, Refusal>;
}

/** The model that makes pages, as its host knows it; hosts tell each other `PagesMaker`. Pages of another maker cannot be used. */
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
   * Pages that all snapshots in memory hold together, so that they cannot fill the device. A tenant may take half of what the others leave,
   * so room for the next snapshot remains however many the others keep. Pages that are also on disk count for no tenant: they give way.
   */
  readonly maxMemoryPages: number;
  /** Maximum bytes of all files of the model. */
  readonly maxDiskBytes: number;
  /** Bytes of all saves under way together. A tenant may have half of what the others leave, so that its saves hold up no others. */
  readonly maxSavingBytes: number;
  /** Size of the buffer of a save or a restore; one page at least. One transfer to or from the disk moves this much. */
  readonly bufferBytes: number;
}

/** The versions that a name may come back to, as well as its current one. */
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

/** The new content of a name. */
export interface NewVersion<S> {
  readonly snapshot: S;
  readonly persistent: boolean;
  /** Null for an export. */
  readonly file: Ownership | null;
}

/** The version whose pages memory can drop because its file holds them. */
export function evictable<S>({ settled }: Entry<S>): Version<S> | undefined {
  return settled?.snapshot && settled.fileBytes > 0 ? settled : undefined;
}

/**
 * Versions that a new version replaces at once. A version that is not persistent replaces all. A persistent one leaves those that are stored
 * or being saved until it is on disk itself.
 */
export function replacedBy<S>(entry: Entry<S>, persistent: boolean): ReadonlySet<Version<S>> {
  if (!persistent) return versionsOf(entry);
  const { current, settled, saving } = entry;
  return current === settled || saving.has(current) ? new Set() : new Set([current]);
}
