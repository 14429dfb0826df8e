import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { isDamage } from '../engine/records.ts';
import { once, type Pieces } from '../engine/sizes.ts';
import { VectorIndex } from '../engine/vector-index.ts';
import { IndexError, type IndexStats, type IndexSum, type Shape, type Size } from '../protocol/types.ts';
import type { Turns } from './turns.ts';

/** Bounds of an index host. */
export interface Limits {
  /** Indexes of one tenant. */
  readonly indexes: number;
  /** Entries and bytes of all indexes of one tenant together. */
  readonly room: Size;
  /** Indexes that may be open at once. */
  readonly open: number;
  /** While the open indexes take more memory than this, idle ones are closed. Indexes in use may exceed it. */
  readonly openBytes: number;
}

const MIB = 2 ** 20;

/** Default bounds of a tenant's indexes. */
export const MAX_INDEX_BYTES = 512 * MIB;
export const MAX_INDEX_ENTRIES = 250_000;
export const MAX_INDEXES = 64;

export const LIMITS: Limits = {
  indexes: MAX_INDEXES,
  room: { entries: MAX_INDEX_ENTRIES, bytes: MAX_INDEX_BYTES },
  open: 256,
  openBytes: 1024 * MIB,
};

/** Memory of an open index besides its vectors: the cache of SQLite, which `records.ts` bounds. */
const OPEN_INDEX_BYTES = 2 * MIB;

/** Time from a failed save of an index to the next attempt. Attempts must be rare: a save takes time of the thread that serves all tenants. */
const SAVE_PAUSE_MS = 60_000;

/** Prefix for the directory of a dropped index. A process that is killed during the deletion leaves the directory behind. */
const DROPPED_PREFIX = '.dropped-';

interface OpenIndex {
  readonly tenant: string;
  readonly index: VectorIndex;
  /** Calls that use the index now. */
  users: number;
  /** The running maintenance; null while none runs. */
  maintenance: Promise<void> | null;
  /** Time before which no save begins, milliseconds of the catalog's clock. */
  nextSaveMs: number;
}

/** The part of the process's log that the index host uses. */
export interface Log {
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
}

/** The indexes of all tenants: which exist, which are open, and the room that each tenant has left. */
export class Catalog {
  readonly #directory: string;
  readonly #turns: Turns;
  readonly #limits: Limits;
  readonly #log: Log;
  readonly #now: () => number;
  /** Id of this run of the index host. With `#lastSequence` it tells a reader of two sums which one is newer. */
  readonly #life = randomUUID();
  /** Number of the last sum that `sum` returned. */
  #lastSequence = 0;
  /** Sizes of the indexes of each tenant that called since the start, by tenant and name. For an open index, `VectorIndex.stats` is newer. */
  readonly #stats = new Map<string, Map<string, IndexStats>>();
  /** Running reads of the sizes, by tenant. */
  readonly #loading = new Map<string, Promise<void>>();
  /** Indexes that are open or being opened, by path; the least recently used one first. */
  readonly #openings = new Map<string, Promise<OpenIndex | null>>();
  readonly #openIndexes = new Map<string, OpenIndex>();

  constructor(directory: string, turns: Turns, limits: Limits, log: Log, now: () => number = () => performance.now()) {
    this.#directory = directory;
    this.#turns = turns;
    this.#limits = limits;
    this.#log = log;
    this.#now = now;
  }

  get openIndexes(): number {
    return this.#openIndexes.size;
  }

  /**
   * Reads which indexes a tenant has. A later call retries the indexes that could not be read. Call `load` before the
   * other methods.
   */
  async load(tenant: string, signal: AbortSignal): Promise<void> {
    const knownStats = this.#stats.get(tenant);
    if (knownStats && ![...knownStats.values()].some(({ isUnread }) => isUnread)) return;
    let loading = this.#loading.get(tenant);
    if (!loading) {
      const read = knownStats ? this.#readAgain(tenant, knownStats) : this.#read(tenant);
      loading = this.#turns.run(tenant, read).finally(() => this.#loading.delete(tenant));
      this.#loading.set(tenant, loading);
    }
    await unlessAborted(loading, signal);
  }

  /** Does some short work in the tenant's turn. */
  turn<T>(tenant: string, work: () => T, signal: AbortSignal): Promise<T> {
    return this.#turns.run(tenant, once(work), signal);
  }

  /** Makes an index, or finds the tenant's index of that name. @throws IndexError `invalid-argument` when that index has another shape */
  create(tenant: string, shape: Shape): IndexStats {
    const tenantIndexes = this.list(tenant);
    const existing = tenantIndexes.find(({ name }) => name === shape.name);
    if (existing) {
      refuseBroken(existing);
      if (existing.dimensions === shape.dimensions && existing.metric === shape.metric) return existing;
      const text = `the index "${shape.name}" has ${existing.dimensions} dimensions and the metric ${existing.metric}; drop it first, or use another name`;
      throw new IndexError('invalid-argument', text);
    }
    if (tenantIndexes.length >= this.#limits.indexes) {
      const text = `the tenant has ${tenantIndexes.length} indexes, and at most ${this.#limits.indexes} are allowed; drop one first`;
      throw new IndexError('limit-exceeded', text);
    }
    const directory = this.#path(tenant, shape.name);
    // A creation that the process did not survive leaves a directory without an index.
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const index = VectorIndex.create(directory, shape);
    const { stats } = index;
    index.close();
    this.#knownStats(tenant).set(shape.name, stats);
    return stats;
  }

  /** Sizes of the tenant's indexes, by name. */
  list(tenant: string): IndexStats[] {
    const folder = this.#tenantPath(tenant);
    const current = [...this.#knownStats(tenant)].map(
      ([name, stats]) => this.#openIndexes.get(path.join(folder, name))?.index.stats ?? stats,
    );
    return current.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Adds up the bytes of all of the tenant's indexes. */
  sum(tenant: string): IndexSum {
    const bytes = this.list(tenant).reduce((sum, stats) => sum + stats.bytes, 0);
    return { bytes, life: this.#life, sequence: ++this.#lastSequence };
  }

  stats(tenant: string, name: string): IndexStats {
    const lastStats = this.#knownStats(tenant).get(name);
    const stats = lastStats && (this.#openIndexes.get(this.#path(tenant, name))?.index.stats ?? lastStats);
    if (!stats) throw notFound(name);
    return stats;
  }

  /**
   * The room that the tenant's other indexes leave to this one. `maxBytes` is the tenant's own limit for all of its
   * indexes, if the tenant has one.
   */
  room(tenant: string, name: string, maxBytes = Number.POSITIVE_INFINITY): Size {
    const otherIndexes = this.list(tenant).filter((stats) => stats.name !== name);
    const { room } = this.#limits;
    return {
      entries: room.entries - otherIndexes.reduce((sum, { entries }) => sum + entries, 0),
      bytes: Math.min(room.bytes, maxBytes) - otherIndexes.reduce((sum, { bytes }) => sum + bytes, 0),
    };
  }

  /** Does some work with an open index; the index stays open until the work ends. */
  async use<T>(
    tenant: string,
    name: string,
    work: (index: VectorIndex) => Pieces<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const opened = await this.#enter(tenant, name);
    try {
      return await this.#turns.run(tenant, work(opened.index), signal);
    } finally {
      opened.users--;
      this.#settle(opened);
    }
  }

  /** Like `use`, for work that adds entries: the call first waits for maintenance that has fallen behind. */
  async add<T>(tenant: string, name: string, work: (index: VectorIndex) => Pieces<T>, signal: AbortSignal): Promise<T> {
    const opened = await this.#enter(tenant, name);
    try {
      if (opened.index.isCrowded) {
        this.#settle(opened);
        await unlessAborted(opened.maintenance, signal);
      }
      return await this.#turns.run(tenant, work(opened.index), signal);
    } finally {
      opened.users--;
      this.#settle(opened);
    }
  }

  /** Deletes an index; returns false when there is none. Calls that use it end with `not-found`. */
  async drop(tenant: string, name: string, signal: AbortSignal): Promise<boolean> {
    const directory = this.#path(tenant, name);
    const droppedPath = path.join(path.dirname(directory), `${DROPPED_PREFIX}${randomUUID()}`);
    const remove = (): boolean | null => {
      const opened = this.#openIndexes.get(directory);
      if (!opened && this.#openings.has(directory)) return null;
      opened?.index.close();
      this.#forget(directory);
      if (!this.#knownStats(tenant).delete(name)) return false;
      renameSync(directory, droppedPath);
      return true;
    };
    for (;;) {
      // An index that does not open can be dropped, too.
      await this.#openings.get(directory)?.catch(() => null);
      const isRemoved = await this.turn(tenant, remove, signal);
      // Another call opens the index at this moment: wait for it and try again.
      if (isRemoved === null) continue;
      if (isRemoved) await rm(droppedPath, { recursive: true, force: true });
      return isRemoved;
    }
  }

  /** Saves what the open indexes have not saved, and closes them. */
  async close(): Promise<void> {
    const closing = [...this.#openIndexes.values()].map(async (opened) => {
      // Two saves at once would write and rename the same file.
      while (opened.maintenance) await opened.maintenance;
      await opened.index
        .save()
        .catch((error: unknown) => this.#log.error({ error, tenant: opened.tenant }, 'an index could not be saved'));
      opened.index.close();
    });
    await Promise.all(closing);
    this.#openings.clear();
    this.#openIndexes.clear();
  }

  /** Opens the index if necessary, and counts one more user of it. The caller must subtract that user. */
  async #enter(tenant: string, name: string): Promise<OpenIndex> {
    const directory = this.#path(tenant, name);
    for (;;) {
      refuseBroken(this.stats(tenant, name));
      const opening = this.#openings.get(directory) ?? this.#openNow(tenant, directory);
      // Reinserting makes it the most recently used one.
      this.#openings.delete(directory);
      this.#openings.set(directory, opening);
      const opened = await opening.catch((error: unknown) => {
        // `#openNow` removes a failed opening from the map. When `#makeRoom` throws, that removal comes too early:
        // the lines above put the rejected promise into the map afterwards.
        if (this.#openings.get(directory) === opening) this.#forget(directory);
        throw error;
      });
      if (!opened) throw notFound(name);
      // While this call waited, another one may have closed the index to make room.
      if (this.#openIndexes.get(directory) !== opened) continue;
      opened.users++;
      return opened;
    }
  }

  async #openNow(tenant: string, directory: string): Promise<OpenIndex | null> {
    try {
      this.#makeRoom();
      const index = await this.#turns.run(tenant, VectorIndex.open(directory));
      if (!index) {
        this.#forget(directory);
        return null;
      }
      const opened: OpenIndex = { tenant, index, users: 0, maintenance: null, nextSaveMs: 0 };
      this.#openIndexes.set(directory, opened);
      return opened;
    } catch (error) {
      this.#forget(directory);
      throw error;
    }
  }

  /** Makes room for one more open index. @throws IndexError `unavailable` when all are in use */
  #makeRoom(): void {
    this.#closeIdle(1, null);
    if (this.#openings.size < this.#limits.open) return;
    const text = `the index host has its maximum of ${this.#limits.open} indexes open, and calls use all of them; try again`;
    throw new IndexError('unavailable', text);
  }

  /**
   * Closes idle indexes except `keptIndex` while too many are open, or would be open with `extraCount` more. The next
   * one to close is the least recently used index of the tenant whose idle indexes take the most memory.
   */
  #closeIdle(extraCount: number, keptIndex: OpenIndex | null): void {
    const { open, openBytes } = this.#limits;
    while (this.#openings.size + extraCount > open || this.#memoryBytes + extraCount * OPEN_INDEX_BYTES > openBytes) {
      const idle = [...this.#openIndexes].filter(
        ([, opened]) => opened.users === 0 && !opened.maintenance && opened !== keptIndex,
      );
      const victim = leastNeeded(idle, [...this.#openings.keys()]);
      if (!victim) return;
      const [directory, { index }] = victim;
      this.#stats.get(victim[1].tenant)?.set(index.shape.name, index.stats);
      this.#forget(directory);
      // The graph need not be saved first: an index that opens takes newer entries from its records.
      index.close();
    }
  }

  get #memoryBytes(): number {
    const baseBytes = this.#openings.size * OPEN_INDEX_BYTES;
    return [...this.#openIndexes.values()].reduce((sum, { index }) => sum + index.memoryBytes, baseBytes);
  }

  /** Starts the maintenance that is due after a call, which may have made the index larger. */
  #settle(opened: OpenIndex): void {
    const { index } = opened;
    this.#closeIdle(0, opened);
    if (opened.maintenance || !(index.hasExcess || index.needsRebuild || this.#saveIsDue(opened))) return;
    opened.maintenance = this.#maintain(opened)
      .catch((error: unknown) => {
        // An index that was dropped needs no maintenance, and its files are gone.
        if (!index.isClosed) this.#log.error({ error, tenant: opened.tenant }, 'the maintenance of an index failed');
      })
      .finally(() => {
        opened.maintenance = null;
        this.#closeIdle(0, opened);
      });
  }

  async #maintain(opened: OpenIndex): Promise<void> {
    const { tenant, index } = opened;
    if (index.hasExcess) await this.#turns.run(tenant, index.absorbExcess());
    if (index.needsRebuild) await this.#turns.run(tenant, index.rebuild());
    if (!this.#saveIsDue(opened)) return;
    try {
      await index.save((work) => this.#turns.run(tenant, work));
    } catch (error) {
      opened.nextSaveMs = this.#now() + SAVE_PAUSE_MS;
      throw error;
    }
  }

  #saveIsDue({ index, nextSaveMs }: OpenIndex): boolean {
    return index.needsSave && this.#now() >= nextSaveMs;
  }

  #forget(directory: string): void {
    this.#openings.delete(directory);
    this.#openIndexes.delete(directory);
  }

  #knownStats(tenant: string): Map<string, IndexStats> {
    const knownStats = this.#stats.get(tenant);
    if (!knownStats) throw new Error('`load` was not called for the tenant');
    return knownStats;
  }

  *#read(tenant: string): Pieces<void> {
    const directory = this.#tenantPath(tenant);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const found = new Map<string, IndexStats>();
    for (const name of readdirSync(directory, { withFileTypes: true }).map((entry) => entry.name)) {
      if (name.startsWith(DROPPED_PREFIX)) rmSync(path.join(directory, name), { recursive: true, force: true });
      if (name.startsWith('.')) continue;
      const stats = statsIn(directory, name, this.#log);
      if (stats) found.set(name, stats);
      yield;
    }
    this.#stats.set(tenant, found);
  }

  *#readAgain(tenant: string, knownStats: Map<string, IndexStats>): Pieces<void> {
    for (const [name, { isUnread }] of knownStats) {
      if (!isUnread) continue;
      // The first failure is in the log; a call that repeats it must not fill the log.
      const stats = statsIn(this.#tenantPath(tenant), name, { error: () => undefined });
      if (stats) knownStats.set(name, stats);
      else knownStats.delete(name);
      yield;
    }
  }

  #tenantPath(tenant: string): string {
    return path.join(this.#directory, createHash('sha256').update(tenant).digest('hex').slice(0, 32));
  }

  #path(tenant: string, name: string): string {
    return path.join(this.#tenantPath(tenant), name);
  }
}

/** Finds the tenant whose idle indexes take the most memory, and returns the least recently used index among them. */
function leastNeeded(
  idle: readonly [string, OpenIndex][],
  directoriesByUse: readonly string[],
): [directory: string, OpenIndex] | null {
  const bytes = new Map<string, number>();
  for (const [, { tenant, index }] of idle) {
    bytes.set(tenant, (bytes.get(tenant) ?? 0) + OPEN_INDEX_BYTES + index.memoryBytes);
  }
  const [largestTenant] = [...bytes].sort(([, a], [, b]) => b - a)[0] ?? [];
  const ofLargestTenant = idle.filter(([, { tenant }]) => tenant === largestTenant);
  return ofLargestTenant.sort(([a], [b]) => directoriesByUse.indexOf(a) - directoriesByUse.indexOf(b))[0] ?? null;
}

/**
 * Reads the size of an index that is not open. Returns null when the folder has no index of that name. When reading
 * fails, logs the error and returns zeros: with `isBroken` when the file is damaged or another version of Pie wrote
 * it, with `isUnread` after any other failure.
 */
function statsIn(folder: string, name: string, log: Log): IndexStats | null {
  try {
    const stats = VectorIndex.stats(path.join(folder, name));
    return stats?.name === name ? stats : null;
  } catch (error) {
    log.error({ error, index: name, folder }, 'an index could not be read');
    const unknown = { name, dimensions: 0, metric: 'cosine', entries: 0, bytes: 0 } as const;
    return isDamage(error) ? { ...unknown, isBroken: true } : { ...unknown, isUnread: true };
  }
}

/** @throws IndexError `unavailable` for an index that cannot be read */
export function refuseBroken({ name, isBroken, isUnread }: IndexStats): void {
  if (isUnread) throw new IndexError('unavailable', `the index "${name}" cannot be read now; try again`);
  if (isBroken) throw new IndexError('unavailable', `the index "${name}" cannot be read: drop it and create it again`);
}

const notFound = (name: string): IndexError =>
  new IndexError('not-found', `the tenant has no index "${name}": create it first`);

async function unlessAborted(work: Promise<void> | null, signal: AbortSignal): Promise<void> {
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = () => reject(IndexError.from(signal.reason));
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
