import type { Fingerprint } from '#gpu-host/models/fingerprint.ts';
import type { CallFault } from '../fault.ts';
import type { FileHeader } from './file-format.ts';
import type { EntryKind } from './names.ts';
import type { Ownership } from './rights.ts';

/** A name and what it stands for. */
export interface Entry<S> {
  readonly tenant: string;
  readonly kind: EntryKind;
  readonly name: string;
  /** What whoever opens the name sees. */
  current: Version<S>;
  /** The newest version that is where it should be (on disk, or in memory if that is enough): what is left when saving a newer one fails. */
  settled: Version<S> | undefined;
  /** The inferlet that may save it anew. */
  lock: string | undefined;
  removed: boolean;
}

export interface Version<S> {
  readonly pages: number;
  readonly tokens: number;
  readonly nextPosition: number;
  readonly persistent: boolean;
  /** Null for an export. */
  readonly file: Ownership | null;
  /** Larger for later ones. */
  readonly order: number;
  /** Undefined while it is on disk only. */
  snapshot: S | undefined;
  /** Bytes of its file; 0 while there is none. */
  fileBytes: number;
  lastUse: number;
}

/** A file that has the place of a name and cannot be used. */
export interface Refusal {
  readonly fault: CallFault;
  readonly fileName: string;
  readonly fileBytes: number;
  /** Undefined when not even that can be read, or it is about another name. */
  readonly header: FileHeader | undefined;
}

/** What one tenant has, by file name (`fileNameOf`). */
export interface Shelf<S> {
  readonly entries: Map<string, Entry<S>>;
  readonly refusals: Map<string, Refusal>;
}

/** What makes pages: those of another maker mean nothing here. */
export interface Maker {
  readonly fingerprint: Fingerprint;
  /** Slots, and bytes of keys and values, of a page. */
  readonly pageSize: number;
  readonly pageBytes: number;
}

export interface RegistryLimits {
  /** Pages of all names of a tenant, in memory or on disk; a page in two snapshots counts twice. */
  readonly maxTenantPages: number;
  /** Names of a tenant, exports and files together. */
  readonly maxTenantEntries: number;
  /** Pages of one snapshot. */
  readonly maxSnapshotPages: number;
  /**
   * Pages that all snapshots in memory hold together, so that they cannot fill the device. A tenant may take half of what the others leave
   * of it, not counting what can be had from disk again: however much others keep, there is room for the next one.
   */
  readonly maxMemoryPages: number;
  /** Bytes of all files of the model. */
  readonly maxDiskBytes: number;
  /** Bytes of pages that wait to be written, all saves together. */
  readonly maxSavingBytes: number;
}
