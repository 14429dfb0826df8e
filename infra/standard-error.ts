import { writeSync } from 'node:fs';

const STANDARD_ERROR = 2;
/** Maximum bytes that wait for the reader of a pipe. */
const MAX_WAITING_BYTES = 4 * 2 ** 20;
const RETRY_MS = 20;
/** Time that a process which ends gives the reader to take the last lines. */
const EXIT_MS = 1000;
const EXIT_RETRY_MS = 5;

/**
 * Writes lines to standard error at once, because a process may end right after. A full pipe must not hold up the process, so lines wait in
 * memory, up to a bound, until its reader has taken the earlier ones. `process.stderr` would lose such lines when the process ends.
 */
export class StandardError {
  /** Called after dropped lines, as soon as there is room again. */
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

  /** Returns false when the reader must take something first. */
  #writeWaiting(): boolean {
    const waiting = Buffer.concat(this.#waiting);
    let written = 0;
    try {
      while (written < waiting.length) written += writeSync(STANDARD_ERROR, waiting, written);
    } catch (error) {
      // After any other failure, such as a reader that has gone or a full disk, nothing can be written.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') written = waiting.length;
    }
    this.#waiting = written < waiting.length ? [waiting.subarray(written)] : [];
    this.#waitingBytes = waiting.length - written;
    return this.#waitingBytes === 0;
  }

  #finish(): void {
    clearTimeout(this.#retry);
    const clock = new Int32Array(new SharedArrayBuffer(4));
    for (const end = performance.now() + EXIT_MS; !this.#writeWaiting() && performance.now() < end; )
      Atomics.wait(clock, 0, 0, EXIT_RETRY_MS);
  }
}
