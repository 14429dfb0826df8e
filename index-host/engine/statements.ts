import type { DatabaseSync } from 'node:sqlite';
import { TOKENIZER } from './words.ts';

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
