import type { SQLOutputValue } from 'node:sqlite';

type Row = Record<string, SQLOutputValue>;

/**
 * Reads of one database that stay open while the process does other work. SQLite cannot truncate its write-ahead log while a read is open. Before a
 * write, `Records` can call `interrupt` to truncate the log. The reads then continue by themselves.
 */
export class Cursors {
  /** The rows of the running statements. */
  readonly #open = new Set<NodeJS.Iterator<Row>>();

  get isEmpty(): boolean {
    return this.#open.size === 0;
  }

  /**
   * Returns the rows after the key `after`, in key order, also across interruptions.
   * @param read runs a new statement, which returns the rows after `lastKey`, in key order; each row has its key in the column `key`
   * @param after key after which the rows begin
   */
  *rows(read: (lastKey: number) => NodeJS.Iterator<Row>, after: number): Generator<Row, void, void> {
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
