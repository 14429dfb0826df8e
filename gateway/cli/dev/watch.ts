import { type FSWatcher, statSync, watch } from 'node:fs';
import path from 'node:path';

/** A save is several writes: it counts once nothing more has come for this long. */
const QUIET_MS = 80;
/** Folders that are watched at most; a project's own sources lie in fewer. */
const MAX_FOLDERS = 256;

/**
 * Waits for changes of files. Folders are watched rather than files, since editors put a new file in the place of the old one; packages are not
 * watched, since nobody edits them in place.
 */
export class SourceWatch implements Disposable {
  readonly #folders = new Map<string, FSWatcher>();
  #files: ReadonlySet<string> = new Set();
  #loose = false;
  #changed = false;
  #notify: () => void = () => undefined;

  /**
   * Watches these files (absolute paths) from now on, and no others; one that was written after `sinceMs` counts as changed already.
   * @param loose count every file in their folders: the source does not build, and what is missing may be created there
   */
  watch(files: readonly string[], sinceMs: number, loose: boolean): void {
    const own = files.filter((file) => !file.split(path.sep).includes('node_modules'));
    const fresh = own.filter((file) => !this.#files.has(file));
    this.#files = new Set(own);
    this.#loose = loose;
    const folders = new Set(own.map((file) => path.dirname(file)).slice(0, MAX_FOLDERS));
    for (const folder of this.#folders.keys()) if (!folders.has(folder)) this.#forget(folder);
    for (const folder of folders) this.#look(folder);
    if (fresh.some((file) => writtenAfter(file, sinceMs))) this.#take();
  }

  /** Resolves after a change since the last call, once it is quiet. Rejects with the signal's reason. */
  async change(signal: AbortSignal): Promise<void> {
    while (!this.#changed) await this.#event(signal);
    for (;;) {
      this.#changed = false;
      await this.#event(AbortSignal.any([signal, AbortSignal.timeout(QUIET_MS)])).catch(() => signal.throwIfAborted());
      if (!this.#changed) return;
    }
  }

  [Symbol.dispose](): void {
    for (const folder of [...this.#folders.keys()]) this.#forget(folder);
  }

  #event(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const abort = () => reject(signal.reason);
      signal.addEventListener('abort', abort, { once: true });
      this.#notify = () => {
        signal.removeEventListener('abort', abort);
        resolve();
      };
    });
  }

  #take(): void {
    this.#changed = true;
    this.#notify();
  }

  #look(folder: string): void {
    if (this.#folders.has(folder)) return;
    try {
      const watcher = watch(folder, (_, name) => {
        if (name === null || this.#loose || this.#files.has(path.join(folder, name))) this.#take();
      });
      // A folder that goes away is a change of what was in it.
      watcher.on('error', () => {
        this.#forget(folder);
        this.#take();
      });
      this.#folders.set(folder, watcher);
    } catch {
      // It went away before: the next build says so.
    }
  }

  #forget(folder: string): void {
    this.#folders.get(folder)?.close();
    this.#folders.delete(folder);
  }
}

function writtenAfter(file: string, sinceMs: number): boolean {
  return (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0) > sinceMs;
}
