import type { CacheState } from './cache.ts';
import type { Sequence } from './sequence.ts';

/** What was computed of a sequence at some time: to be restored there, or given back. */
export interface Saved {
  readonly tokens: readonly number[];
  readonly cache: CacheState;
}

/** @internal What a snapshot holds, and of which sequence. */
export let savedIn: (snapshot: Snapshot) => { readonly sequence: Sequence; readonly saved: Saved | undefined };

/** What a context was at some time. It holds memory (what the context has in common with it is shared): give it back with `using`. */
export class Snapshot implements Disposable {
  readonly #sequence: Sequence;
  #saved: Saved | undefined;

  /** @internal Made by `Context.snapshot`. */
  constructor(sequence: Sequence, saved: Saved) {
    this.#sequence = sequence;
    this.#saved = saved;
  }

  static {
    savedIn = (snapshot) => ({ sequence: snapshot.#sequence, saved: snapshot.#saved });
  }

  /** Gives the memory back; it can no longer be restored. */
  release(): void {
    if (this.#saved) this.#sequence.discard(this.#saved);
    this.#saved = undefined;
  }

  [Symbol.dispose](): void {
    this.release();
  }
}
