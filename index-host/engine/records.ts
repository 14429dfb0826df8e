import { existsSync, statSync } from 'node:fs';
import { DatabaseSync, type SQLInputValue, type SQLOutputValue, type StatementSync } from 'node:sqlite';
import {
  type Condition,
  type Entry,
  type FieldValue,
  IndexError,
  METRICS,
  type Metadata,
  type Shape,
  type Size,
} from '../protocol/types.ts';
import type { Ranked } from './similarity.ts';
import { TOKENIZER } from './words.ts';

/** Version of the file format; the index host refuses files of other versions. */
const FORMAT = 1;
/** Bytes that an entry counts towards the limits in addition to the bytes of its content. */
const ENTRY_BYTES = 128;
const FLOAT_BYTES = 4;
/** One transaction of `delete` ends when it has deleted entries of this many bytes, after about 10 ms. */
const DELETED_BYTES = 256 * 1024;
/** One transaction of `settleWords` ends when it has indexed or removed the words of this many characters of text, after about 10 ms. */
const SETTLED_CHARACTERS = 64 * 1024;
/**
 * The file is shrunk when more than this part of its pages, and more than `FREE_LEAST` pages, are free. Fewer free pages stay in the file for later
 * writes.
 */
const FREE_PART = 0.25;
/** Number of free pages up to which the file is not shrunk. */
const FREE_LEAST = 1024;
/** Maximum free pages that one call of `shrink` gives back to the disk. */
const SHRUNK_PAGES = 64;
/**
 * When the write-ahead log has more bytes than this, a write interrupts the open reads, so that SQLite can truncate the log. Each interrupted read
 * then starts its word search again, which takes about 10 ms.
 */
const LOG_BYTES = 16 * 2 ** 20;
/** Maximum prepared statements for conditions that `Records` keeps. */
const MAX_KEPT = 64;

/** A stored entry without its text. */
export interface Row {
  readonly key: number;
  readonly id: string;
  readonly metadata: Metadata;
  readonly vector: Float32Array;
}

/** The last saved file of the index's graph. */
export interface SavedGraph {
  /** The file has every entry up to this key. */
  readonly key: number;
  /** Length of the file. */
  readonly bytes: number;
  /** Factor by which the graph multiplies its vectors. */
  readonly scale: number;
}

export interface WriteResult {
  /** Keys of the entries that the write replaced or deleted. */
  readonly removed: readonly number[];
  /** Keys of the new entries, in the order in which the write named the entries. */
  readonly added: readonly number[];
}

/** The entries of one index, stored in SQLite. The graph is derived from them and can be made again. */
export class Records {
  readonly shape: Shape;
  readonly #db: DatabaseSync;
  readonly #statements: Statements;
  readonly #conditions = new Map<string, StatementSync>();
  readonly #cursors = new Cursors();
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

  /**
   * Opens a file. Returns null when the file does not exist, or when its creation did not finish.
   * @throws Error when the file cannot be looked up or read
   */
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
    this.#statements = statements(db);
    this.#unsettled = Number(this.#statements.countUnsettled.get()?.count);
  }

  /** Number of entries, and number of bytes that count towards the limits. */
  get size(): Size {
    return { entries: this.#entries, bytes: this.#bytes };
  }

  /** Number of texts whose words {@link settleWords} must still index or remove. */
  get unsettled(): number {
    return this.#unsettled;
  }

  /**
   * Indexes the words of some new texts, or removes the words of some deleted texts. A write leaves this work to later calls of `settleWords`,
   * because the work may take longer than the write.
   */
  settleWords(): void {
    const { nextUnworded, insertWords, deleteUnworded, nextGone, deleteWords, deleteGone } = this.#statements;
    this.#transaction(() => {
      let settledCharacters = 0;
      while (settledCharacters < SETTLED_CHARACTERS && this.#unsettled > 0) {
        const newRow = nextUnworded.get();
        const row = newRow ?? nextGone.get();
        if (!row) throw new Error('the count of unsettled texts is wrong');
        const [key, text] = [Number(row.key), String(row.text)];
        if (newRow) {
          insertWords.run(key, text);
          deleteUnworded.run(key);
        } else {
          deleteWords.run(key, text);
          deleteGone.run(key);
        }
        settledCharacters += text.length;
        this.#unsettled--;
      }
    });
  }

  /** True when deleted entries have left so many free pages that {@link shrink} must give some back to the disk. */
  get isSparse(): boolean {
    return this.#freePages > Math.max(FREE_LEAST, FREE_PART * Number(this.#statements.pages.get()?.page_count));
  }

  /** Moves some pages from the end of the file to free pages, and shortens the file. @returns false when the file got no shorter */
  shrink(): boolean {
    this.#boundLog();
    const freePagesBefore = this.#freePages;
    this.#db.exec(`PRAGMA incremental_vacuum(${SHRUNK_PAGES})`);
    return this.#freePages < freePagesBefore;
  }

  get #freePages(): number {
    return Number(this.#statements.freePages.get()?.freelist_count);
  }

  /**
   * Inserts all entries or, when it fails, none. An entry replaces an earlier entry with the same id.
   * @throws IndexError `limit-exceeded` when the index would be larger than `room`
   */
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
        this.#addToSize(1, bytes);
        return key;
      });
      this.#checkRoom(room);
      return { removed, added };
    });
  }

  /**
   * Deletes entries by id, in the order of `ids`, until {@link DELETED_BYTES} are deleted. An id without an entry is skipped.
   * @returns the keys of the deleted entries; `taken` is the number of ids that were handled, and the caller passes the other ids to the next call
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

  /** Reads only the vector of an entry. This takes a third of the time of reading the whole row. */
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

  /** Up to `limit` entries whose keys are larger than `key`, in key order. */
  after(key: number, limit: number): Row[] {
    return this.#statements.after.all(key, limit).map(rowOf);
  }

  /** Largest key, 0 for an empty index. */
  lastKey(): number {
    return Number(this.#statements.lastKey.get()?.key ?? 0);
  }

  /** Keys of up to `limit` entries that fulfil a condition, in no particular order. @param condition any comparison but `not-equal` */
  keysWith(condition: Condition, limit: number): number[] {
    const { field, comparison, values } = condition;
    const [first] = values;
    if (first === undefined) return [];
    const operator = OPERATORS[comparison];
    if (operator !== undefined) {
      const statement = this.#condition(`value ${operator} ?`);
      return statement.all(field, kindOf(first), sqlValue(first), limit).map(keyOf);
    }
    // `equal`: the field has one of the values.
    const keys: number[] = [];
    for (const value of new Set(values)) {
      const statement = this.#condition('value = ?');
      keys.push(...statement.all(field, kindOf(value), sqlValue(value), limit - keys.length).map(keyOf));
    }
    return keys;
  }

  /** Counts the entries whose texts have a word, and stops at `limit`. */
  countWord(word: string, limit: number): number {
    return Number(this.#statements.countWord.get(word, limit)?.count ?? 0);
  }

  /**
   * Lists the entries whose texts have the word, the newest entry first, and returns the key of the entry at index `newerCount`. Returns 0 when the
   * list is not that long.
   */
  keyWithWord(word: string, newerCount: number): number {
    return Number(this.#statements.keyWithWord.get(word, newerCount)?.key ?? 0);
  }

  /**
   * Entries whose keys are larger than `after` and whose texts match the expression, with their BM25 scores. The entries come in the order of their
   * keys: to order them by score, SQLite would need one long piece of work.
   */
  withWords(expression: string, after: number): IteratorObject<Ranked, void, void> {
    // Several queries may read at once. A statement has only one cursor, so each query prepares a statement of its own.
    const statement = this.#db.prepare(WITH_WORDS);
    const rows = this.#cursors.rows((last) => statement.iterate(expression, last), after);
    // SQLite gives better matches lower scores.
    return rows.map(({ key, score }) => ({ key: Number(key), score: -Number(score) }));
  }

  get graph(): SavedGraph | null {
    const key = this.#statements.fact.get('graphKey')?.value;
    const bytes = this.#statements.fact.get('graphBytes')?.value;
    const scale = this.#statements.fact.get('graphScale')?.value ?? 1;
    if (key === undefined || bytes === undefined) return null;
    return { key: Number(key), bytes: Number(bytes), scale: Number(scale) };
  }

  /** Stores which file has the graph. @param saved null when no file has it */
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

  /** Deletes the entry with an id. Returns its key in a list; the list is empty when there is no such entry. */
  #delete(id: string): number[] {
    const { find, deleteEntry, deleteField, deleteUnworded, insertGone } = this.#statements;
    const row = find.get(id);
    if (!row) return [];
    const key = Number(row.key);
    for (const [name, value] of JSON.parse(String(row.metadata)) as Metadata) {
      deleteField.run(name, kindOf(value), sqlValue(value), key);
    }
    if (typeof row.text === 'string') {
      const wasUnworded = deleteUnworded.run(key).changes > 0;
      if (wasUnworded) {
        this.#unsettled--;
      } else {
        // The words of the text are indexed: `settleWords` must remove them.
        insertGone.run(key, row.text);
        this.#unsettled++;
      }
    }
    deleteEntry.run(key);
    this.#addToSize(-1, -Number(row.bytes));
    return [key];
  }

  #addToSize(entries: number, bytes: number): void {
    this.#entries += entries;
    this.#bytes += bytes;
  }

  #checkRoom(room: Size): void {
    if (this.#entries <= room.entries && this.#bytes <= room.bytes) return;
    const text = `the tenant's indexes would exceed their limits: this one would have ${this.#entries} entries with ${this.#bytes} bytes, and has room for ${room.entries} entries and ${room.bytes} bytes; delete entries or indexes first`;
    throw new IndexError('limit-exceeded', text);
  }

  /**
   * When the write-ahead log is long, interrupts the open reads and truncates the log, which SQLite cannot do while a read is open. Every write calls
   * this before it changes anything, so that a failure here leaves nothing half written.
   */
  #boundLog(): void {
    if (this.#cursors.isEmpty) return;
    const logFile = `${this.#db.location()}-wal`;
    const logBytes = statSync(logFile, { throwIfNoEntry: false })?.size ?? 0;
    if (logBytes <= LOG_BYTES) return;
    this.#cursors.interrupt();
    this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  }

  #transaction<T>(work: () => T): T {
    this.#boundLog();
    const [sizeBefore, unsettledBefore] = [this.size, this.#unsettled];
    this.#db.exec('BEGIN IMMEDIATE');
    try {
      const result = work();
      this.#statements.setFact.run('entries', this.#entries);
      this.#statements.setFact.run('bytes', this.#bytes);
      this.#db.exec('COMMIT');
      return result;
    } catch (error) {
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK');
      [this.#entries, this.#bytes, this.#unsettled] = [sizeBefore.entries, sizeBefore.bytes, unsettledBefore];
      throw error;
    }
  }

  /** A statement for the keys of the entries with a field that passes a test. @param test the test of the field's value, in SQL */
  #condition(test: string): StatementSync {
    let statement = this.#conditions.get(test);
    if (!statement) {
      statement = this.#db.prepare(`SELECT key FROM fields WHERE name = ? AND kind = ? AND ${test} LIMIT ?`);
      if (this.#conditions.size < MAX_KEPT) this.#conditions.set(test, statement);
    }
    return statement;
  }
}

/** SQL operators of the comparisons that order values. */
const OPERATORS: Readonly<Partial<Record<Condition['comparison'], string>>> = {
  less: '<',
  'at-most': '<=',
  greater: '>',
  'at-least': '>=',
};

/** Opens a database and does `work` with it. Closes the database when a setting or `work` fails. */
function open<T>(file: string, work: (db: DatabaseSync) => T): T {
  const isNew = !existsSync(file);
  const db = new DatabaseSync(file, { enableForeignKeyConstraints: false });
  try {
    // SQLite accepts `auto_vacuum` only while the file is empty. So it must come before the journal mode, which writes to the file.
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

/** Type of a field's value. SQLite stores `true` as 1, so a stored field also needs its type. */
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
  // A `Float32Array` can view only bytes whose offset is a multiple of four. Copy other bytes.
  const alignedBytes = bytes.byteOffset % FLOAT_BYTES === 0 ? bytes : bytes.slice();
  return new Float32Array(alignedBytes.buffer, alignedBytes.byteOffset, alignedBytes.byteLength / FLOAT_BYTES);
}

type SqlRow = Record<string, SQLOutputValue>;

/**
 * Reads of one database that stay open while the process does other work. SQLite cannot truncate its write-ahead log while a read is open. Before a
 * write, `Records` can call `interrupt` to truncate the log. The reads then continue by themselves.
 */
export class Cursors {
  /** The rows of the running statements. */
  readonly #open = new Set<NodeJS.Iterator<SqlRow>>();

  get isEmpty(): boolean {
    return this.#open.size === 0;
  }

  /**
   * Returns the rows after the key `after`, in key order, also across interruptions.
   * @param read runs a new statement, which returns the rows after `lastKey`, in key order; each row has its key in the column `key`
   * @param after key after which the rows begin
   */
  *rows(read: (lastKey: number) => NodeJS.Iterator<SqlRow>, after: number): Generator<SqlRow, void, void> {
    let lastKey = after;
    let isComplete = false;
    while (!isComplete) {
      const rows = read(lastKey);
      this.#open.add(rows);
      try {
        for (const row of rows) {
          lastKey = Number(row.key);
          yield row;
        }
      } finally {
        // `interrupt` ends the rows early and removes them from `#open`. If they are still there, they are complete.
        isComplete = this.#open.delete(rows);
      }
    }
  }

  /** Ends the statements of all reads. When a read's next row is requested, the read runs a new statement that begins after the read's last row. */
  interrupt(): void {
    for (const rows of this.#open) rows.return?.();
    this.#open.clear();
  }
}

/**
 * Keys grow with every write and are never used again, so that a key always means the same vector. A committed
 * transaction is in SQLite's write-ahead log, so it survives the death of the process.
 */
export const SCHEMA = `
  CREATE TABLE facts (name TEXT PRIMARY KEY, value ANY) STRICT;
  CREATE TABLE entries (
    key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL,
    metadata TEXT NOT NULL, vector BLOB NOT NULL, text TEXT) STRICT;
  CREATE TABLE fields (
    name TEXT NOT NULL, kind TEXT NOT NULL, value ANY NOT NULL, key INTEGER NOT NULL,
    PRIMARY KEY (name, kind, value, key)) STRICT, WITHOUT ROWID;
  CREATE VIRTUAL TABLE words USING fts5(
    text, content='entries', content_rowid='key', tokenize='${TOKENIZER}');`;

/**
 * A write does not update the index of words at once. `unworded` has the entries whose words are not indexed yet, and `gone` has the deleted texts
 * whose words are still indexed.
 */
export const UNSETTLED = `
  CREATE TABLE IF NOT EXISTS unworded (key INTEGER PRIMARY KEY) STRICT;
  CREATE TABLE IF NOT EXISTS gone (key INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;`;

/** Entries whose texts match an expression and whose keys are above a given key, with their BM25 scores. */
export const WITH_WORDS =
  'SELECT rowid AS key, bm25(words) AS score FROM words WHERE words MATCH ? AND rowid > ? ORDER BY rowid';

export type Statements = ReturnType<typeof statements>;

/** Prepares the statements of an index's records, once per open file. */
export function statements(db: DatabaseSync) {
  return {
    insert: db.prepare('INSERT INTO entries (id, bytes, metadata, vector, text) VALUES (?, ?, ?, ?, ?)'),
    insertField: db.prepare('INSERT INTO fields VALUES (?, ?, ?, ?)'),
    insertWords: db.prepare('INSERT INTO words (rowid, text) VALUES (?, ?)'),
    find: db.prepare('SELECT key, bytes, metadata, text FROM entries WHERE id = ?'),
    deleteEntry: db.prepare('DELETE FROM entries WHERE key = ?'),
    deleteField: db.prepare('DELETE FROM fields WHERE name = ? AND kind = ? AND value = ? AND key = ?'),
    deleteWords: db.prepare("INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)"),
    insertUnworded: db.prepare('INSERT INTO unworded VALUES (?)'),
    deleteUnworded: db.prepare('DELETE FROM unworded WHERE key = ?'),
    nextUnworded: db.prepare('SELECT key, text FROM entries WHERE key = (SELECT min(key) FROM unworded)'),
    insertGone: db.prepare('INSERT INTO gone VALUES (?, ?)'),
    deleteGone: db.prepare('DELETE FROM gone WHERE key = ?'),
    nextGone: db.prepare('SELECT key, text FROM gone ORDER BY key LIMIT 1'),
    countUnsettled: db.prepare('SELECT (SELECT count(*) FROM unworded) + (SELECT count(*) FROM gone) AS count'),
    row: db.prepare('SELECT key, id, metadata, vector FROM entries WHERE key = ?'),
    vector: db.prepare('SELECT vector FROM entries WHERE key = ?'),
    content: db.prepare('SELECT id, metadata, text FROM entries WHERE key = ?'),
    after: db.prepare('SELECT key, id, metadata, vector FROM entries WHERE key > ? ORDER BY key LIMIT ?'),
    lastKey: db.prepare('SELECT max(key) AS key FROM entries'),
    freePages: db.prepare('PRAGMA freelist_count'),
    pages: db.prepare('PRAGMA page_count'),
    countWord: db.prepare('SELECT count(*) AS count FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)'),
    keyWithWord: db.prepare('SELECT rowid AS key FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?'),
    fact: db.prepare('SELECT value FROM facts WHERE name = ?'),
    setFact: db.prepare('INSERT OR REPLACE INTO facts VALUES (?, ?)'),
    deleteFact: db.prepare('DELETE FROM facts WHERE name = ?'),
  };
}

/** SQLite's primary result codes for a file whose content is damaged, and for one that is no database. */
const CORRUPT = 11;
const NOT_A_DATABASE = 26;
/** Selects the low byte of an extended result code, which is the primary code. */
const PRIMARY = 0xff;

/**
 * True when the file of an index itself is the reason why it does not open: its content is damaged, or another version of Pie wrote it. Other
 * failures (a full disk, no descriptors left, missing rights) say nothing about the content, and may pass.
 */
export function isDamage(error: unknown): boolean {
  if (error instanceof IndexError) return true;
  const { errcode } = error as { readonly errcode?: unknown };
  return typeof errcode === 'number' && [CORRUPT, NOT_A_DATABASE].includes(errcode & PRIMARY);
}
