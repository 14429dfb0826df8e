import { createWriteStream, type WriteStream } from 'node:fs';

/** Most bytes that wait for the disk. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;
/** Time between two tries to open a file that could not be written, ms. */
const REOPEN_MS = 5000;

/**
 * A child's log file. When the disk is full or slow, the log drops lines instead of ending the supervisor or filling its memory; the file then
 * says how many are missing.
 */
export class ChildLog {
  readonly #file: string;
  readonly #report: (why: string) => void;
  #stream: WriteStream | undefined;
  /** Reason of the last failure, until a note about the missing lines is in the file. */
  #failure: string | undefined;
  #retryAtMs = 0;
  #lostLines = 0;

  /** @param report called with the reason when the file begins to fail */
  constructor(file: string, report: (why: string) => void) {
    this.#file = file;
    this.#report = report;
    this.#stream = this.#open();
  }

  write(text: string): void {
    if (!this.#stream && performance.now() >= this.#retryAtMs) this.#stream = this.#open();
    if (!this.#stream || this.#stream.writableLength > MAX_WAITING_BYTES) {
      this.#lostLines++;
      return;
    }
    if (this.#lostLines > 0) {
      const why = this.#failure ?? 'the disk was too slow';
      const notedLines = this.#lostLines;
      this.#lostLines = 0;
      this.#stream.write(`${new Date().toISOString()} (${notedLines} lines are missing here: ${why})\n`, (error) => {
        if (error) this.#lostLines += notedLines;
        else this.#failure = undefined;
      });
    }
    this.#stream.write(text, (error) => {
      if (error) this.#lostLines++;
    });
  }

  /** Writes the waiting lines and closes the file. */
  end(): Promise<void> {
    const stream = this.#stream;
    if (!stream) return Promise.resolve();
    return new Promise((resolve) => {
      stream.once('close', resolve).end();
    });
  }

  #open(): WriteStream {
    const stream = createWriteStream(this.#file, { flags: 'a' });
    stream.on('error', (error) => {
      if (this.#failure === undefined) {
        this.#report(error.message);
      }
      this.#failure = error.message;
      this.#stream = undefined;
      this.#retryAtMs = performance.now() + REOPEN_MS;
    });
    return stream;
  }
}
