import { type FSWatcher, statSync, watch } from 'node:fs';
import path from 'node:path';

/** A save is several writes: it counts once this long has passed without another write. */
const QUIET_MS = 80;
/** Maximum folders to watch; a project's own sources have fewer. */
const MAX_FOLDERS = 256;

/**
 * Waits for changes of files. It watches folders rather than files, since editors replace a file by a new one. It skips packages, since
 * developers do not edit them in place.
 */
export class SourceWatch implements Disposable {
  readonly #folders = new Map<string, FSWatcher>();
  #files: ReadonlySet<string> = new Set();
  #loose = false;
  #changed = false;
  #notify: () => void = () => undefined;

  /**
   * Replaces the set of watched files (absolute paths). A file written after `sinceMs` counts as changed at once.
   * @param loose count every file in their folders: the build failed, and a missing file may be created there
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

  /** Resolves after a change since the last call, once writes have stopped. Rejects with the signal's reason. */
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
      // A folder's removal changes the files in it.
      watcher.on('error', () => {
        this.#forget(folder);
        this.#take();
      });
      this.#folders.set(folder, watcher);
    } catch {
      // The folder no longer exists: the next build reports that.
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
