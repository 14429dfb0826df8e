import type { SQLOutputValue } from 'node:sqlite';

type Row = Record<string, SQLOutputValue>;

/** Reads that stay open between pieces of work. SQLite cannot cut its write-ahead log while one is open, so a write can interrupt them. */
export class Cursors {
  readonly #open = new Set<NodeJS.Iterator<Row>>();

  get isEmpty(): boolean {
    return this.#open.size === 0;
  }

  /** Rows behind a key. `read` returns those behind the key that it gets, by key; it is called again after an interruption. */
  *rows(read: (after: number) => NodeJS.Iterator<Row>, after: number): Generator<Row, void, void> {
    for (let [last, isOver] = [after, false]; !isOver; ) {
      const rows = read(last);
      this.#open.add(rows);
      try {
        for (const row of rows) {
          last = Number(row.key);
          yield row;
        }
      } finally {
        // `interrupt` has removed a read that must go on.
        isOver = this.#open.delete(rows);
      }
    }
  }

  /** Closes the statements of all reads, which go on behind their last keys with their next rows. */
  interrupt(): void {
    for (const rows of this.#open) rows.return?.();
    this.#open.clear();
  }
}
