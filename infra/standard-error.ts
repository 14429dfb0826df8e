import { writeSync } from 'node:fs';

const STANDARD_ERROR = 2;
/** Maximum bytes that wait for the reader of a pipe. */
const MAX_WAITING_BYTES = 4 * 2 ** 20;
const RETRY_MS = 20;
/** Time that an ending process gives the reader to take the last lines. */
const EXIT_MS = 1000;
const EXIT_RETRY_MS = 5;

/**
 * Writes lines to standard error at once, because a process may end right after. A full pipe must not hold up the process, so lines wait in
 * memory, up to a bound, until the pipe's reader takes them. `process.stderr` would lose such lines when the process ends.
 */
export class StandardError {
  /** Called with the number of dropped lines, once all waiting lines are written. */
  onDropped: (count: number) => void = () => undefined;
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #droppedCount = 0;
  #retry: NodeJS.Timeout | undefined;

  constructor() {
    process.once('exit', () => this.#finish());
  }

  write(line: string): void {
    const bytes = Buffer.from(`${line}\n`);
    if (this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) {
      this.#droppedCount++;
      return;
    }
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    if (this.#retry === undefined) this.#flush();
  }

  #flush(): void {
    this.#retry = undefined;
    if (!this.#writeWaiting()) {
      this.#retry = setTimeout(() => this.#flush(), RETRY_MS).unref();
      return;
    }
    const count = this.#droppedCount;
    this.#droppedCount = 0;
    if (count > 0) this.onDropped(count);
  }

  /** Writes waiting lines while the reader takes them. Returns false when some still wait. */
  #writeWaiting(): boolean {
    const waiting = Buffer.concat(this.#waiting);
    let written = 0;
    try {
      while (written < waiting.length) written += writeSync(STANDARD_ERROR, waiting, written);
    } catch (error) {
      // After any other failure, such as a full disk or a closed pipe, the lines cannot be written and are dropped.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') written = waiting.length;
    }
    this.#waiting = written < waiting.length ? [waiting.subarray(written)] : [];
    this.#waitingBytes = waiting.length - written;
    return this.#waitingBytes === 0;
  }

  #finish(): void {
    clearTimeout(this.#retry);
    // `Atomics.wait` on a value that never changes is a sleep: a process that exits runs no timers.
    const unchanged = new Int32Array(new SharedArrayBuffer(4));
    for (const end = performance.now() + EXIT_MS; !this.#writeWaiting() && performance.now() < end; )
      Atomics.wait(unchanged, 0, 0, EXIT_RETRY_MS);
  }
}
