import { existsSync, statSync } from 'node:fs';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { IndexError } from '../protocol/errors.ts';
import {
  type Condition,
  type Entry,
  type FieldValue,
  METRICS,
  type Metadata,
  type Shape,
  type Size,
} from '../protocol/types.ts';
import { Cursors } from './cursors.ts';
import type { Ranked } from './fusion.ts';
import { SCHEMA, type Statements, statements, UNSETTLED, WITH_WORDS } from './statements.ts';

/** Version of the file format; the index host refuses files of other versions. */
const FORMAT = 1;
/** Bytes that each entry counts towards the limits besides its content. */
const ENTRY_BYTES = 128;
const FLOAT_BYTES = 4;
/** Bytes of entries that one transaction deletes, which takes about 10 ms. */
const DELETED_BYTES = 256 * 1024;
/** Bytes of texts whose words one transaction indexes or removes, which takes about 10 ms. */
const SETTLED_BYTES = 64 * 1024;
/**
 * The file is shrunk when more than this part of its pages, and more than `FREE_LEAST` pages, are free. Fewer free
 * pages stay for later writes.
 */
const FREE_PART = 0.25;
const FREE_LEAST = 1024;
/** Pages that the file loses in one piece of work. */
const SHRUNK_PAGES = 64;
/**
 * Length of the write-ahead log, in bytes, above which a write interrupts the open reads. Each of these reads then
 * starts its word search again, which takes about 10 ms.
 */
const LOG_BYTES = 16 * 2 ** 20;
/** Maximum prepared statements for conditions. */
const MAX_KEPT = 64;

/** A stored entry without its text. */
export interface Row {
  readonly key: number;
  readonly id: string;
  readonly metadata: Metadata;
  readonly vector: Float32Array;
}

/** A graph file: the key up to which it has every entry, its length in bytes, and the graph's scale. */
export interface SavedGraph {
  readonly key: number;
  readonly bytes: number;
  readonly scale: number;
}

export interface WriteResult {
  /** Keys of the entries that the write replaced or deleted. */
  readonly removed: readonly number[];
  /** Keys of the new entries, in order. */
  readonly added: readonly number[];
}

/** The entries of one index in SQLite: the truth, from which the graph can be made again. */
export class Records {
  readonly shape: Shape;
  readonly #db: DatabaseSync;
  readonly #statements: Statements;
  readonly #conditions = new Map<string, StatementSync>();
  readonly #cursors = new Cursors();
  /** False for a file that an earlier version of Pie made. Its free pages only serve later writes. */
  readonly #canShrink: boolean;
  #entries: number;
  #bytes: number;
  #unsettled: number;

  static create(file: string, shape: Shape): Records {
    return open(file, (db) => {
      db.exec(`BEGIN IMMEDIATE; ${SCHEMA}`);
      const insert = db.prepare('INSERT INTO facts VALUES (?, ?)');
      const facts = { format: FORMAT, ...shape, entries: 0, bytes: 0 };
      for (const [name, value] of Object.entries(facts)) insert.run(name, value);
      db.exec('COMMIT');
      return new Records(db);
    });
  }

  /** Opens a file; null when there is none, or its creation did not finish. @throws Error when the file cannot be looked up or read */
  static open(file: string): Records | null {
    if (!statSync(file, { throwIfNoEntry: false })) return null;
    return open(file, (db) => {
      if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'facts'").get()) return new Records(db);
      db.close();
      return null;
    });
  }

  private constructor(db: DatabaseSync) {
    this.#db = db;
    const facts = new Map(
      db
        .prepare('SELECT name, value FROM facts')
        .all()
        .map(({ name, value }) => [name, value]),
    );
    const metric = METRICS.find((one) => one === facts.get('metric'));
    if (facts.get('format') !== FORMAT || !metric) {
      throw new IndexError('internal', 'another version of Pie wrote the index; drop it and create it again');
    }
    this.shape = { name: String(facts.get('name')), dimensions: Number(facts.get('dimensions')), metric };
    this.#entries = Number(facts.get('entries'));
    this.#bytes = Number(facts.get('bytes'));
    db.exec(UNSETTLED);
    this.#canShrink = db.prepare('PRAGMA auto_vacuum').get()?.auto_vacuum === INCREMENTAL;
    this.#statements = statements(db);
    this.#unsettled = Number(this.#statements.countUnsettled.get()?.count);
  }

  /** Entries, and bytes that count towards the limits. */
  get size(): Size {
    return { entries: this.#entries, bytes: this.#bytes };
  }

  /** Number of texts whose words {@link settleWords} must still index or remove. */
  get unsettled(): number {
    return this.#unsettled;
  }

  /** Indexes words of some new texts, or removes words of deleted ones. A write leaves this work for later, as it may take longer than the write. */
  settleWords(): void {
    const { nextUnworded, insertWords, deleteUnworded, nextGone, deleteWords, deleteGone } = this.#statements;
    this.#transaction(() => {
      let settledBytes = 0;
      while (settledBytes < SETTLED_BYTES && this.#unsettled > 0) {
        const added = nextUnworded.get();
        const row = added ?? nextGone.get();
        if (!row) throw new Error('the count of unsettled texts is wrong');
        const [key, text] = [Number(row.key), String(row.text)];
        (added ? insertWords : deleteWords).run(key, text);
        (added ? deleteUnworded : deleteGone).run(key);
        settledBytes += text.length;
        this.#unsettled--;
      }
    });
  }

  /** True when deleted entries have left so many free pages that {@link shrink} must give some back to the disk. */
  get isSparse(): boolean {
    if (!this.#canShrink) return false;
    return this.#freePages > Math.max(FREE_LEAST, FREE_PART * Number(this.#statements.pages.get()?.page_count));
  }

  /** Moves some pages from the end of the file into free ones, and cuts the file. @returns false when it got no shorter */
  shrink(): boolean {
    this.#boundLog();
    const before = this.#freePages;
    this.#db.exec(`PRAGMA incremental_vacuum(${SHRUNK_PAGES})`);
    return this.#freePages < before;
  }

  get #freePages(): number {
    return Number(this.#statements.freePages.get()?.freelist_count);
  }

  /** Inserts entries, all or none; each replaces an earlier one with its id. @throws IndexError `limit-exceeded` when `room` is too small */
  upsert(entries: readonly Entry[], room: Size): WriteResult {
    const { insert, insertField, insertUnworded } = this.#statements;
    return this.#transaction(() => {
      const removed = entries.flatMap(({ id }) => this.#delete(id));
      const added = entries.map((entry) => {
        const metadata = JSON.stringify(entry.metadata);
        const bytes = entryBytes(entry, metadata);
        const { id, vector, text } = entry;
        const key = Number(insert.run(id, bytes, metadata, bytesOf(vector), text).lastInsertRowid);
        for (const [name, value] of entry.metadata) insertField.run(name, kindOf(value), sqlValue(value), key);
        if (text !== null) {
          insertUnworded.run(key);
          this.#unsettled++;
        }
        this.#count(1, bytes);
        return key;
      });
      this.#checkRoom(room);
      return { removed, added };
    });
  }

  /**
   * Deletes entries by id, in order, until {@link DELETED_BYTES} are deleted. An id without an entry is not an error. `taken` is the number of
   * ids that are done.
   */
  delete(ids: readonly string[]): Pick<WriteResult, 'removed'> & { readonly taken: number } {
    return this.#transaction(() => {
      const removed: number[] = [];
      const targetBytes = this.#bytes - DELETED_BYTES;
      let taken = 0;
      for (const id of ids) {
        if (this.#bytes <= targetBytes) break;
        removed.push(...this.#delete(id));
        taken++;
      }
      return { removed, taken };
    });
  }

  row(key: number): Row | null {
    const row = this.#statements.row.get(key);
    return row ? rowOf(row) : null;
  }

  /** Reads an entry's vector alone, in a third of the time that the whole row takes. */
  vector(key: number): Float32Array | null {
    const vector = this.#statements.vector.get(key)?.vector;
    return vector === undefined ? null : floatsOf(vector as Uint8Array);
  }

  /** An entry's content besides its vector. */
  content(key: number): Omit<Entry, 'vector'> | null {
    const row = this.#statements.content.get(key);
    if (!row) return null;
    const text = typeof row.text === 'string' ? row.text : null;
    return { id: String(row.id), text, metadata: JSON.parse(String(row.metadata)) as Metadata };
  }

  /** Up to `limit` entries after a key, in key order. */
  after(key: number, limit: number): Row[] {
    return this.#statements.after.all(key, limit).map(rowOf);
  }

  /** Largest key, 0 for an empty index. */
  lastKey(): number {
    return Number(this.#statements.lastKey.get()?.key ?? 0);
  }

  /** Keys of up to `limit` entries whose field fulfils a condition other than `not-equal`, in no order. */
  keysWith(condition: Condition, limit: number): number[] {
    const { field, comparison, values } = condition;
    const [first] = values;
    if (first === undefined) return [];
    const operator = OPERATORS[comparison] ?? '=';
    if (operator !== '=') {
      const statement = this.#condition(`value ${operator} ?`);
      return statement.all(field, kindOf(first), sqlValue(first), limit).map(keyOf);
    }
    const keys: number[] = [];
    for (const value of new Set(values)) {
      const statement = this.#condition('value = ?');
      keys.push(...statement.all(field, kindOf(value), sqlValue(value), limit - keys.length).map(keyOf));
    }
    return keys;
  }

  /** Number of entries whose texts have a word, up to `limit`. */
  countWord(word: string, limit: number): number {
    return Number(this.#statements.countWord.get(word, limit)?.count ?? 0);
  }

  /**
   * Key of one entry whose text has the word: the one to which exactly `newerCount` entries with the word are newer. 0 when at most `newerCount`
   * entries have the word.
   */
  keyWithWord(word: string, newerCount: number): number {
    return Number(this.#statements.keyWithWord.get(word, newerCount)?.key ?? 0);
  }

  /**
   * Entries with keys above `after` whose texts match the expression, with their BM25 scores. They are in the order of
   * their keys, because SQLite would rank them by score in one long piece of work.
   */
  withWords(expression: string, after: number): IteratorObject<Ranked, void, void> {
    // Several queries may read at once, and a statement has only one cursor: each query prepares its own statement.
    const statement = this.#db.prepare(WITH_WORDS);
    const rows = this.#cursors.rows((last) => statement.iterate(expression, last), after);
    return rows.map(({ key, score }) => ({ key: Number(key), score: -Number(score) }));
  }

  get graph(): SavedGraph | null {
    const key = this.#statements.fact.get('graphKey')?.value;
    const bytes = this.#statements.fact.get('graphBytes')?.value;
    const scale = this.#statements.fact.get('graphScale')?.value ?? 1;
    if (key === undefined || bytes === undefined) return null;
    return { key: Number(key), bytes: Number(bytes), scale: Number(scale) };
  }

  /** Records which file the graph has; null when it has none. */
  setGraph(saved: SavedGraph | null): void {
    const { setFact, deleteFact } = this.#statements;
    const facts = { graphKey: saved?.key, graphBytes: saved?.bytes, graphScale: saved?.scale };
    this.#transaction(() => {
      for (const [name, value] of Object.entries(facts)) {
        if (value === undefined) deleteFact.run(name);
        else setFact.run(name, value);
      }
    });
  }

  close(): void {
    this.#db.close();
  }

  #delete(id: string): number[] {
    const { find, deleteEntry, deleteField, deleteUnworded, insertGone } = this.#statements;
    const row = find.get(id);
    if (!row) return [];
    const key = Number(row.key);
    for (const [name, value] of JSON.parse(String(row.metadata)) as Metadata) {
      deleteField.run(name, kindOf(value), sqlValue(value), key);
    }
    if (typeof row.text === 'string') {
      const hasWords = deleteUnworded.run(key).changes === 0;
      if (hasWords) insertGone.run(key, row.text);
      this.#unsettled += hasWords ? 1 : -1;
    }
    deleteEntry.run(key);
    this.#count(-1, -Number(row.bytes));
    return [key];
  }

  #count(entries: number, bytes: number): void {
    this.#entries += entries;
    this.#bytes += bytes;
  }

  #checkRoom(room: Size): void {
    if (this.#entries <= room.entries && this.#bytes <= room.bytes) return;
    const text = `the tenant's indexes would exceed their limits: this one would have ${this.#entries} entries with ${this.#bytes} bytes, and has room for ${room.entries} entries and ${room.bytes} bytes; delete entries or indexes first`;
    throw new IndexError('limit-exceeded', text);
  }

  /**
   * When the write-ahead log is long, interrupts the open reads and truncates the log: SQLite cannot truncate it while a read is open. Runs before
   * each write, so that a failure leaves nothing half written.
   */
  #boundLog(): void {
    const log = `${this.#db.location()}-wal`;
    if (this.#cursors.isEmpty || (statSync(log, { throwIfNoEntry: false })?.size ?? 0) <= LOG_BYTES) return;
    this.#cursors.interrupt();
    this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  }

  #transaction<T>(work: () => T): T {
    this.#boundLog();
    const [sizeBefore, unsettled] = [this.size, this.#unsettled];
    this.#db.exec('BEGIN IMMEDIATE');
    try {
      const result = work();
      this.#statements.setFact.run('entries', this.#entries);
      this.#statements.setFact.run('bytes', this.#bytes);
      this.#db.exec('COMMIT');
      return result;
    } catch (error) {
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK');
      [this.#entries, this.#bytes, this.#unsettled] = [sizeBefore.entries, sizeBefore.bytes, unsettled];
      throw error;
    }
  }

  #condition(test: string): StatementSync {
    let statement = this.#conditions.get(test);
    if (!statement) {
      statement = this.#db.prepare(`SELECT key FROM fields WHERE name = ? AND kind = ? AND ${test} LIMIT ?`);
      if (this.#conditions.size < MAX_KEPT) this.#conditions.set(test, statement);
    }
    return statement;
  }
}

const OPERATORS: Readonly<Partial<Record<Condition['comparison'], string>>> = {
  less: '<',
  'at-most': '<=',
  greater: '>',
  'at-least': '>=',
};

/** SQLite's number for `auto_vacuum = INCREMENTAL`. */
const INCREMENTAL = 2;

/** Opens a database and does `work` with it; closes the database again when either fails. */
function open<T>(file: string, work: (db: DatabaseSync) => T): T {
  const isNew = !existsSync(file);
  const db = new DatabaseSync(file, { enableForeignKeyConstraints: false });
  try {
    // SQLite takes this setting only while the file is empty, and setting the journal mode writes to the file.
    if (isNew) db.exec('PRAGMA auto_vacuum = INCREMENTAL');
    db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -2000');
    db.exec(`PRAGMA journal_size_limit = ${LOG_BYTES}`);
    return work(db);
  } catch (error) {
    db.close();
    throw error;
  }
}

function entryBytes({ id, vector, text }: Entry, metadata: string): number {
  const texts = Buffer.byteLength(id) + Buffer.byteLength(text ?? '') + Buffer.byteLength(metadata);
  return ENTRY_BYTES + texts + vector.length * FLOAT_BYTES;
}

/** SQLite has no booleans, so the kind keeps `true` apart from 1. */
const kindOf = (value: FieldValue): string => typeof value;
const sqlValue = (value: FieldValue): SQLInputValue => (typeof value === 'boolean' ? Number(value) : value);
const keyOf = ({ key }: Record<string, unknown>): number => Number(key);

const bytesOf = (vector: Float32Array): Uint8Array =>
  new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength);

function rowOf({ key, id, metadata, vector }: Record<string, unknown>): Row {
  return {
    key: Number(key),
    id: String(id),
    metadata: JSON.parse(String(metadata)) as Metadata,
    vector: floatsOf(vector as Uint8Array),
  };
}

function floatsOf(bytes: Uint8Array): Float32Array {
  // A view of floats needs an address that is a multiple of four.
  const alignedBytes = bytes.byteOffset % FLOAT_BYTES === 0 ? bytes : bytes.slice();
  return new Float32Array(alignedBytes.buffer, alignedBytes.byteOffset, alignedBytes.byteLength / FLOAT_BYTES);
}
