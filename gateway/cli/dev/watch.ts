import { type FSWatcher, statSync, watch } from 'node:fs';
import path from 'node:path';

/** A save is several writes: it counts once this long has passed without another write. */
const QUIET_MS = 50;
/** Maximum folders to watch; a project's own sources have fewer. */
const MAX_FOLDERS = 256;

/**
 * Waits for changes of files. It watches folders rather than files, since editors replace a file by a new one. It skips packages, since
 * developers do not edit them in place.
 */
export class SourceWatch implements Disposable {
  readonly #folders = new Map<string, FSWatcher>();
  #files: ReadonlySet<string> = new Set();
  #acceptsAnyFile = false;
  #hasChanged = false;
  #notify: () => void = () => undefined;

  /**
   * Replaces the set of watched files (absolute paths). A newly watched file that was written after `sinceMs` counts as changed at once.
   * @param acceptsAnyFile true after a failed build: notices every file in the folders of `files`, since a missing file may be created there
   */
  watch(files: readonly string[], sinceMs: number, acceptsAnyFile: boolean): void {
    const ownFiles = files.filter((file) => !file.split(path.sep).includes('node_modules'));
    const newFiles = ownFiles.filter((file) => !this.#files.has(file));
    this.#files = new Set(ownFiles);
    this.#acceptsAnyFile = acceptsAnyFile;
    const allFolders = new Set(ownFiles.map((file) => path.dirname(file)));
    const folders = new Set([...allFolders].slice(0, MAX_FOLDERS));
    for (const folder of this.#folders.keys()) if (!folders.has(folder)) this.#forget(folder);
    for (const folder of folders) this.#watchFolder(folder);
    if (newFiles.some((file) => writtenAfter(file, sinceMs))) this.#markChanged();
  }

  /** Resolves after a change since the last call, once writes have stopped. Rejects with the signal's reason. */
  async change(signal: AbortSignal): Promise<void> {
    while (!this.#hasChanged) await this.#nextEvent(signal);
    for (;;) {
      this.#hasChanged = false;
      await this.#nextEvent(AbortSignal.any([signal, AbortSignal.timeout(QUIET_MS)])).catch(() =>
        signal.throwIfAborted(),
      );
      if (!this.#hasChanged) return;
    }
  }

  [Symbol.dispose](): void {
    for (const folder of [...this.#folders.keys()]) this.#forget(folder);
  }

  #nextEvent(signal: AbortSignal): Promise<void> {
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

  #markChanged(): void {
    this.#hasChanged = true;
    this.#notify();
  }

  #watchFolder(folder: string): void {
    if (this.#folders.has(folder)) return;
    try {
      const watcher = watch(folder, (_, name) => {
        if (name === null || this.#acceptsAnyFile || this.#files.has(path.join(folder, name))) this.#markChanged();
      });
      // A folder's removal changes the files in it.
      watcher.on('error', () => {
        this.#forget(folder);
        this.#markChanged();
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
