import type { CacheState } from './cache.ts';
import type { Sequence } from './sequence.ts';

/** A captured state of a sequence, to be restored or discarded. */
export interface Saved {
  readonly tokens: readonly number[];
  readonly cache: CacheState;
}

/** @internal The saved state of a snapshot, and its sequence. */
export let savedIn: (snapshot: Snapshot) => { readonly sequence: Sequence; readonly saved: Saved | undefined };

/** A captured state of a context. It holds pages, shared with the context where possible; release it with `using`. */
export class Snapshot implements Disposable {
  readonly #sequence: Sequence;
  #saved: Saved | undefined;

  /** @internal Constructed by `Context.snapshot`. */
  constructor(sequence: Sequence, saved: Saved) {
    this.#sequence = sequence;
    this.#saved = saved;
  }

  static {
    savedIn = (snapshot) => ({ sequence: snapshot.#sequence, saved: snapshot.#saved });
  }

  /** Frees the snapshot's memory. The snapshot can no longer be restored. */
  release(): void {
    if (this.#saved) this.#sequence.discard(this.#saved);
    this.#saved = undefined;
  }

  [Symbol.dispose](): void {
    this.release();
  }
}
