import fs, { createWriteStream, fstatSync, renameSync, rmSync, type WriteStream } from 'node:fs';

/** Most bytes that wait for the disk. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;
/** Time between two tries to open a file that could not be written, ms. */
const REOPEN_MS = 5000;
/** Most bytes of one file of a log. A full file is renamed, to `<file>.1`, and the next one begins. */
const MAX_FILE_BYTES = 32 * 1024 * 1024;
/** Full files that are kept; the oldest has the highest number. A log thus takes at most 128 MiB. */
const FULL_FILES = 3;

/**
 * A log file of a process of this machine. When the disk is full or slow, the log drops lines instead of ending the supervisor or filling its memory;
 * the file then says how many are missing. Its size is bounded, so that nothing that a process logs fills the disk.
 */
export class ChildLog {
  readonly #file: string;
  readonly #report: (why: string) => void;
  readonly #maxFileBytes: number;
  #stream: WriteStream | undefined;
  /** Bytes in the file, and of what waits for it. */
  #fileBytes = 0;
  /** Resolves when the streams of full files are closed. */
  #closed: Promise<unknown> = Promise.resolve();
  /** Reason of the last failure, until a note about the missing lines is in the file. */
  #failure: string | undefined;
  #retryAtMs = 0;
  #lostLines = 0;

  /**
   * @param report called with the reason when the file begins to fail
   * @param maxFileBytes most bytes of one file; 32 MiB by default
   */
  constructor(file: string, report: (why: string) => void, maxFileBytes = MAX_FILE_BYTES) {
    this.#file = file;
    this.#report = report;
    this.#maxFileBytes = maxFileBytes;
    this.#stream = this.#open();
  }

  write(text: string): void {
    if (!this.#stream && performance.now() >= this.#retryAtMs) this.#stream = this.#open();
    if (!this.#stream || this.#stream.writableLength > MAX_WAITING_BYTES) {
      this.#lostLines++;
      return;
    }
    if (this.#fileBytes > 0 && this.#fileBytes + Buffer.byteLength(text) > this.#maxFileBytes) this.#beginFile();
    if (this.#lostLines > 0) {
      const why = this.#failure ?? 'the disk was too slow';
      const notedLines = this.#lostLines;
      this.#lostLines = 0;
      this.#put(`${new Date().toISOString()} (${notedLines} lines are missing here: ${why})\n`, (error) => {
        if (error) this.#lostLines += notedLines;
        else this.#failure = undefined;
      });
    }
    this.#put(text, (error) => {
      if (error) this.#lostLines++;
    });
  }

  /** Writes the waiting lines and closes the file. */
  async end(): Promise<void> {
    await Promise.all([this.#closed, this.#stream && closed(this.#stream)]);
  }

  #put(text: string, written: (error: Error | null | undefined) => void): void {
    this.#fileBytes += Buffer.byteLength(text);
    this.#stream?.write(text, written);
  }

  /** Renames the full files, and the present one to `<file>.1`, and opens a new one. */
  #beginFile(): void {
    const full = this.#stream;
    try {
      rmSync(`${this.#file}.${FULL_FILES}`, { force: true });
      for (let number = FULL_FILES - 1; number > 0; number--) {
        rename(`${this.#file}.${number}`, `${this.#file}.${number + 1}`);
      }
      rename(this.#file, `${this.#file}.1`);
    } catch (error) {
      // The file goes on and is tried again after as many bytes.
      this.#fileBytes = 0;
      this.#report(`the full file could not be renamed: ${error instanceof Error ? error.message : String(error)}`);
      return;
    }
    if (full) this.#closed = Promise.all([this.#closed, closed(full)]);
    this.#stream = this.#open();
  }

  /** Opens the file at once, so that it can be renamed when it is full. Undefined when the file cannot be opened. */
  #open(): WriteStream | undefined {
    let stream: WriteStream;
    try {
      const fd = fs.openSync(this.#file, 'a');
      this.#fileBytes = fstatSync(fd).size;
      stream = createWriteStream(this.#file, { fd });
    } catch (error) {
      this.#fail(error instanceof Error ? error.message : String(error));
      return undefined;
    }
    stream.on('error', (error) => {
      this.#fail(error.message);
      if (this.#stream === stream) this.#stream = undefined;
    });
    return stream;
  }

  #fail(why: string): void {
    if (this.#failure === undefined) this.#report(why);
    this.#failure = why;
    this.#retryAtMs = performance.now() + REOPEN_MS;
  }
}

const closed = (stream: WriteStream): Promise<void> =>
  new Promise((resolve) => {
    if (stream.closed) resolve();
    else stream.once('close', resolve).end();
  });

/** Renames a file if it exists. */
function rename(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
