import { statSync } from 'node:fs';
import path from 'node:path';
import { MAX_MATCHES_BYTES } from '../protocol/messages.ts';
import {
  type Condition,
  type Entry,
  type FieldValue,
  IndexError,
  type IndexStats,
  type Match,
  type Metadata,
  type Query,
  type Shape,
  type Size,
} from '../protocol/types.ts';
import { Graph, graphFile, longestOf, publishGraph, removeGraphs, removeGraphsSync, scaleFor } from './graph.ts';
import { Records, type Row, type SavedGraph } from './records.ts';
import { byScore, fuse, norm, type Ranked, similarity } from './similarity.ts';
import {
  CANDIDATES,
  CROWDED_LEAST,
  CROWDED_PART,
  CROWDED_TAILS,
  CROWDED_WORDS,
  FUSED_RANKS,
  LEAST_CANDIDATES,
  LEAST_FUSED,
  once,
  type Pieces,
  ROWS_AT_ONCE,
  runToEnd,
  SAVED_LEAST,
  SAVED_PART,
  SIZES,
  type Sizes,
  STALE_LEAST,
  STALE_PART,
  WORDED_AT_ONCE,
} from './sizes.ts';
import { Tail } from './tail.ts';
import { chosenWords, type WordCount, wordExpressions } from './words.ts';

const RECORDS = 'records.db';

/**
 * One index: entries in SQLite, the newest vectors in the tail, the older ones in the graph. While `#isWhole` holds, the graph has every entry up to
 * the key `#graphUpTo`. The graph keeps the keys of deleted entries. Methods that may take long are generators, which yield often.
 */
export class VectorIndex {
  readonly shape: Shape;
  readonly #directory: string;
  readonly #records: Records;
  readonly #sizes: Sizes;
  readonly #tail: Tail;
  #graph: Graph;
  /** Entries up to this key belong to the graph, and later ones to the tail; keys grow with each write. */
  #graphUpTo = 0;
  /** False while the graph lacks entries, because its file was lost or a vector was too long for its scale. Queries then compare each entry. */
  #isWhole = true;
  /** `#graphUpTo` at the last save; 0 when there was none since the graph was made. */
  #savedUpTo = 0;
  #isClosed = false;

  static create(directory: string, shape: Shape, sizes = SIZES): VectorIndex {
    return new VectorIndex(directory, Records.create(path.join(directory, RECORDS), shape), sizes);
  }

  /** Opens an index; null when the directory has none. */
  static *open(directory: string, sizes = SIZES): Pieces<VectorIndex | null> {
    const records = Records.open(path.join(directory, RECORDS));
    if (!records) return null;
    try {
      const index = new VectorIndex(directory, records, sizes);
      yield* index.#load();
      return index;
    } catch (error) {
      records.close();
      throw error;
    }
  }

  /** The size of an index that is not open; null when the directory has none. */
  static stats(directory: string): IndexStats | null {
    const records = Records.open(path.join(directory, RECORDS));
    if (!records) return null;
    try {
      return { ...records.shape, ...records.size };
    } finally {
      records.close();
    }
  }

  private constructor(directory: string, records: Records, sizes: Sizes) {
    this.#directory = directory;
    this.#records = records;
    this.#sizes = sizes;
    this.shape = records.shape;
    this.#tail = new Tail(this.shape.dimensions, this.shape.metric);
    this.#graph = this.#newGraph();
  }

  get stats(): IndexStats {
    return { ...this.shape, ...this.#records.size };
  }

  /** Approximate bytes of memory. */
  get memoryBytes(): number {
    return this.#graph.bytes + this.#tail.bytes;
  }

  /** Entries that the graph does not have yet. */
  get tailSize(): number {
    return this.#tail.size;
  }

  /** Inserts entries, all or none; each replaces an earlier one with its id. The first piece stores all of them. */
  *upsert(entries: readonly Entry[], room: () => Size): Pieces<void> {
    this.#checkOpen();
    const { removed, added } = this.#records.upsert(entries, room());
    for (const key of removed) this.#tail.delete(key);
    for (const [i, key] of added.entries()) this.#tail.push(key, (entries[i] as Entry).vector);
    // Writers also pay for the graph, so a tenant that fills an index waits for its own work.
    yield* this.absorbExcess();
  }

  /** True when `absorbExcess` has work: a cancelled write left it, or the index was closed with unindexed words or an unsaved graph. */
  get hasExcess(): boolean {
    if (this.#isClosed) return false;
    return this.#records.unsettled > 0 || this.#tail.size > this.#sizes.tail || this.#records.isSparse;
  }

  /** Brings words up to date, moves the oldest entries of a long tail into the graph, and gives free pages of the file back to the disk. */
  *absorbExcess(): Pieces<void> {
    this.#checkOpen();
    while (this.#records.unsettled > 0) {
      this.#records.settleWords();
      yield* this.#pause();
    }
    while (this.#tail.size > this.#sizes.tail) {
      this.#absorb();
      yield* this.#pause();
    }
    while (this.#records.isSparse && this.#records.shrink()) yield* this.#pause();
  }

  /** Deletes entries and returns their number. A call that ends early has deleted only the entries of the first ids. */
  *delete(ids: readonly string[]): Pieces<number> {
    this.#checkOpen();
    let count = 0;
    for (let at = 0; at < ids.length; ) {
      if (at > 0) yield* this.#pause();
      const { removed, taken } = this.#records.delete(ids.slice(at));
      for (const key of removed) this.#tail.delete(key);
      count += removed.length;
      at += taken;
    }
    // A call that deleted nothing need not fail when the index was dropped meanwhile, as it would with `#pause`. `absorbExcess` checks for the drop.
    yield;
    if (count > 0) yield* this.absorbExcess();
    return count;
  }

  /** The best matches, the best one first. */
  *query({ vector, text, filter, limit }: Query): Pieces<Match[]> {
    this.#checkOpen();
    const isHybrid = vector !== null && text !== null;
    const depth = isHybrid ? Math.max(LEAST_FUSED, FUSED_RANKS * limit) : limit;
    const nearest = vector === null ? null : yield* this.#nearest(vector, filter, depth);
    const bestByWords = text === null ? null : yield* this.#bestByWords(text, filter, depth);
    const ranked = nearest && bestByWords ? fuse([nearest, bestByWords]) : (nearest ?? bestByWords ?? []);
    const found: Match[] = [];
    let bytes = 0;
    for (const { key, score } of ranked) {
      if (found.length === limit) break;
      const content = this.#records.content(key);
      // Another call may have deleted the entry since an earlier piece of this query.
      if (!content) continue;
      found.push({ ...content, score });
      bytes += Buffer.byteLength(JSON.stringify(found.at(-1)));
      if (bytes > MAX_MATCHES_BYTES) {
        const text = `the first ${found.length} matches have more than ${MAX_MATCHES_BYTES} bytes together; ask for fewer, or store shorter texts`;
        throw new IndexError('limit-exceeded', text);
      }
      yield* this.#pause();
    }
    return found;
  }

  /** True when `rebuild` is due, because the graph lacks entries or has too many keys of deleted entries. */
  get needsRebuild(): boolean {
    return !this.#isWhole || this.#staleCount > Math.max(STALE_LEAST, STALE_PART * this.#graph.size);
  }

  /** True when additions must wait for maintenance, because otherwise the graph or the tail would grow without bound. */
  get isCrowded(): boolean {
    if (this.#tail.size > CROWDED_TAILS * this.#sizes.tail || this.#records.unsettled > CROWDED_WORDS) return true;
    return this.#staleCount > Math.max(CROWDED_LEAST, CROWDED_PART * this.#graph.size);
  }

  /** Makes the graph again from the entries. Queries use the old graph meanwhile. */
  *rebuild(): Pieces<void> {
    this.#checkOpen();
    const graph = this.#newGraph(scaleFor(yield* longestOf(this.#records)));
    for (let lastKey = 0; ; ) {
      const rows = this.#records.after(lastKey, ROWS_AT_ONCE).filter(({ key }) => key <= this.#graphUpTo);
      if (rows.length === 0) break;
      for (const { key, vector } of rows) {
        // A longer vector came meanwhile and needs another scale: give up. `needsRebuild` still holds.
        if (!graph.fits(vector)) return;
        graph.add(key, vector);
        lastKey = key;
        yield* this.#pause();
      }
    }
    this.#graph = graph;
    this.#isWhole = true;
    this.#savedUpTo = 0;
  }

  get needsSave(): boolean {
    return this.#isWhole && this.#graphUpTo - this.#savedUpTo > Math.max(SAVED_LEAST, SAVED_PART * this.#graph.size);
  }

  /**
   * Writes the graph to its file, unless the file is current or the graph is incomplete. Deletes the file of an empty graph. `run` executes the
   * parts that keep the thread busy. When a save fails, deletes all files of graphs except the one that the records name.
   */
  async save(run: <T>(work: Pieces<T>) => Promise<T> = runToEnd): Promise<void> {
    try {
      await this.#save(run);
    } catch (error) {
      // Parts of graphs must not fill a disk on which saves fail. An index that was dropped meanwhile has no files.
      if (!this.#isClosed) await removeGraphs(this.#directory, this.#records.graph?.key);
      throw error;
    }
  }

  async #save(run: <T>(work: Pieces<T>) => Promise<T>): Promise<void> {
    const written = await run(once(() => this.#write()));
    if (written === null) return;
    if (written === 'empty') return await removeGraphs(this.#directory);
    const { upTo } = written;
    const file = path.join(this.#directory, graphFile(upTo));
    await publishGraph(file);
    const isNoted = await run(
      once(() => {
        if (this.#isClosed) return false;
        this.#records.setGraph({ key: upTo, bytes: statSync(file).size, scale: written.scale });
        this.#savedUpTo = upTo;
        return true;
      }),
    );
    if (isNoted) await removeGraphs(this.#directory, upTo);
  }

  /** Writes the graph; returns its last key and its scale, 'empty' when it needs no file, or null when there is nothing to write. */
  #write(): { readonly upTo: number; readonly scale: number } | 'empty' | null {
    const upTo = this.#graphUpTo;
    if (!this.#isWhole || this.#isClosed || upTo === this.#savedUpTo) return null;
    if (this.#graph.size === 0) {
      // No entry up to this key is left: an index that opens without a graph finds all entries in its tail.
      this.#records.setGraph(null);
      this.#savedUpTo = upTo;
      return 'empty';
    }
    this.#graph.save(path.join(this.#directory, `${graphFile(upTo)}.new`));
    return { upTo, scale: this.#graph.scale };
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#records.close();
  }

  /** Number of the graph's keys whose entries were deleted or replaced. */
  get #staleCount(): number {
    return this.#graph.size - (this.#records.size.entries - this.#tail.size);
  }

  #newGraph(scale = 1): Graph {
    return new Graph(this.shape.dimensions, this.shape.metric, scale);
  }

  *#load(): Pieces<void> {
    const saved = this.#records.graph;
    removeGraphsSync(this.#directory, saved?.key);
    if (saved) {
      if (this.#loadGraph(saved)) {
        [this.#graphUpTo, this.#savedUpTo] = [saved.key, saved.key];
      } else {
        this.#graphUpTo = this.#records.lastKey();
        this.#isWhole = false;
      }
    }
    for (let lastKey = this.#graphUpTo; ; yield) {
      const rows = this.#records.after(lastKey, ROWS_AT_ONCE);
      for (const { key, vector } of rows) this.#tail.push(key, vector);
      if (rows.length < ROWS_AT_ONCE) break;
      lastKey = rows.at(-1)?.key ?? lastKey;
    }
  }

  /** Reads the graph's file; returns false when the file is missing or damaged, so that the graph must be made again. */
  #loadGraph({ key, bytes, scale }: SavedGraph): boolean {
    const file = path.join(this.#directory, graphFile(key));
    if (statSync(file, { throwIfNoEntry: false })?.size !== bytes) return false;
    try {
      this.#graph = this.#newGraph(scale);
      this.#graph.load(file);
      return true;
    } catch {
      this.#graph = this.#newGraph();
      return false;
    }
  }

  #absorb(): void {
    const oldest = this.#tail.take();
    if (!oldest) return;
    if (this.#graph.size === 0) this.#graph = this.#newGraph(scaleFor(norm(oldest.vector)));
    this.#graphUpTo = oldest.key;
    if (this.#graph.fits(oldest.vector)) this.#graph.add(oldest.key, oldest.vector);
    // The graph is scaled to far shorter vectors, and must be made again.
    else this.#isWhole = false;
  }

  *#nearest(vector: Float32Array, filter: readonly Condition[], limit: number): Pieces<Ranked[]> {
    const fewKeys = this.#fewKeys(filter);
    if (fewKeys) return yield* this.#nearestAmong(vector, fewKeys, filter, limit);
    const inTail = yield* this.#tailNearest(vector, filter, limit);
    const fromGraph = this.#isWhole ? yield* this.#graphNearest(vector, filter, limit) : null;
    const outsideTail = fromGraph ?? (yield* this.#allNearest(vector, filter, limit));
    // The tail may have given an entry to the graph between two pieces: then both lists have the entry.
    const merged = new Map([...inTail, ...outsideTail].map((ranked) => [ranked.key, ranked]));
    return [...merged.values()].sort(byScore).slice(0, limit);
  }

  /** The keys that pass the most selective condition other than `not-equal`; null when none of these leaves at most `maxCompared` entries. */
  #fewKeys(filter: readonly Condition[]): readonly number[] | null {
    let fewest: readonly number[] | null = null;
    for (const condition of filter.filter(isPositive)) {
      const keys = this.#records.keysWith(condition, this.#sizes.maxCompared + 1);
      if (keys.length <= this.#sizes.maxCompared && keys.length < (fewest?.length ?? Number.POSITIVE_INFINITY))
        fewest = keys;
    }
    return fewest;
  }

  *#nearestAmong(
    vector: Float32Array,
    keys: readonly number[],
    filter: readonly Condition[],
    limit: number,
  ): Pieces<Ranked[]> {
    const found: Ranked[] = [];
    for (const [i, key] of keys.entries()) {
      const row = this.#records.row(key);
      if (row && matches(filter, row.metadata)) found.push(this.#ranked(vector, row));
      if (i % ROWS_AT_ONCE === ROWS_AT_ONCE - 1) yield* this.#pause();
    }
    return found.sort(byScore).slice(0, limit);
  }

  *#tailNearest(vector: Float32Array, filter: readonly Condition[], limit: number): Pieces<Ranked[]> {
    const ranked = yield* this.#tail.ranked(vector);
    this.#checkOpen();
    return filter.length === 0 ? ranked.slice(0, limit) : yield* this.#filtered(ranked, filter, limit);
  }

  /** The first `limit` entries of a ranking that pass the filter. */
  *#filtered(ranked: Iterable<Ranked>, filter: readonly Condition[], limit: number): Pieces<Ranked[]> {
    const found: Ranked[] = [];
    let checkedCount = 0;
    for (const candidate of ranked) {
      const row = this.#records.row(candidate.key);
      if (row && matches(filter, row.metadata)) found.push(candidate);
      if (found.length === limit) break;
      if (++checkedCount % ROWS_AT_ONCE === 0) yield* this.#pause();
    }
    return found;
  }

  /** Matches from the graph; null when the filter and deletions leave too few of the entries near the vector. */
  *#graphNearest(vector: Float32Array, filter: readonly Condition[], limit: number): Pieces<Ranked[] | null> {
    const seenKeys = new Set<number>();
    const found: Ranked[] = [];
    for (let width = Math.max(LEAST_CANDIDATES, CANDIDATES * limit); ; width *= 4) {
      for (const key of this.#graph.near(vector, width)) {
        if (seenKeys.has(key)) continue;
        seenKeys.add(key);
        const entryVector = filter.length === 0 ? this.#records.vector(key) : this.#filteredVector(key, filter);
        if (entryVector) found.push({ key, score: similarity(this.shape.metric, vector, entryVector) });
        if (seenKeys.size % ROWS_AT_ONCE === 0) yield* this.#pause();
      }
      if (found.length >= limit || width >= this.#graph.size) return found.sort(byScore).slice(0, limit);
      if (width >= this.#sizes.width) return null;
    }
  }

  #filteredVector(key: number, filter: readonly Condition[]): Float32Array | null {
    const row = this.#records.row(key);
    return row && matches(filter, row.metadata) ? row.vector : null;
  }

  /** Compares all entries that the tail does not have. */
  *#allNearest(vector: Float32Array, filter: readonly Condition[], limit: number): Pieces<Ranked[]> {
    const upTo = this.#graphUpTo;
    let found: Ranked[] = [];
    for (let lastKey = 0; ; ) {
      const rows = this.#records.after(lastKey, ROWS_AT_ONCE);
      for (const row of rows) {
        if (row.key <= upTo && matches(filter, row.metadata)) found.push(this.#ranked(vector, row));
      }
      // Sort only when the list is several times as long as the result.
      if (found.length > 4 * limit + ROWS_AT_ONCE) found = found.sort(byScore).slice(0, limit);
      lastKey = rows.at(-1)?.key ?? upTo;
      if (rows.length < ROWS_AT_ONCE || lastKey >= upTo) return found.sort(byScore).slice(0, limit);
      yield* this.#pause();
    }
  }

  *#bestByWords(text: string, filter: readonly Condition[], limit: number): Pieces<Ranked[]> {
    const counted: WordCount[] = [];
    const maxWorded = this.#sizes.maxWorded;
    for (const word of wordExpressions(text)) {
      counted.push({ word, entries: this.#records.countWord(word, maxWorded + 1) });
      yield* this.#pause();
    }
    const words = chosenWords(counted, maxWorded);
    const [first] = words;
    if (first === undefined) return [];
    // When the only word is in more than `maxWorded` entries, rank the newest ones.
    const afterKey = words.length === 1 ? this.#records.keyWithWord(first, maxWorded) : 0;
    const ranked: Ranked[] = [];
    for (const match of this.#records.withWords(words.join(' OR '), afterKey)) {
      ranked.push(match);
      if (ranked.length % WORDED_AT_ONCE === 0) yield* this.#pause();
    }
    return yield* this.#filtered(ranked.sort(byScore), filter, limit);
  }

  #ranked(vector: Float32Array, { key, vector: entryVector }: Row): Ranked {
    return { key, score: similarity(this.shape.metric, vector, entryVector) };
  }

  *#pause(): Pieces<void> {
    yield;
    this.#checkOpen();
  }

  #checkOpen(): void {
    if (this.#isClosed) throw new IndexError('not-found', `the index "${this.shape.name}" was dropped meanwhile`);
  }
}

/** True when all conditions hold for the metadata. */
export function matches(filter: readonly Condition[], metadata: Metadata): boolean {
  return filter.every((condition) => holds(condition, metadata));
}

/**
 * True for a condition that only entries with the field can fulfil. `Records.keysWith` finds all such entries in the database's table of fields.
 * The exception is `not-equal`: it also holds for entries without the field, and these have no row in that table.
 */
export const isPositive = ({ comparison }: Condition): boolean => comparison !== 'not-equal';

function holds({ field, comparison, values }: Condition, metadata: Metadata): boolean {
  const value = metadata.find(([name]) => name === field)?.[1];
  const isOneOf = values.some((one) => one === value);
  if (comparison === 'equal') return isOneOf;
  if (comparison === 'not-equal') return !isOneOf;
  const [bound] = values;
  if (value === undefined || bound === undefined || typeof value !== typeof bound) return false;
  const order = compare(value, bound);
  if (comparison === 'less') return order < 0;
  if (comparison === 'at-most') return order <= 0;
  return comparison === 'greater' ? order > 0 : order >= 0;
}

function compare(one: FieldValue, other: FieldValue): number {
  if (typeof one === 'string') return Buffer.compare(Buffer.from(one), Buffer.from(String(other)));
  return Number(one) - Number(other);
}
