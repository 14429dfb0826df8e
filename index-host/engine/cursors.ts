import type { SQLOutputValue } from 'node:sqlite';

type Row = Record<string, SQLOutputValue>;

/** Reads that stay open between pieces of work. SQLite cannot truncate its write-ahead log meanwhile, so a write can interrupt all reads. */
export class Cursors {
  readonly #open = new Set<NodeJS.Iterator<Row>>();

  get isEmpty(): boolean {
    return this.#open.size === 0;
  }

  /** Rows after the key `after`. `read` returns the rows after a key, in key order; an interruption makes `rows` call it again. */
  *rows(read: (after: number) => NodeJS.Iterator<Row>, after: number): Generator<Row, void, void> {
    let lastKey = after;
    let isOver = false;
    while (!isOver) {
      const rows = read(lastKey);
      this.#open.add(rows);
      try {
        for (const row of rows) {
          lastKey = Number(row.key);
          yield row;
        }
      } finally {
        // Rows that `interrupt` has removed may not be complete: read on after the last key.
        isOver = this.#open.delete(rows);
      }
    }
  }

  /** Closes the statements of all reads. A read opens a new statement, after its last key, when its next row is needed. */
  interrupt(): void {
    for (const rows of this.#open) rows.return?.();
    this.#open.clear();
  }
}
