import { DatabaseSync, type StatementSync } from 'node:sqlite';

/** A query searches for at most this many of its words, the first ones. */
const MAX_WORDS = 16;

/** The tokenizer of FTS5 for texts and queries. It ignores case and most diacritics. */
export const TOKENIZER = 'unicode61 remove_diacritics 2';

/**
 * Cuts queries into words. SQLite does this, in an empty full-text table in memory, so that it cuts queries in the same way as stored texts.
 * JavaScript would cut some texts in another way: its tables of characters are newer.
 */
class Splitter {
  readonly #begin: StatementSync;
  readonly #insert: StatementSync;
  readonly #read: StatementSync;
  readonly #rollback: StatementSync;

  constructor() {
    const db = new DatabaseSync(':memory:');
    db.exec(`
      CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='${TOKENIZER}');
      CREATE VIRTUAL TABLE words USING fts5vocab(texts, 'instance');`);
    this.#begin = db.prepare('BEGIN');
    this.#insert = db.prepare('INSERT INTO texts (rowid, text) VALUES (1, ?)');
    this.#read = db.prepare('SELECT term FROM words GROUP BY term ORDER BY min(offset) LIMIT ?');
    this.#rollback = db.prepare('ROLLBACK');
  }

  /** The first `limit` different words of a text. */
  wordsOf(text: string, limit: number): string[] {
    this.#begin.run();
    try {
      this.#insert.run(text);
      return this.#read.all(limit).map(({ term }) => String(term));
    } finally {
      this.#rollback.run();
    }
  }
}

let splitter: Splitter | undefined;

/** Expressions of FTS5 for the words of a text. Quoting keeps operators of FTS5 in the text from having an effect. */
export function wordExpressions(text: string): string[] {
  splitter ??= new Splitter();
  return splitter.wordsOf(text, MAX_WORDS).map((word) => `"${word.replaceAll('"', '""')}"`);
}

/** A word, and the number of entries that have it. A caller that has counted more than `maxEntries` entries may stop counting. */
export interface WordCount {
  readonly word: string;
  readonly entries: number;
}

/**
 * The rarest words, as long as the counts of their entries add up to at most `maxEntries`: rare words tell entries
 * apart. The rarest word is always chosen, even when more than `maxEntries` entries have it. Words that no entry has
 * are left out.
 */
export function chosenWords(counted: readonly WordCount[], maxEntries: number): string[] {
  const known = counted.filter(({ entries }) => entries > 0).sort((a, b) => a.entries - b.entries);
  const chosen: string[] = [];
  let sum = 0;
  for (const { word, entries } of known) {
    sum += entries;
    if (sum > maxEntries && chosen.length > 0) break;
    chosen.push(word);
  }
  return chosen;
}
