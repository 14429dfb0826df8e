import { StoreError } from '../store/errors.ts';
import { loadScript } from '../store/scripts.ts';
import type { Store } from '../store/store.ts';

const publishScript = loadScript(new URL('./scripts/publish.lua', import.meta.url));
const readScript = loadScript(new URL('./scripts/read.lua', import.meta.url));

/** A snapshot holds for so long: three times as long as processes take to hand over the next. */
const HOLDS_MS = 15_000;
/** Processes whose snapshots are kept at once. */
const MAX_PROCESSES = 256;
/** Characters of one snapshot; a larger one is refused before it is stored. */
const MAX_SNAPSHOT = 2 * 1024 * 1024;

export interface Snapshot {
  readonly process: string;
  readonly text: string;
}

/**
 * Where every process of the platform leaves what it has measured, for whoever shows all of it on one page. What a process that died has
 * left is forgotten by itself.
 */
export class MetricsBoard {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Leaves a process' snapshot in place of its last one. Throws `StoreError`, `invalid-argument` when it is too large or too many processes measure. */
  async publish(process: string, text: string): Promise<void> {
    if (text.length > MAX_SNAPSHOT) {
      throw new StoreError(
        'invalid-argument',
        `What ${process} has measured takes ${text.length} characters; ${MAX_SNAPSHOT} is the limit.`,
      );
    }
    const stored = await this.#store.script(publishScript, this.#keys(), [process, text, HOLDS_MS, MAX_PROCESSES]);
    if (stored !== 1)
      throw new StoreError('invalid-argument', `More than ${MAX_PROCESSES} processes hand over what they measure.`);
  }

  /** What each process that lives has left last, by process. */
  async read(): Promise<Snapshot[]> {
    const flat = (await this.#store.script(readScript, this.#keys(), [])) as string[];
    return Array.from({ length: flat.length / 2 }, (_, i) => ({
      process: flat[2 * i] ?? '',
      text: flat[2 * i + 1] ?? '',
    }));
  }

  #keys(): string[] {
    return [this.#store.keys.metrics, this.#store.keys.metricsExpiries];
  }
}
