import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/lua-script.ts';
import type { Store } from '../store/store.ts';

const publishScript = loadScript(new URL('./board.lua', import.meta.url), 'publish');
const readScript = loadScript(new URL('./board.lua', import.meta.url), 'read');

/** Time for which a snapshot is valid: three times the interval at which processes publish. */
const VALID_MS = 15_000;
const MAX_PROCESSES = 256;
const MAX_SNAPSHOT_CHARACTERS = 2 * 1024 * 1024;

/** The last published metrics of one process. */
export interface Snapshot {
  readonly process: string;
  /** Opaque to the board; the processes choose the format. */
  readonly text: string;
}

/** Holds the last metrics of every process of the platform, so that one page can show all of them. The snapshot of a dead process expires. */
export class MetricsBoard {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /**
   * Replaces the snapshot of a process.
   * @throws StoreError `invalid-argument` when the snapshot is too large or too many processes publish; and others
   */
  async publish(process: string, text: string): Promise<void> {
    if (text.length > MAX_SNAPSHOT_CHARACTERS) {
      throw new StoreError(
        'invalid-argument',
        `The measurements of ${process} take ${text.length} characters; ${MAX_SNAPSHOT_CHARACTERS} is the limit.`,
      );
    }
    const stored = await this.#store.script(publishScript, this.#keys(), [process, text, VALID_MS, MAX_PROCESSES]);
    if (stored !== 1)
      throw new StoreError('invalid-argument', `More than ${MAX_PROCESSES} processes publish measurements.`);
  }

  /** The last snapshot of each living process, ordered by the names of the processes. */
  async read(): Promise<Snapshot[]> {
    const flat = (await this.#store.script(readScript, this.#keys(), [])) as string[];
    // Processes and their texts alternate in the reply.
    return Array.from({ length: flat.length / 2 }, (_, i) => ({
      process: flat[2 * i] ?? '',
      text: flat[2 * i + 1] ?? '',
    }));
  }

  #keys(): string[] {
    return [this.#store.keys.metrics, this.#store.keys.metricsExpiries];
  }
}
