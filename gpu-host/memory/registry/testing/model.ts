import assert from 'node:assert/strict';
import type { FileRights } from '../../../protocol/calls.ts';
import type { Caller, EntryKind } from '../entry.ts';

/** The expected state of a name. */
export interface KnownName {
  readonly tenant: string;
  readonly kind: EntryKind;
  readonly name: string;
  readonly contents: unknown;
  readonly pages: number;
  readonly tokens: number;
  readonly nextPosition: number;
  readonly persistent: boolean;
  /** The function that made the file, and its rights; undefined for an export. */
  readonly file: { readonly owner: string; readonly rights: FileRights } | undefined;
  /** Index of the language model that wrote the version. */
  readonly model: number;
  lock: string | undefined;
  inMemory: boolean;
  lastUse: number;
  /** True when the file was damaged. */
  damaged: boolean;
  /** True when the file may have been damaged before the registry read it: the registry may then lack the name. */
  doubtful: boolean;
}

export interface ModelLimits {
  readonly maxTenantPages: number;
  readonly maxTenantEntries: number;
  readonly maxSnapshotPages: number;
  readonly maxMemoryPages: number;
}

/** The tags that a call may be refused with, including `undefined` when it may succeed. */
export type Expected = readonly (string | undefined)[];

const OK: Expected = [undefined];

/**
 * Stands for the registry with a plain list of names: gives the expected answer of each call, and the expected pages in memory. Where the answer
 * depends on the byte of a file that was damaged, several answers are expected.
 */
export class Model {
  readonly limits: ModelLimits;
  known: KnownName[] = [];
  /** Index of the language model that the registry serves. */
  model = 0;
  #clock = 0;

  constructor(limits: ModelLimits) {
    this.limits = limits;
  }

  find(tenant: string, kind: EntryKind, name: string): KnownName | undefined {
    const owner = name.startsWith('system/') ? 'system' : tenant;
    return this.known.find((known) => known.tenant === owner && known.kind === kind && known.name === name);
  }

  /** True for a file of another language model, which can only be removed. */
  isForeign(known: KnownName): boolean {
    return known.model !== this.model;
  }

  expectExport(tenant: string, name: string, pages: number): Expected {
    const refusal = this.#nameRefusal(name) ?? systemRefusal(tenant, name);
    if (refusal) return [refusal];
    if (this.find(tenant, 'export', name)) return ['invalid-argument'];
    return this.#expectRoom(tenant, undefined, pages, true);
  }

  expectSave(caller: Caller, name: string, pages: number, persistent: boolean, rights: FileRights): Expected {
    const refusal = this.#nameRefusal(name) ?? systemRefusal(caller.tenant, name);
    if (refusal) return [refusal];
    const existing = this.find(caller.tenant, 'file', name);
    if (existing && (this.isForeign(existing) || existing.lock !== caller.inferlet)) return ['invalid-argument'];
    if (existing?.file && existing.file.rights !== rights && existing.file.owner !== caller.functionName) {
      return ['unsupported'];
    }
    return this.#expectRoom(caller.tenant, existing, pages, persistent);
  }

  expectImport(tenant: string, name: string): Expected {
    const refusal = this.#nameRefusal(name);
    if (refusal) return [refusal];
    const found = this.find(tenant, 'export', name);
    return found ? this.#expectLoad(found) : ['not-found'];
  }

  expectOpen(caller: Caller, name: string, write: boolean): Expected {
    const refusal = this.#nameRefusal(name);
    if (refusal) return [refusal];
    const found = this.find(caller.tenant, 'file', name);
    if (!found) return ['not-found'];
    if (found.doubtful) return ['internal', 'unsupported', 'unavailable', 'invalid-argument'];
    if (this.isForeign(found)) return ['invalid-argument'];
    if (!mayRead(caller, found)) return ['unsupported'];
    if (write && !mayWrite(caller, found)) return ['unsupported'];
    if (write && lockedByAnother(caller, found)) return ['unavailable'];
    return this.#expectLoad(found);
  }

  expectUnexport(tenant: string, name: string): Expected {
    const refusal = this.#nameRefusal(name);
    if (refusal) return [refusal];
    if (!this.find(tenant, 'export', name)) return ['not-found'];
    return [systemRefusal(tenant, name)];
  }

  expectRemove(caller: Caller, name: string): Expected {
    const refusal = this.#nameRefusal(name);
    if (refusal) return [refusal];
    const found = this.find(caller.tenant, 'file', name);
    if (!found) return ['not-found'];
    if (systemRefusal(caller.tenant, name)) return ['unsupported'];
    if (!mayWrite(caller, found)) return found.doubtful ? ['unsupported', undefined] : ['unsupported'];
    return lockedByAnother(caller, found) ? ['unavailable'] : OK;
  }

  /** Names that a list must hold, and names that it may hold, among those of which `isVisible` is true. */
  expectList(kind: EntryKind, isVisible: (known: KnownName) => boolean): { must: KnownName[]; may: KnownName[] } {
    const listable = this.known
      .filter((known) => known.kind === kind && !this.isForeign(known) && isVisible(known))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    return { must: listable.filter((known) => !known.doubtful), may: listable };
  }

  /** Gives a name new content. For persistent content, call this once the content is on disk. */
  put(version: Omit<KnownName, 'lastUse' | 'inMemory' | 'damaged' | 'doubtful' | 'model' | 'lock'>): void {
    const existing = this.find(version.tenant, version.kind, version.name);
    const added: KnownName = {
      ...version,
      model: this.model,
      lock: existing?.lock,
      inMemory: true,
      lastUse: ++this.#clock,
      damaged: false,
      doubtful: false,
    };
    const others = this.known.filter((known) => known !== existing);
    // While the new version is written, the old one still counts, and memory cannot drop the new one. Afterwards the old one counts no more,
    // and memory can drop the new one.
    if (version.persistent) {
      this.#shrink([...others, ...(existing ? [existing] : []), { ...added, persistent: false }]);
    }
    this.known = [...others, added];
    this.#shrink(this.known);
  }

  /** Records an open or import of a name. */
  use(known: KnownName): void {
    known.lastUse = ++this.#clock;
    if (known.inMemory) return;
    known.inMemory = true;
    this.#shrink(this.known);
  }

  remove(removed: KnownName): void {
    this.known = this.known.filter((known) => known !== removed);
  }

  releaseInferlet(inferlet: string): void {
    for (const known of this.known) if (known.lock === inferlet) known.lock = undefined;
  }

  /** Drops everything that does not survive a restart of the process, which then serves the language model `model`. */
  restart(model: number): void {
    this.model = model;
    this.known = this.known.filter(({ persistent }) => persistent);
    for (const known of this.known) {
      known.inMemory = false;
      known.lock = undefined;
      known.lastUse = 0;
      known.doubtful = known.damaged;
    }
  }

  memoryPages(): number {
    return this.known.reduce((sum, { inMemory, pages }) => sum + (inMemory ? pages : 0), 0);
  }

  #nameRefusal(name: string): string | undefined {
    return /^[A-Za-z0-9._/-]{1,128}$/.test(name) ? undefined : 'invalid-argument';
  }

  #expectRoom(tenant: string, existing: KnownName | undefined, pages: number, persistent: boolean): Expected {
    const { maxTenantPages, maxTenantEntries, maxSnapshotPages } = this.limits;
    const ownNames = this.known.filter((known) => known.tenant === tenant);
    if (pages > maxSnapshotPages) return ['limit-exceeded'];
    if (!existing && ownNames.length >= maxTenantEntries) return ['limit-exceeded'];
    const sum = (of: readonly KnownName[]): number => of.reduce((total, known) => total + known.pages, 0);
    const usable = ownNames.filter((known) => known !== existing && !this.isForeign(known));
    const minTenantPages = sum(usable.filter((known) => !known.doubtful)) + pages;
    if (minTenantPages > maxTenantPages) return ['limit-exceeded'];
    const room = this.#expectShare(tenant, pages, persistent ? undefined : existing);
    // The registry counts the pages of a doubtful name only if the file's header was intact when the registry read it.
    return sum(usable) + pages > maxTenantPages ? ['limit-exceeded', ...room] : room;
  }

  /** A tenant's share is half of what other tenants leave. */
  #expectShare(tenant: string, pages: number, leaving: KnownName | undefined): Expected {
    const ownPages = this.#fixedPages((known) => known !== leaving && known.tenant === tenant) + pages;
    const others = this.#fixedPages((known) => known.tenant !== tenant);
    return 2 * ownPages > this.limits.maxMemoryPages - others ? ['unavailable'] : OK;
  }

  /** Pages in memory that are not also on disk. */
  #fixedPages(isCounted: (known: KnownName) => boolean): number {
    const fixed = this.known.filter((known) => isCounted(known) && known.inMemory && !known.persistent);
    return fixed.reduce((total, known) => total + known.pages, 0);
  }

  #expectMemoryRoom(pages: number): Expected {
    return this.#fixedPages(() => true) + pages > this.limits.maxMemoryPages ? ['unavailable'] : OK;
  }

  #expectLoad(known: KnownName): Expected {
    if (known.inMemory) return OK;
    if (known.doubtful) return ['internal', 'unavailable', 'invalid-argument'];
    if (this.isForeign(known)) return ['invalid-argument'];
    const room = this.#expectMemoryRoom(known.pages);
    return room === OK && known.damaged ? ['internal'] : room;
  }

  #shrink(known: readonly KnownName[]): void {
    const heldPages = () => known.reduce((sum, { inMemory, pages }) => sum + (inMemory ? pages : 0), 0);
    while (heldPages() > this.limits.maxMemoryPages) {
      const evictable = known.filter(({ inMemory, persistent }) => inMemory && persistent);
      const oldest = evictable.reduce<KnownName | undefined>((a, b) => (a && a.lastUse < b.lastUse ? a : b), undefined);
      if (!oldest) return;
      oldest.inMemory = false;
    }
  }
}

/** Asserts that a refusal (or none) is among those expected. */
export function assertExpected(actual: string | undefined, expected: Expected, what: string): void {
  assert.ok(
    expected.includes(actual),
    `${what}: ${actual ?? 'accepted'}, expected ${expected.map((tag) => tag ?? 'accepted').join(' or ')}`,
  );
}

export function mayRead(caller: Caller, { name, file }: KnownName): boolean {
  return name.startsWith('system/') || file?.rights !== 'private' || file.owner === caller.functionName;
}

function mayWrite(caller: Caller, { name, file }: KnownName): boolean {
  return !systemRefusal(caller.tenant, name) && (file?.owner === caller.functionName || file?.rights === 'writable');
}

function lockedByAnother(caller: Caller, { lock }: KnownName): boolean {
  return lock !== undefined && lock !== caller.inferlet;
}

function systemRefusal(tenant: string, name: string): string | undefined {
  return name.startsWith('system/') && tenant !== 'system' ? 'unsupported' : undefined;
}
